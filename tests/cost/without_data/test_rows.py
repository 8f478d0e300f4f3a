"""Constants that are too long to be kept are known where each element is the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import subclass_aot as sa
from subclass_aot.cost.without_data.rows import has_rows, is_fill
from subclass_aot.errors import DataDependentError

LONG = 10**8

KNOWN: dict[str, tuple[Callable[[], Any], Any]] = {
    "a full mask": (lambda: bool(torch.ones(LONG, dtype=torch.bool).all()), True),
    "how many": (lambda: torch.ones(LONG, dtype=torch.bool).sum().item(), LONG),
    "in each row": (lambda: torch.ones(10**5, 10**3).sum(1)[5].item(), 1000),
    "zeros": (lambda: bool(torch.zeros(LONG).any()), False),
    "a number": (lambda: torch.full((LONG,), 2.5).max().item(), 2.5),
    "compared": (lambda: bool((torch.full((LONG,), 7) == 7).all()), True),
    "computed": (lambda: (torch.ones(10**4, 10**4) * 2 - torch.ones(10**4, 1))[3, 4].item(), 1.0),
    "converted": (lambda: bool((1.0 - torch.ones(LONG).to(torch.bfloat16)).bool().any()), False),
    "like what is not known": (lambda: bool(torch.ones_like(torch.randn(LONG), dtype=torch.bool).all()), True),
    "like a short one": (lambda: torch.zeros_like(torch.randn(3)).tolist(), [0, 0, 0]),
    "new": (lambda: torch.randn(3).new_full((LONG,), 4)[-1].item(), 4),
    "written": (lambda: torch.empty(LONG).fill_(3)[2].item(), 3),
    "written again": (lambda: torch.ones(LONG).mul_(3).add_(1)[2].item(), 4),
    "cleared": (lambda: torch.randn(LONG).zero_()[2].item(), 0),
    "positions": (lambda: tuple(torch.ones(LONG).nonzero().shape), (LONG, 1)),
    "no positions": (lambda: tuple(torch.zeros(LONG).nonzero().shape), (0, 1)),
    "rows": (lambda: tuple(torch.randn(LONG, 2)[torch.ones(LONG, dtype=torch.bool)].shape), (LONG, 2)),
    "a part": (lambda: torch.ones(LONG).view(10**4, 10**4).mT[5:15, :10].cumsum(1)[0].tolist(), [*range(1, 11)]),
    "by strides": (lambda: torch.ones(10**4, 10**4).as_strided((100, 5), (7, 3))[5].tolist(), [1.0] * 5),
    "of 64 channels, as they lie": (
        lambda: torch.ones(64, 2048, 1, 1).as_strided((64, 2048), (2048, 1))[3, 4].item(),
        1,
    ),
    "a product of matrices": (
        lambda: bool((torch.zeros(2, 300, 4, 256).transpose(1, 2).reshape(8, 300, 256) == 0).all()),
        True,
    ),
    "positions of a long text": (lambda: torch.arange(10**6)[-1].item(), 10**6 - 1),
    "the lower half of a mask": (lambda: torch.ones(1000, 1000, dtype=torch.bool).tril().sum().item(), 500500),
    "a copy": (lambda: torch.ones(LONG)[5:].clone().contiguous()[0].item(), 1),
}


@pytest.mark.parametrize("name", KNOWN)
def test_what_is_known(name: str) -> None:
    program, expected = KNOWN[name]
    with sa.meta():
        assert program() == program() == expected


def some_written() -> Any:
    mask = torch.ones(LONG, dtype=torch.bool)
    mask[5:] = False
    return mask.all()


def one_written() -> Any:
    mask = torch.ones(LONG, dtype=torch.bool)
    mask[5].fill_(False)
    return mask[0]


def written_by_what_is_not_known() -> Any:
    x = torch.ones(LONG)
    part = x[:10]
    x.add_(torch.randn(LONG))
    return part[0]


def added() -> Any:
    return torch.ones(LONG).cumsum(0)[0]


@pytest.mark.parametrize("program", [some_written, one_written, written_by_what_is_not_known, added])
def test_what_is_not_known(program: Callable[[], Any]) -> None:
    with sa.meta(), pytest.raises(DataDependentError):
        program().item()


def test_a_short_constant_is_written_in_its_parts() -> None:
    with sa.meta():
        flags = torch.ones(6, dtype=torch.bool)
        flags[2:4] = False
        assert flags.tolist() == [True, True, False, False, True, True]
        x = torch.randn(4)
        view = x.view(2, 2)
        view.zero_()
        x.fill_(1)
        assert x.tolist() == [1, 1, 1, 1]


def test_a_fill_is_one_element() -> None:
    assert is_fill(torch.ones(()).expand(3)) and not is_fill(torch.ones(1)) and not is_fill(torch.ones(4))


PARTS_WRITTEN: dict[str, Callable[[torch.Tensor], Any]] = {
    "a row": lambda x: x[3].zero_(),
    "a column": lambda x: x[:, 3].fill_(2),
    "by an index": lambda x: x.index_fill_(1, torch.tensor([2]), 5),
    "a copy": lambda x: x[1:3].copy_(x[0]),
    "by a mask": lambda x: x.masked_fill_(torch.arange(x.shape[1]) > 4, 3),
    "all of it": lambda x: x.add_(torch.arange(x.shape[1])),
    "from a view": lambda x: x.mT[2:].mul_(3),
}


@pytest.mark.every_case
@pytest.mark.parametrize("with_views", [True, False])
@pytest.mark.parametrize("rows", [6, 600])
@pytest.mark.parametrize("name", PARTS_WRITTEN)
def test_views_of_what_is_written_have_it_too(name: str, rows: int, with_views: bool) -> None:
    """Of a tensor filled with one number, at any size."""

    def program() -> Any:
        x = torch.ones(rows, 300)
        views = (x[3], x.mT[3], x.view(2, -1), x[:2].expand(2, 2, 300)) if with_views else ()
        PARTS_WRITTEN[name](x)
        return [torch.stack([y.sum(), y.flatten()[-7:].sum()]).tolist() for y in (x, *views)]

    expected = program()
    with sa.meta():
        assert program() == expected


BATCHES: dict[str, Callable[[torch.Tensor], Any]] = {
    "packed sequences": lambda x: ((x.diff(dim=1, prepend=x[:, :1] - 1) != 1).cumsum(1)[:, -1] == 0).all(),
    "a causal mask": lambda x: (x[:, None, :, None] >= x[:, None, None, :]).sum(),
    "a mask of numbers": lambda x: torch.where(x[:, :, None] >= x[:, None], 0.0, -1.0).amin((1, 2)).sum(),
    "how many in each row": lambda x: (x > 3).sum(-1, keepdim=True).max(),
    "the largest": lambda x: x.max(dim=1).values.min(),
    "where it is": lambda x: x.argmax(-1).sum(),
    "joined": lambda x: torch.cat([x, x + 1], -1)[..., -1].sum(),
    "sorted": lambda x: x.sort(dim=-1, descending=True).values[:, 0].sum(),
    "turned": lambda x: x.flip(1)[:, 0].sum(),
    "gathered": lambda x: x.gather(1, x[:, :2])[:, 1].sum(),
    "rotations": lambda x: (torch.ones(3)[None, :, None].expand(len(x), 3, 1) @ x[:, None].float()).mT[:, -1].sum(),
    "of both": lambda x: (x == x[:1]).all(0).all(),
    "the mean": lambda x: x.double().mean(),
    "the lower half": lambda x: x[:, :, None].expand(-1, -1, x.shape[1]).tril().sum(),
    "as one row": lambda x: x.reshape(-1)[-1],
}


@pytest.mark.every_case
@pytest.mark.parametrize("name", BATCHES)
def test_a_batch_of_one_row_is_known_at_any_size(name: str) -> None:
    program = BATCHES[name]
    for batch, length in ((2, 8), (3, 300), (500, 300)):
        expected = program(torch.arange(length).expand(batch, length)).item()
        with sa.meta():
            assert program(torch.arange(length).expand(batch, length)).item() == expected, (batch, length)


@pytest.mark.parametrize("name", sorted(BATCHES.keys() - {"as one row", "rotations"}))
def test_so_is_one_that_no_machine_holds(name: str) -> None:
    program = BATCHES[name]
    with sa.meta():
        found = program(torch.arange(300).expand(10**9, 300)).item()
        assert found == found


def test_rows_take_no_memory() -> None:
    x = torch.arange(4).expand(3, 4)
    assert has_rows(x) and not has_rows(x.clone()) and not has_rows(torch.ones(4))
