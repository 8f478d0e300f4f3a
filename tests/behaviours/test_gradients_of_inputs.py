"""The `.grad` of what a function has: returned, kept, viewed or dropped, as in eager mode, of wrappers, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import subclass_aot as sa
from subclass_aot import TwoTensor

Kept = dict[str, Any]


def drop(p: Any, kept: Kept) -> None:
    kept["gradient"], p.grad = p.grad, None


PROGRAMS: dict[str, Callable[[Any, Kept, torch.Tensor], Any]] = {
    "returned": lambda p, kept, x: p.grad,
    "kept": lambda p, kept, x: kept.update(gradient=p.grad),
    "twice in a list": lambda p, kept, x: [p.grad, x * 2, p.grad],
    "detached": lambda p, kept, x: p.grad.detach(),
    "a field": lambda p, kept, x: getattr(p.grad, "a", p.grad),
    "a view": lambda p, kept, x: p.grad.t(),
    "its data": lambda p, kept, x: p.grad.data,
    "as a parameter": lambda p, kept, x: torch.nn.Parameter(p.grad),
    "below a tensor key": lambda p, kept, x: kept.update({p: {"last": p.grad}}),
    "kept and dropped": lambda p, kept, x: drop(p, kept),
    "whether there is one": lambda p, kept, x: x if p.grad is None else x * 2,
    "its size": lambda p, kept, x: x * p.grad.shape[0],
}


def parameter(made_of: str) -> torch.nn.Parameter:
    x = torch.arange(4.0).view(2, 2)
    match made_of:
        case "dense":
            value: Any = x
        case "wrapper":
            value = TwoTensor(x, x + 1)
        case _:
            value = TwoTensor(TwoTensor(x, x + 1), TwoTensor(x * 2, x + 3))
    p = torch.nn.Parameter(value)
    (p * p).sum().backward()
    return p


def leaves(tree: Any) -> list[torch.Tensor]:
    """The dense tensors in a tree, in order."""
    if isinstance(tree, TwoTensor):
        return leaves(tree.a) + leaves(tree.b)
    if isinstance(tree, torch.Tensor):
        return [tree]
    if isinstance(tree, dict):
        tree = list(tree.values())
    return [leaf for part in tree for leaf in leaves(part)] if isinstance(tree, list) else []


def outcome(made_of: str, program: Callable[..., Any], compile: Callable[[Any], Any]) -> list[Any]:
    """What three calls return and leave behind, and which of it is the gradient itself."""
    kept: Kept = {}
    p, found = parameter(made_of), []

    def run(x: torch.Tensor) -> Any:
        return program(p, kept, x)

    compiled = compile(run)
    for i in range(3):
        before = p.grad
        result = compiled(torch.ones(2) + i)
        is_it = [result is before, kept.get("gradient") is before, p.grad is before]
        shared = [x.data_ptr() == y.data_ptr() for x in leaves(result) for y in leaves(before)]
        values = [x.tolist() for tree in (result, kept, p.grad) for x in leaves(tree)]
        found.append((type(result), is_it, shared, values, [x.requires_grad for x in leaves(result)]))
        if p.grad is None:
            p.grad = before
    return found


@pytest.mark.parametrize("made_of", ["dense", "wrapper", "nested wrappers"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_in_eager_mode(name: str, made_of: str) -> None:
    expected = outcome(made_of, PROGRAMS[name], lambda run: run)
    assert outcome(made_of, PROGRAMS[name], sa.aot_compile) == expected


@pytest.mark.parametrize("name", ["kept", "below a tensor key", "returned"])
def test_behind_torch_compile(name: str, fresh_dynamo: None) -> None:
    expected = outcome("wrapper", PROGRAMS[name], lambda run: run)
    assert outcome("wrapper", PROGRAMS[name], lambda run: torch.compile(run, backend="subclass_aot")) == expected
