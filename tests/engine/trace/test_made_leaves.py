"""Leaves that a function makes: which of them it gives out, and how the signature describes them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from subclass_aot import TwoTensor, trace_joint
from subclass_aot.engine.descriptors import descriptor_of
from subclass_aot.engine.signature import MadeLeaf
from subclass_aot.errors import MutationError


def leaves_of(fn: Any, *args: Any) -> dict[str, MadeLeaf]:
    return {str(leaf.output): leaf for leaf in trace_joint(fn, *args).signature.made_leaves}


def test_computed_ones_views_and_what_several_results_are_views_of() -> None:
    def program(a: Any) -> Any:
        computed, view, base = (a * 2).requires_grad_(), a[0].requires_grad_(), (a * 3).requires_grad_()
        return computed, view, base[0], base[1], base * computed

    found = leaves_of(program, torch.rand(2, 3))
    behind = "the tensor that output[2] and others are views of"
    gradients = {output: leaf.gradient is not None for output, leaf in found.items()}
    assert gradients == {"output[0]": True, "output[1]": False, behind: True}


def test_a_leaf_that_is_not_given_out_is_none_of_them() -> None:
    assert not leaves_of(lambda a: (a[0].requires_grad_() * 2).detach(), torch.rand(2, 3))
    assert not leaves_of(lambda a: a.requires_grad_(), torch.rand(2)), "an input begins to require grad"


def test_a_parameter_and_a_wrapper_say_so() -> None:
    found = leaves_of(
        lambda a, w: (torch.nn.Parameter(a * 2), w.detach().requires_grad_()),
        torch.rand(2),
        TwoTensor(torch.rand(2), torch.rand(2)).requires_grad_(),
    )
    assert [leaf.is_parameter for leaf in found.values()] == [True, False]
    assert "TwoTensor" in str(found["output[1]"].meta)


def test_a_gradient_says_which_results_it_comes_from() -> None:
    def program(a: Any, w: Any) -> Any:
        leaf = a[0].requires_grad_()
        return leaf, leaf * leaf * w, w * 2

    joint = trace_joint(program, torch.rand(2, 3), torch.rand(3, requires_grad=True))
    (leaf,) = joint.signature.made_leaves
    assert [str(joint.signature.tangents[i].output) for i in leaf.reach] == ["output[1]"]
    outputs = [str(desc) for desc in descriptor_of(joint.graph_module.graph.output_node())]
    assert "gradient of output[0]" in outputs and "gradient of args[1]" in outputs


def test_one_that_the_function_uses_as_a_leaf_is_refused() -> None:
    def goes_backward(a: Any) -> Any:
        leaf = a.detach().requires_grad_()
        (leaf * leaf).sum().backward()
        return leaf

    def hooks(a: Any) -> Any:
        leaf = a[0].requires_grad_()
        leaf.register_hook(lambda gradient: gradient * 2)
        return leaf

    for program in (goes_backward, hooks):
        with pytest.raises(MutationError, match=r"output\[0\] is a leaf .* that it goes backward to or hooks"):
            trace_joint(program, torch.rand(2, 3))


def test_a_view_of_what_autograd_sees_written_is_refused_if_it_has_a_gradient() -> None:
    def program(a: Any, w: Any, uses: bool) -> Any:
        a.mul_(w)
        with torch.no_grad():
            leaf = a[0]
        leaf.requires_grad_()
        return leaf, leaf * 3 if uses else w

    a, w = torch.rand(2, 3), torch.rand(3, requires_grad=True)
    with pytest.raises(MutationError, match=r"output\[0\] is a view of args\[0\] and a leaf"):
        trace_joint(program, a, w, True)
    (leaf,) = trace_joint(program, a, w, False).signature.made_leaves
    assert leaf.gradient is None
