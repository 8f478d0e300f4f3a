"""Which inputs must begin in their storages where those of the traced call do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from subclass_aot import TwoTensor, WrapperTensor, aot_compile, trace_joint
from subclass_aot.engine.signature import Beginning
from subclass_aot.errors import OperatorRuleError, TraceError
from subclass_aot.testing.compare import difference

MEMORY = torch.arange(12.0)


def wrapped() -> TwoTensor:
    return TwoTensor(MEMORY[1:5], MEMORY[2:6])


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        (lambda x, w: x * 2 + w, []),
        (lambda x, w: x.storage_offset() + x[1:].storage_offset(), [(0, "", 3)]),
        (lambda x, w: x.as_strided((2,), (1,), 4) * w.a.storage_offset(), [(0, "", 3), (1, ".a", 1)]),
        (lambda x, w: x * w.b.as_strided((4,), (1,), 2), [(1, ".b", 2)]),
        (lambda x, w: x * w.storage_offset(), [(1, "", 1)]),
        (lambda x, w: x * w[1:].storage_offset(), [(1, "", 1)]),
        (lambda x, w: x * (w * 2).storage_offset(), [(1, "", 1)]),
        (lambda x, w: (x * 2).storage_offset(), []),
    ],
)
def test_what_was_read(program: Callable[..., Any], expected: list[tuple[int, str, int]]) -> None:
    signature = trace_joint(program, MEMORY[3:7], wrapped()).signature
    assert list(signature.assumptions.beginnings) == [Beginning(*each) for each in expected]


def test_what_is_read_in_backward() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z = x * 2
        z.register_hook(lambda gradient: gradient * y.as_strided((4,), (1,), 2))
        return z

    joint = trace_joint(program, torch.ones(4, requires_grad=True), MEMORY[1:7])
    assert joint.signature.assumptions.beginnings == (Beginning(1, "", 1),)
    with pytest.raises(TraceError, match="out of the memory"):
        trace_joint(program, torch.ones(4, requires_grad=True), MEMORY[3:7])


def test_a_tangent_is_no_input() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        z = x * 2
        z.register_hook(lambda gradient: gradient.as_strided((4,), (1,), 0) * 2)
        return z

    joint = trace_joint(program, torch.ones(4, requires_grad=True))
    assert joint.signature.assumptions.beginnings == ()


class Scaled(WrapperTensor, views="broadcast"):
    """Codes and a scale for each row: a view across rows is read through the whole."""

    codes: torch.Tensor
    scale: torch.Tensor

    def to_plain(self) -> torch.Tensor:
        return self.codes * self.scale


COUNTED: dict[str, Callable[[Any], Any]] = {
    "read": lambda x: x.as_strided((3,), (1,), 1) * 1,
    "by keyword": lambda x: torch.as_strided(x, size=(3,), stride=(1,), storage_offset=1) * 1,
    "by the operator": lambda x: torch.ops.aten.as_strided.default(x, [3], [1], 1) * 1,
    "of a view": lambda x: x.transpose(0, 1).as_strided((3,), (1,), 1) * 1,
    "of a result": lambda x: x.clone().as_strided((3,), (1,), 1) * 1,
    "returned": lambda x: x.as_strided((3,), (1,), 1),
    "a copy": lambda x: torch.as_strided_copy(x, (3,), (1,), 1),
    "scattered": lambda x: torch.as_strided_scatter(x, torch.zeros(3), (3,), (1,), 1),
    "scattered, a method": lambda x: x.as_strided_scatter(torch.zeros(3), (3,), (1,), storage_offset=1),
    "from where it begins": lambda x: x.as_strided((2,), (1,)) * 1,
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", COUNTED)
def test_a_view_of_a_wrapper_counts_from_where_its_memory_begins(name: str, dynamic: bool | None) -> None:
    def outcome(function: Callable[[Any], Any], begin: int) -> Any:
        x = Scaled(MEMORY.as_strided((3, 2), (2, 1), begin), torch.tensor([[1.0], [2.0], [3.0]]))
        try:
            result = function(x)
        except (OperatorRuleError, RuntimeError) as error:
            return type(error)
        return (result.to_plain() if isinstance(result, WrapperTensor) else result).tolist()

    compiled = aot_compile(COUNTED[name], dynamic=dynamic)
    for begin in (0, 1, 3, 0, 1):
        assert outcome(compiled, begin) == outcome(COUNTED[name], begin)


@pytest.mark.parametrize("result", [lambda x: x, lambda x: x * 2])
def test_one_that_nobody_reads_is_refused_as_in_eager_mode(result: Callable[[Any], Any]) -> None:
    def program(x: Any) -> Any:
        x.as_strided((2,), (1,), 1)
        return result(x)

    compiled = aot_compile(program)
    compiled(Scaled(MEMORY[:6].view(3, 2), torch.ones(3, 1)))
    with pytest.raises(OperatorRuleError, match="it reaches elements that"):
        compiled(Scaled(MEMORY[3:9].view(3, 2), torch.ones(3, 1)))


def _of_detached(y: torch.Tensor) -> torch.Tensor:
    """Autograd knows the slice as the base, and that begins elsewhere than its memory."""
    rows = y.detach()[1:]
    rows.as_strided((2,), (1,), rows.storage_offset() + 1).mul_(y.flatten()[:2])
    return rows


WRITES: dict[str, Callable[[torch.Tensor], Any]] = {
    "a diagonal of rows": lambda y: y[1:].fill_diagonal_(3),
    "a diagonal of columns": lambda y: y[:, 1:].fill_diagonal_(3),
    "a diagonal of a transpose": lambda y: y.t()[1:].fill_diagonal_(3),
    "a diagonal of both": lambda y: y[1:, 1:].fill_diagonal_(3),
    "of the whole": lambda y: y.as_strided((2,), (1,), y.storage_offset() + 4).mul_(5),
    "of rows": lambda y: y[1:].as_strided((2,), (2,), y[1:].storage_offset() + 1).mul_(5),
    "before the rows": lambda y: y[2:].as_strided((2,), (2,), y[2:].storage_offset() - 3).mul_(5),
    "from where rows begin": lambda y: y[1:].as_strided((2,), (2,)).mul_(5),
    "two diagonals": lambda y: (y[1:].fill_diagonal_(2), y[2:].fill_diagonal_(3)),
    "a sum": lambda y: y[1:].as_strided((1,), (1,), y[1:].storage_offset()).copy_(y.sum().reshape(1)),
    "a detached slice": _of_detached,
}


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("kind", ["dense", "wrapper", "nested"])
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("is_input", [False, True])
def test_gradients_of_written_places(name: str, kind: str, dynamic: bool | None, is_input: bool) -> None:
    """A view that counts from where a storage begins is regenerated of a gradient, which has a storage of its own."""

    def program(x: torch.Tensor) -> Any:
        y = x if is_input else x * 1
        written = WRITES[name](y)
        return written if name == "a detached slice" else y * 2

    def made(begin: int) -> Any:
        def dense(more: float = 0) -> torch.Tensor:
            return (torch.arange(1.0 + begin + 16)[begin : begin + 16] + more).view(4, 4)

        if kind == "dense":
            return dense()
        first = TwoTensor(dense(), dense(0.5))
        return first if kind == "wrapper" else TwoTensor(first, TwoTensor(dense(0.25), dense(0.75)))

    compiled = aot_compile(program, dynamic=dynamic)
    for begin in (0, 3, 0):
        found = []
        for function in (program, compiled):
            x = made(begin).requires_grad_()
            result = function(x.view_as(x) if not is_input else x * 1)
            (gradient,) = torch.autograd.grad(result, x, torch.ones_like(result), allow_unused=True)
            found.append((result.detach(), gradient))
        for expected, got in zip(*found, strict=True):
            assert (expected is None) == (got is None)
            assert expected is None or not difference(expected, got)
