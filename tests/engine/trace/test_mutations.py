"""What a traced function did to its inputs, as the signature says it, and what no graph can do to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from subclass_aot import TwoTensor, WrapperTensor, trace_joint
from subclass_aot.engine.signature import InputMutation, Mutations
from subclass_aot.errors import MutationError


def two(*size: int) -> TwoTensor:
    return TwoTensor(torch.rand(size), torch.rand(size))


def mutations_of(fn: Callable[..., Any], *args: Any) -> Mutations:
    return trace_joint(fn, *args).signature.mutations


class Noted(WrapperTensor, fallback="each"):
    """A wrapper with a context."""

    values: torch.Tensor
    note: str = "none"


class WritesInBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
        ctx.count = count
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        ctx.count.add_(1)
        return gradient * 2, None


def writes_in_backward(x: Any, count: Any) -> Any:
    return WritesInBackward.apply(x, count)  # type: ignore[no-untyped-call]


def test_who_only_reads_mutates_nothing() -> None:
    assert mutations_of(lambda x: x * 2, two(3)) == Mutations()


def test_what_autograd_does_not_see_is_written_leaf_by_leaf() -> None:
    def program(x: Any, y: Any) -> None:
        x.b.mul_(2)
        y.add_(1)

    found = mutations_of(program, two(3), torch.rand(3))
    assert found == Mutations(
        (
            InputMutation(0, mutated_leaves=(1,), version_bumps=(".b",)),
            InputMutation(1, mutated_leaves=(2,), version_bumps=("",)),
        )
    )
    assert found.in_graph == (1, 2) and found.mutates_data and found.moves_versions


def test_what_autograd_sees_is_written_whole() -> None:
    def program(x: Any, y: Any) -> None:
        x.mul_(2)
        with torch.no_grad():
            y.mul_(2)

    found = mutations_of(program, two(3).requires_grad_() * 1, two(3).requires_grad_() * 1)
    ((position, value),) = found.under_autograd.items()
    assert position == 0 and [str(part) for part in value.leaves] == [
        f"new value of args[0], seen by autograd.{x}" for x in "ab"
    ]
    first, second = found.of_inputs
    assert first.mutated_leaves == (0, 1) and found.in_graph == second.mutated_leaves == (2, 3)
    assert not first.version_bumps and second.version_bumps == ("",), "`copy_` counts by itself"


def test_parts_of_one_storage_that_autograd_sees_written_count_together() -> None:
    def program(x: Any, y: Any, z: Any) -> Any:
        x.mul_(2)
        z.mul_(2)
        return y

    base, other = torch.rand(4, requires_grad=True) * 1, torch.rand(2, requires_grad=True) * 1
    found = mutations_of(program, base[:2], base[2:], other)
    assert [*found.under_autograd] == [0, 2] and [m.shares_version_counter for m in found.of_inputs] == [True, False]


def test_overlapping_leaves_are_written_through_their_base() -> None:
    base = torch.rand(4)
    found = mutations_of(lambda x, y: x.mul_(2), base[:3], base[1:])
    (together,) = found.bases
    assert together.slots == (0, 1) and found.of_inputs[0].mutated_leaves == (0,) and not found.in_graph
    apart = mutations_of(lambda x, y: x.mul_(2), base[:2], base[2:])
    assert not apart.bases and apart.in_graph == (0,)


def test_what_an_input_looks_like_is_changed_in_order() -> None:
    found = mutations_of(lambda x, y: (y.t_(), y.unsqueeze_(0)), torch.rand(2), torch.rand(2, 3))
    ((position, steps),) = found.of_metadata.items()
    assert position == 1 and [(str(m.step.operator), m.step.args) for m in steps] == [
        ("aten.t_.default", ()),
        ("aten.unsqueeze_.default", (0,)),
    ]
    assert not found.mutates_data and found.moves_versions


def test_inputs_that_begin_to_require_grad() -> None:
    requires = torch.rand(2, requires_grad=True)
    found = mutations_of(
        lambda x, y, z: (y.requires_grad_(), z.requires_grad_()), requires, torch.rand(2), requires * 1
    )
    assert found == Mutations((InputMutation(1, requires_grad_mutation=True),)) and not found.moves_versions


def test_what_backward_writes_is_not_written_by_forward() -> None:
    found = mutations_of(writes_in_backward, torch.rand(3, requires_grad=True), torch.zeros(3))
    assert found == Mutations((InputMutation(1, mutated_in_backward=(1,)),)) and found.in_backward == (1,)
    assert not found.mutates_data


def test_memory_and_contexts_of_inputs_are_mutations_of_these() -> None:
    def program(x: Any, w: Any) -> None:
        x.data = x.data * 2
        w.note = "another"

    wrapper = Noted(torch.rand(2))
    first, second = mutations_of(program, torch.rand(3), wrapper).of_inputs
    assert (first.input, first.assigned_data, first.mutates_context) == (0, 0, False)
    assert second == InputMutation(1, mutates_context=True)


def _other_inner_tensor(x: Any) -> None:
    x.a = x.a * 2


def _inner_gradient(x: Any, w: Any) -> None:
    x.a.mul_(w)


def _shared() -> tuple[Any, Any]:
    inner = torch.rand(2, 3)
    return TwoTensor(inner, torch.rand(2, 3)), TwoTensor(torch.rand(2, 3), inner)


def _overlapping() -> tuple[Any, ...]:
    base = torch.zeros(4)
    return torch.rand(3, requires_grad=True), base[:3], base[1:]


def _both(x: Any, count: Any, other: Any) -> Any:
    other.mul_(2)
    return writes_in_backward(x, count)


REFUSED: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Any, ...]], str]] = {
    "requires_grad is switched off": (
        lambda x: x.requires_grad_(False),
        lambda: (torch.rand(3, requires_grad=True),),
        r"args\[0\]: the function sets requires_grad of this input to False",
    ),
    "a hook": (
        lambda x: x.register_hook(lambda g: g) and x * 2,
        lambda: (torch.rand(3, requires_grad=True),),
        r"args\[0\]: the function registers a gradient hook",
    ),
    "another inner tensor": (_other_inner_tensor, lambda: (two(3),), r"args\[0\].a: the function put another tensor"),
    "an inner tensor with gradients": (
        _inner_gradient,
        lambda: (two(3), torch.rand(3, requires_grad=True)),
        r"args\[0\].a is an inner tensor, and the function writes into it what requires grad",
    ),
    "an inner tensor is turned": (lambda x: x.a.t_(), lambda: (two(2, 3),), r"args\[0\].a has another size, stride"),
    "another input has it, too": (lambda x, y: x.t_(), _shared, r"args\[0\].a and args\[1\].b are one tensor"),
    "forward writes there, too": (_both, _overlapping, r"args\[1\] is written while gradients are computed"),
    "a view of what is turned": (lambda x: (x[0], x.t_())[0], lambda: (two(2, 3),), "cannot be regenerated"),
}


@pytest.mark.parametrize("program, args, message", REFUSED.values(), ids=REFUSED)
def test_what_no_graph_can_do_is_refused_by_name(program: Any, args: Any, message: str) -> None:
    with pytest.raises(MutationError, match=message):
        trace_joint(program, *args())
