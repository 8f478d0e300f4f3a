"""What is known once the function has run."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from subclass_aot import TwoTensor
from subclass_aot.engine.descriptors import Number
from subclass_aot.engine.sizes import DynamicSizes
from subclass_aot.engine.trace.forward import Forward
from subclass_aot.errors import TraceError
from tests.constants import out_of_sight
from tests.engine.trace.stages import forward_of


def two(*size: int) -> TwoTensor:
    return TwoTensor(torch.rand(size), torch.rand(size))


def leaf() -> torch.Tensor:
    return torch.rand(3, requires_grad=True)


def expected(forward: Forward) -> list[str]:
    """The results that gradients may come in for."""
    return [] if forward.tangents is None else list(map(str, forward.tangents.outputs))


def test_every_computed_leaf_has_a_node_under_the_name_of_its_place() -> None:
    forward = forward_of(lambda x, y: (x * 2, y, y.sin()), two(3), torch.rand(3))
    nodes = {str(desc): node.target for desc, node in forward.nodes.items()}
    aten = torch.ops.aten
    assert nodes == {"output[0].a": aten.mul.Tensor, "output[0].b": aten.mul.Tensor, "output[2]": aten.sin.default}
    assert len(forward.outputs) == 3


def test_gradients_may_come_in_for_what_autograd_goes_through() -> None:
    def program(x: Any, w: Any) -> Any:
        middle = x * w
        x.mul_(w)
        return x.detach() * 2, middle[0], middle[1:], w * 2, w, w > 1

    forward = forward_of(program, torch.rand(3), leaf())
    assert expected(forward) == [
        "new value of args[0], seen by autograd",
        "output[3]",
        "the tensor that output[1] and others are views of",
    ]
    assert len(forward.intermediate_bases) == 1


def test_nobody_waits_for_gradients_that_nothing_wants() -> None:
    assert forward_of(lambda x: x * 2, torch.rand(3)).tangents is None
    assert forward_of(lambda x: x * 2, leaf(), inference=True).tangents is None
    with torch.no_grad():
        assert forward_of(lambda x: x * 2, leaf()).tangents is None
    assert expected(forward_of(lambda x: x * 2, leaf())) == ["output[0]"]


def test_a_leaf_that_the_function_makes_wants_gradients() -> None:
    def program(x: Any) -> Any:
        made = (x * 2).requires_grad_()
        return made, made * 3

    forward = forward_of(program, torch.rand(3))
    assert [str(desc) for desc in forward.made_leaves] == ["output[0]"] and "output[1]" in expected(forward)


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("after", [True, False])
def test_whether_autograd_was_on_before_and_after(before: bool, after: bool) -> None:
    def program(x: Any) -> Any:
        torch.set_grad_enabled(after)
        return x * 2

    with torch.set_grad_enabled(before):
        assert forward_of(program, leaf()).grad_modes == (before, after)


def test_a_wrapper_that_is_no_input_and_requires_grad_is_refused() -> None:
    place = out_of_sight(two(3).requires_grad_())
    with pytest.raises(TraceError, match=r"depends on a TwoTensor of shape \[3\] that requires grad"):
        forward_of(lambda x: x * place.kept, torch.rand(3))
    assert expected(forward_of(lambda x: x * place.kept.detach(), leaf())) == ["output[0]"]


def test_numbers_that_the_call_needs_are_among_the_results() -> None:
    """Zeros for a gradient that does not come have a size, and a view of what was computed is made again."""

    def numbers(fn: Any, x: torch.Tensor) -> list[Any]:
        forward = forward_of(fn, x, dynamic=DynamicSizes({"args[0]": {0}}))
        return [desc for desc in forward.nodes if isinstance(desc, Number)]

    assert len(numbers(lambda x: x * 2, leaf())) == 1
    assert not numbers(lambda x: x * 2, torch.rand(3))
    assert len(numbers(lambda x: x[: x.shape[0] - 1], torch.rand(3))) >= 1
