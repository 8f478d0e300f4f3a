"""How the results of a call are made: each once, when it is first needed, of what forward made and of inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from subclass_aot import TwoTensor, trace_joint
from subclass_aot.base.codegen import Source
from subclass_aot.engine.runtime.results import Results


def dense() -> torch.Tensor:
    return torch.arange(4.0).view(2, 2).clone()


def two() -> TwoTensor:
    return TwoTensor(dense(), dense() + 4)


def results_of(program: Any, inputs: Sequence[Any], made: Sequence[Any]) -> tuple[list[Any], str]:
    """Generates the part that makes results, and runs it on what forward would have made; the results and the code."""
    signature = trace_joint(program, *inputs).signature
    values = [f"input_{i}" for i in range(len(inputs))]
    outputs = [f"made_{i}" for i in range(len(made))]
    source = Source("finish", ", ".join([*values, *outputs]))
    found = Results(source, signature, values, dict(zip(signature.forward_values, outputs, strict=True)), {}).all()
    source.line(f"return [{', '.join(found)}]")
    return source.build()(*inputs, *made), str(source)


@pytest.mark.parametrize("make", [dense, two])
def test_results_are_what_forward_made_and_views_of_inputs(make: Any) -> None:
    x, made = make(), make()
    (first, again, given, view), _ = results_of(lambda x: (y := x + 1, y, x, x[1]), [x], [made])
    assert first is made and again is made and given is x
    assert view._base is x and torch.equal(view, x[1])


@pytest.mark.parametrize("make", [dense, two])
def test_views_of_what_is_no_result_are_made_of_one_tensor(make: Any) -> None:
    def program(x: Any) -> Any:
        y = x + 1
        return y[0], y.t()

    base = make()
    (part, turned), _ = results_of(program, [make().requires_grad_()], [base])
    assert part._base is base and turned._base is base
    assert torch.equal(part, base[0]) and torch.equal(turned, base.t())


def test_a_leaf_is_made_once_and_before_its_views() -> None:
    def program(x: Any) -> Any:
        leaf = x.view(-1).requires_grad_()
        return leaf[0], leaf

    x = dense()
    (view, leaf), text = results_of(program, [x], [])
    assert leaf.is_leaf and leaf.requires_grad and leaf._base is x and view.grad_fn is not None
    assert text.count(".requires_grad_()") == 1


@pytest.mark.parametrize("make", [dense, two])
def test_a_leaf_that_is_computed_is_another_tensor_than_what_forward_may_have_saved(make: Any) -> None:
    made = make()
    (leaf,), _ = results_of(lambda x: ((x * 2).requires_grad_(),), [make()], [made])
    assert leaf is not made and leaf.is_leaf and leaf.requires_grad and not made.requires_grad
