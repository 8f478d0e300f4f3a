"""`x.data = y` in a compiled function: the tensor gets the memory, size and dtype, and stays the same object."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from subclass_aot import TwoTensor, aot_compile
from subclass_aot.errors import MutationError
from subclass_aot.testing import check_compiled


def counted(size: int = 3, dtype: torch.dtype = torch.float32, grad: bool = False) -> torch.Tensor:
    return (torch.arange(size) + 1.0).to(dtype).requires_grad_(grad)


def doubles(x: Any, y: Any) -> Any:
    x.data = y * 2
    return x + 1


def shares(x: Any, y: Any) -> Any:
    x.data = y.data
    return x + 1


def shares_and_writes(x: Any, y: Any) -> Any:
    x.data = y.data
    x.add_(1)
    return x.sum() + y


def exchanges(x: Any, y: Any) -> Any:
    x.data, y.data = y.data, x.data
    return x.sum() - y


def casts(x: Any, y: Any) -> Any:
    x.data = x.data.to(torch.float64)
    return x * y


def writes_before(x: Any, y: Any) -> Any:
    x.add_(1)
    x.data = x * y
    return x + 1


def writes_after(x: Any, y: Any) -> Any:
    x.data = y * 2
    x.data.mul_(2)
    x.mul_(3)
    return x + 1


def a_part(x: Any, y: Any) -> Any:
    x.data = y[1:]
    return x * 2


def a_part_of_itself(x: Any, y: Any) -> Any:
    x.data = x.data[1:]
    return x * 2


def returns_it(x: Any, y: Any) -> Any:
    x.data = y * 2
    return x


def returns_both(x: Any, y: Any) -> Any:
    x.data = made = y * 2
    return made


def a_constant(x: Any, y: Any) -> Any:
    x.data = torch.ones(5)
    return x + 1


def no_input(x: Any, y: Any) -> Any:
    z = x * 1
    z.data = y * 2
    return z + 1


PROGRAMS = [
    doubles, shares, shares_and_writes, exchanges, casts, writes_before, writes_after, a_part, a_part_of_itself,
    returns_it, returns_both, a_constant, no_input,
]  # fmt: skip


def seen(program: Callable[..., Any], x: Any, y: Any) -> list[Any]:
    """What a call gives, what its arguments are afterwards, and who shares memory with whom."""
    others, versions = x.clone().detach(), (x._version, y._version)
    result = program(x, y)
    pairs = [(x, y), (x, result), (y, result)]
    shared = [a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr() for a, b in pairs]
    moved = [x._version - versions[0], y._version - versions[1]]
    return [
        (t.detach().tolist(), t.dtype, t.stride(), t.storage_offset(), t.requires_grad) for t in (result, x, y, others)
    ] + [shared, moved, result is x]


@pytest.mark.parametrize("other", [{}, {"size": 3, "dtype": torch.float64}])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_as_in_eager_mode(program: Callable[..., Any], other: dict[str, Any]) -> None:
    compiled = aot_compile(program)
    for _ in range(2):
        assert seen(compiled, counted(), counted(**other)) == seen(program, counted(), counted(**other))
    assert not compiled.recompiles


class Own(torch.Tensor):
    """Sees functions of torch."""


class OwnParameter(nn.Parameter):
    """Sees none, as every parameter."""


def of(cls: type | None, *args: Any, **kwargs: Any) -> Any:
    """Makes a tensor of a class; of none, a dense one."""
    values, wants_grad = counted(*args, **kwargs), kwargs.get("grad", False)
    if cls is None:
        return values
    made = values.detach().as_subclass(Own) if cls is Own else OwnParameter(values.detach(), requires_grad=False)
    return made.requires_grad_(wants_grad)


CLASSES: list[tuple[type | None, type | None]] = [
    (Own, None), (Own, Own), (None, Own), (OwnParameter, None), (OwnParameter, OwnParameter), (None, OwnParameter),
]  # fmt: skip


@pytest.mark.parametrize("other", [{}, {"size": 3, "dtype": torch.float64}])
@pytest.mark.parametrize("classes", CLASSES)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_plain_subclasses(program: Callable[..., Any], classes: Any, other: dict[str, Any]) -> None:
    compiled = aot_compile(program)
    for _ in range(2):
        found, expected = (seen(run, of(classes[0]), of(classes[1], **other)) for run in (compiled, program))
        assert found == expected
    assert not compiled.recompiles


@pytest.mark.usefixtures("fresh_dynamo")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_parameters_of_a_class_behind_dynamo(program: Callable[..., Any]) -> None:
    compiled = torch.compile(program, backend="subclass_aot")
    for _ in range(2):
        found, expected = (seen(run, of(OwnParameter), of(OwnParameter)) for run in (compiled, program))
        assert found == expected


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("program", [doubles, shares, a_part, exchanges], ids=lambda program: program.__name__)
def test_sizes_that_change(program: Callable[..., Any], dynamic: bool | None) -> None:
    compiled = aot_compile(program, dynamic=dynamic)
    for size in (4, 5, 6):
        assert seen(compiled, counted(), counted(size)) == seen(program, counted(), counted(size))


def test_what_was_there_is_left_as_it_is() -> None:
    x = counted()
    whole = x.data
    aot_compile(doubles)(x, counted(4))
    assert whole.tolist() == [1, 2, 3] and x.tolist() == [2, 4, 6, 8]


class InBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, y: Any) -> Any:
        ctx.held = y
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:  # type: ignore[override]
        ctx.held.data = gradient
        return gradient, None


def turned(x: Any, y: Any) -> Any:
    x.data = y
    return x.unsqueeze_(0)


REFUSED: dict[str, tuple[Callable[[Any, Any], Any], Callable[[], Any], str]] = {
    "a view": (lambda x, y: (shares(x, y), x[:2])[1], counted, "returns a view of it"),
    "turned": (turned, counted, "changes its sizes or strides in place as well"),
    "a history": (doubles, lambda: counted(grad=True) * 1, "has a history of autograd's"),
    "a history of a class": (doubles, lambda: of(Own, grad=True) * 1, "has a history of autograd's"),
    "in backward": (lambda x, y: InBackward.apply(x, y), lambda: counted(grad=True), "while gradients are computed"),
    "an inner tensor": (
        lambda x, y: shares(x.a, y),
        lambda: TwoTensor(counted(), counted()),
        "no dense tensor of its own",
    ),
    "a wrapper": (lambda x, y: shares(x, TwoTensor(y, y)), counted, "the TwoTensor that is assigned is no dense"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_name(name: str) -> None:
    program, make, reason = REFUSED[name]
    x = make()
    with pytest.raises(MutationError, match=reason):
        aot_compile(program, values="refuse")(x, counted(4))
    assert x.shape == (3,)


def doubled(x: Any) -> Any:
    x.data = x.data * 2
    return x


READING: list[Callable[[Any, Any], Any]] = [
    lambda x, y: (doubled(x).sin(), x.cos()) if y.sum() > 0 else x,
    lambda x, y: [float(doubled(x).detach().sum()), float(x.detach().exp().sum()), x * 1],
    lambda x, y: [doubled(x)[y > 0], x[y > 0.5], x.sin()],
    lambda x, y: [torch.where(doubled(x) > 0.5), torch.where(x.t() > 0.5), x * 2],
    lambda x, y: [doubled(doubled(x))[y > 0], doubled(x).nonzero(), x[y > 0]],
    lambda x, y: [setattr(x, "data", x), x.t().nonzero(), x.t().nonzero(), x * 1][1:],
]


@pytest.mark.parametrize("program", range(len(READING)))
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("dynamic", [None, True])
def test_values_are_read_after_an_assignment_and_once_more(program: int, grad: bool, dynamic: bool | None) -> None:
    def function(x: Any, y: Any) -> Any:
        results = READING[program](x, y)
        return [r for r in results if isinstance(r, torch.Tensor)], bool(x.sum() > 0), x.sum()

    given = [torch.rand(2, 2, requires_grad=grad), torch.rand(2, 2)]
    check_compiled(function, (given[0], given[1]), tries=0, dynamic=dynamic)
