"""Writes into expanded tensors, where eager allows them, give each place in memory its value once."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from subclass_aot import aot_compile
from subclass_aot.errors import MutationError

WRITES = {
    "fill_": lambda x: x.fill_(2.5),
    "zero_": lambda x: x.zero_(),
    "a row": lambda x: x[0].mul_(2),
    "a part of a row": lambda x: x[1, 1:].add_(1),
    "all of a row": lambda x: x[:1].fill_(3),
    "some rows": lambda x: x[1:].fill_(3),
    "by name": lambda x: torch.nn.init.constant_(x, 1.5),
}


@pytest.mark.unfit(affine="its rows alone are of its class", pair="its rows alone are of its class")
@pytest.mark.inductor("two")
@pytest.mark.parametrize("write", list(WRITES))
def test_an_expanded_input(agree: Any, kind: Any, write: str) -> None:
    def program(x: Any, y: Any) -> Any:
        before = x * 1
        WRITES[write](x)
        return before, x * 2, y + 1, x.sum(0), x

    def make() -> Any:
        y = kind(2, 3)
        return y[1].expand(2, 3), y

    agree(program, make)


@pytest.mark.unfit(affine="its rows alone are of its class", pair="its rows alone are of its class")
@pytest.mark.parametrize("write", list(WRITES))
def test_an_expanded_input_alone(agree: Any, kind: Any, write: str) -> None:
    def program(x: Any) -> Any:
        WRITES[write](x)
        return x * 2

    agree(program, lambda: (kind(1, 3).expand(2, 3).detach(),))


@pytest.mark.unfit(affine="its rows alone are of its class", pair="its rows alone are of its class")
@pytest.mark.parametrize("write", list(WRITES))
def test_an_expanded_intermediate(agree: Any, kind: Any, write: str) -> None:
    def program(x: Any) -> Any:
        y = x * 1
        z = y[:1].expand(2, 3)
        WRITES[write](z)
        return y, z * 2

    agree(program, lambda: (kind(2, 3),))


@pytest.mark.parametrize("write", ["a row", "a part of a row"])
def test_with_gradients(write: str) -> None:
    def program(x: Any) -> Any:
        WRITES[write](x)
        return x * x

    def gradient(function: Any) -> Any:
        root = torch.arange(3.0).requires_grad_()
        x = (root * 1).expand(2, 3)
        out = function(x)
        return out, x, torch.autograd.grad(out.sum() + (x * x).sum(), root)

    torch.testing.assert_close(gradient(aot_compile(program)), gradient(program))


def test_gradients_of_a_fill_as_in_eager() -> None:
    """Autograd's own gradient of it writes into an expanded tensor, which eager refuses."""

    def program(x: Any) -> Any:
        x.fill_(2.0)
        return x * x

    def expanded() -> Any:
        return (torch.ones(3, requires_grad=True) * 1).expand(2, 3)

    with pytest.raises(RuntimeError, match="single memory location"):
        program(expanded()).sum().backward()
    with pytest.raises(MutationError, match="several elements are one place"):
        aot_compile(program)(expanded())


@pytest.mark.filterwarnings("ignore:Use of masked_fill_")
def test_a_mask_of_any_of_them(agree: Any) -> None:
    def program(x: Any, mask: Any) -> Any:
        x.masked_fill_(mask, 5.0)
        return x * 1

    agree(program, lambda: (torch.arange(3.0).expand(2, 3), torch.tensor([[True, False, False], [False, False, True]])))


def test_where_it_begins_is_part_of_the_signature() -> None:
    def program(x: Any) -> Any:
        x.fill_(7.0)
        return x * 1

    compiled = aot_compile(program)
    for row, size in ((1, 4), (2, 4), (1, 4), (1, 5), (3, 5)):
        whole = torch.zeros(size, 3)
        assert compiled(whole[row].expand(2, 3)).eq(7).all()
        assert whole[row].eq(7).all() and whole.sum() == 21
    assert len(compiled.recompiles) == 3


def test_a_write_that_autograd_sees_into_a_root() -> None:
    def program(x: Any, w: Any) -> Any:
        x[0].mul_(w)
        return x * 1

    with pytest.raises(MutationError, match=r"Elements of args\[0\]"):
        aot_compile(program)(torch.ones(3).expand(2, 3).detach(), torch.ones(3, requires_grad=True))
