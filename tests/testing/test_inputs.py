"""Recipes of tensors make tensors like those they were taken of: in values, and in how they hang together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from subclass_aot import Int8Weight, TwoTensor
from subclass_aot.testing import difference, non_leaf, sharing
from subclass_aot.testing.inputs import Capture
from subclass_aot.testing.literals import Names
from subclass_aot.testing.printer import Printer, maker
from tests.fuzz.trees import ForeignTwoTensor, Parts, Scaled, Tagged


def rand(*size: int, **options: Any) -> torch.Tensor:
    return torch.rand(size, **options)


def views_of_one() -> list[Any]:
    base = rand(4, 3).requires_grad_() * 1
    return [base[1:], base, base.t()]


def shared_inside() -> list[Any]:
    inner = rand(3, 3)
    return [TwoTensor(inner, inner), inner, Tagged(inner[1:], None, 2), TwoTensor(inner, rand(3, 3)), inner.t()]


def view_of_a_wrapper() -> list[Any]:
    base = TwoTensor(rand(2, 3), rand(2, 3)).requires_grad_().clone()
    return [base.view_as(base)]


MADE: dict[str, Callable[[], list[Any]]] = {
    "dense": lambda: [rand(2, 3), torch.arange(6).view(2, 3), torch.tensor(True), rand(0, 3), torch.rand(()).double()],
    "large": lambda: [rand(30, 30)],
    "strides": lambda: [rand(3, 2).t(), rand(4, 6)[1:3, ::2], rand(3, 1).expand(3, 4)],
    "wrappers": lambda: [
        TwoTensor(rand(2, 3), TwoTensor(rand(2, 3), rand(2, 3))),
        Tagged(rand(2), rand(2), 3),
        Parts([rand(2), Tagged(rand(2))]),
        Scaled(rand(2, 3), rand(2, 1)),
        ForeignTwoTensor(rand(2, 3).t(), rand(2, 3).t()),
        Int8Weight.from_float(rand(4, 3)),
    ],
    "history": lambda: [rand(2).requires_grad_(), rand(2).requires_grad_() * 2, torch.nn.Parameter(rand(2))],
    "wrappers with history": lambda: [
        TwoTensor(rand(2), rand(2)).requires_grad_(),
        TwoTensor(rand(2), rand(2)).requires_grad_() * 2,
        torch.nn.Parameter(TwoTensor(rand(2), rand(2))),
        torch.nn.Parameter(rand(2), requires_grad=False),
    ],
    "views of one": views_of_one,
    "a view of a wrapper": view_of_a_wrapper,
    "shared inside": shared_inside,
    "computed, with others on its memory": lambda: [x := rand(3).requires_grad_() * 2, x.detach()[1:]],
    "two types on one storage": lambda: [x := rand(4), x.view(torch.int32)],
}


def facts(tensors: list[Any]) -> Any:
    """What recipes must keep, besides what `difference` looks at."""
    return (
        sharing(tensors),
        [type(x) for x in tensors],
        [x.is_leaf for x in tensors],
        [x.storage_offset() for x in tensors],
        [(x._base is not None and x._base.requires_grad) for x in tensors],
        [[y is x._base and y.requires_grad for y in tensors] for x in tensors],
        [[getattr(y, "a", None) is x for y in tensors] for x in tensors],
        [x._version for x in tensors],
    )


@pytest.mark.parametrize("name", MADE)
def test_copies(name: str) -> None:
    given = MADE[name]()
    make = maker(Capture().all(given))
    for _ in range(2):
        made, behind = make()
        assert facts(made) == facts(given)
        for x, y in zip(given, made, strict=True):
            assert not difference(x, y)
        assert all(x.is_leaf and x.requires_grad for x in behind)
        ends = [x for x in made if x.requires_grad]
        if ends:
            torch.autograd.backward(ends, [torch.ones_like(x) for x in ends])
            assert all(x.grad is not None for x in behind)
        for x in made:  # the next ones are new
            if not x.requires_grad and x.dim() and x.stride()[0]:
                x.zero_()


@pytest.mark.parametrize("name", MADE)
def test_random_values(name: str) -> None:
    """Without values, recipes print as a program that needs nothing else, and says the same of itself."""
    given = MADE[name]()
    recipes = Capture(values=False).all(given)
    names = Names()
    printer = Printer(names)
    printer.print(recipes)
    text = "\n".join(printer.lines)
    program = "\n".join([*names.imports(text), text])
    assert "yours" not in program
    namespace: dict[str, Any] = {}
    exec(program, namespace)
    made = [namespace[recipe.name] for recipe in recipes]
    assert facts(made) == facts(given)
    assert [(x.shape, x.stride(), x.dtype) for x in made] == [(x.shape, x.stride(), x.dtype) for x in given]


def test_non_leaf() -> None:
    for root in (rand(2).requires_grad_(), TwoTensor(rand(2), rand(2)).requires_grad_()):
        computed = non_leaf(root)
        assert not computed.is_leaf and computed._base is None and sharing([root]) == sharing([computed])
        computed.mul_(3)
        computed.backward(torch.ones_like(computed))
        assert not difference(root.grad, torch.ones_like(root.detach()) * 3)
