"""Operators whose schema does not tell what they do: what they are instead does the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import subclass_aot as sa
from subclass_aot import MetaTensor
from subclass_aot.errors import TraceError
from subclass_aot.meta.rules.forms import form_of

aten = torch.ops.aten


def test_most_operators_have_no_other_form() -> None:
    assert form_of(aten.add.Tensor) is None and form_of(aten.index.Tensor) is not None


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("statistics", [True, False])
def test_batch_norm_writes_the_statistics_that_it_writes(training: bool, statistics: bool) -> None:
    x, mean, var = torch.randn(4, 3), torch.zeros(3), torch.ones(3)
    if not statistics and not training:
        return  # the operator refuses it
    found = []
    for function in (aten.native_batch_norm.default, form_of(aten.native_batch_norm.default)):
        own = (mean.clone(), var.clone()) if statistics else (None, None)
        assert function is not None
        found.append([*function(x, None, None, *own, training, 0.1, 1e-5)[:1], *own])
    for a, b in zip(*found, strict=True):
        assert (a is None) is (b is None)
        assert a is None or torch.equal(a, b)


def test_batch_norm_of_one_dimension_is_refused_as_by_the_kernel() -> None:
    form = form_of(aten.native_batch_norm.default)
    assert form is not None
    for make in (torch.ones, lambda size: MetaTensor(torch.ones(size))):
        with pytest.raises(IndexError, match="Dimension out of range"):
            form(make(3), None, None, make(3), make(3), False, 0.1, 1e-5)


EQUAL: list[Any] = [
    (torch.ones(2), torch.ones(2)),
    (torch.ones(2), torch.tensor([1.0, 2.0])),
    (torch.ones(2), torch.ones(1, 2)),
    (torch.tensor([float("nan")]), torch.tensor([float("nan")])),
    (torch.ones(0), torch.ones(0)),
]


@pytest.mark.parametrize(("x", "y"), EQUAL)
def test_equal_is_what_it_is(x: torch.Tensor, y: torch.Tensor) -> None:
    form = form_of(aten.equal.default)
    assert form is not None and form(x, y) is torch.equal(x, y)


@pytest.mark.parametrize("options", [(), (0.5,), (0.0, 2.0), (0.0, 0.0, True)])
def test_allclose_is_what_it_is(options: Any) -> None:
    x, form = torch.tensor([1.0, float("nan")]), form_of(aten.allclose.default)
    assert form is not None
    for y in (x, x + 1e-7, x + 1, x.nan_to_num()):
        assert form(x, y, *options) is torch.allclose(x, y, *options)


@pytest.mark.parametrize(
    "select",
    [
        lambda x, mask: x[mask],
        lambda x, mask: x[:, mask[0]],
        lambda x, mask: x[mask[:, 0], 1:],
        lambda x, mask: x.masked_select(mask),
        lambda x, mask: x.masked_select(mask[0]),
        lambda x, mask: x[0, 0].masked_select(mask[0, 0]),
    ],
)
def test_a_mask_whose_values_are_known_stands_for_positions(select: Any) -> None:
    def program() -> torch.Tensor:
        mask = torch.tensor([[True, False, True], [False, True, True]])
        return select(torch.arange(6.0).view(2, 3), mask)

    with sa.meta():
        found = program()
    assert type(found) is MetaTensor and found.shape == program().shape


def test_positions_select_what_the_mask_selects() -> None:
    x, mask = torch.arange(6).view(2, 3), torch.tensor([[True, False, True], [False, True, True]])
    index, select = form_of(aten.index.Tensor), form_of(aten.masked_select.default)
    assert index is not None and select is not None
    assert torch.equal(index(x, [mask]), x[mask]) and torch.equal(index(x, [None, mask[0]]), x[:, mask[0]])
    assert index(x, [torch.tensor([0])]) is NotImplemented  # no mask
    assert torch.equal(select(x, mask[0]), x.masked_select(mask[0]))
    assert torch.equal(select(torch.tensor(3), torch.tensor(True)), torch.tensor([3]))


def test_conjugation_is_computed() -> None:
    form = form_of(aten._conj.default)
    assert form is not None
    x = torch.tensor([1 + 2j])
    assert not form(x).is_conj() and torch.equal(form(x), x.conj().resolve_conj())
    assert form(1 + 2j).item() == 1 - 2j


def test_nested_tensors_with_strides_are_refused_by_name() -> None:
    with sa.meta(), pytest.raises(TraceError, match="Your line:  /"):
        torch.nested.nested_tensor([torch.ones(1), torch.ones(2)])


@pytest.mark.parametrize("n", [0, 1, 2])
def test_polygamma_in_place_is_compiled(n: int) -> None:
    x = torch.rand(3) + 1
    expected = torch.polygamma(n, x)

    def write(x: torch.Tensor) -> torch.Tensor:
        return x.polygamma_(n) * 1

    given = x.clone()
    torch.testing.assert_close(sa.aot_compile(write)(given), expected)
    torch.testing.assert_close(given, expected)
    inside = sa.aot_compile(lambda x: x.clone().polygamma_(n))
    torch.testing.assert_close(inside(x), expected)


def put(values: Any) -> Any:
    def program(mask: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        x = x.clone()
        x[mask] = values
        return x * 2

    return program


BYTES: dict[str, Any] = {
    "where": lambda mask, x: torch.where(mask, x.exp(), x + 1),
    "a number": lambda mask, x: torch.where(mask, x.exp(), 2.0),
    "positions": lambda mask, x: torch.where(mask)[0] + x[0],
    "an index": lambda mask, x: x[mask] * 2,
    "an index of rows": lambda mask, x: torch.stack([x, x])[:, mask] * 2,
    "a write of several": put(torch.tensor([3.0, 4.0])),
    "a write of one": put(3.0),  # which eager mode refuses
    "index_put": lambda mask, x: x.index_put((mask,), torch.tensor([3.0, 4.0]), accumulate=True),
}


@pytest.mark.filterwarnings("ignore:.*uint8")
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", BYTES)
def test_bytes_are_masks_as_they_are_for_kernels(name: str, dynamic: bool | None) -> None:
    program = BYTES[name]
    compiled = sa.aot_compile(program, dynamic=dynamic)
    for mask in ([1, 0, 1], [0, 1, 1], [1, 0, 0, 1]):
        given, x = torch.tensor(mask, dtype=torch.uint8), torch.arange(float(len(mask)), requires_grad=True)
        try:
            expected = program(given, x)
        except RuntimeError:
            with pytest.raises(RuntimeError):
                compiled(given, x)
            continue
        found = compiled(given, x)
        torch.testing.assert_close(found, expected)
        one, other = (torch.autograd.grad(y.sum(), x)[0] for y in (found, expected))
        torch.testing.assert_close(one, other)
