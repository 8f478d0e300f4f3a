"""Recipes make tensors of their classes, of the size that is asked for, on the leaves that they are given."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given

from subclass_aot.testing import dense_leaves
from tests.fuzz.trees import KINDS, READY_MADE, Scaled, Tree, trees

DENSE = Tree("dense")


def depth(tree: Tree) -> int:
    return 0 if tree.kind == "dense" else 1 + max(map(depth, tree.inner), default=0)


@given(trees())
def test_what_is_drawn_can_be_made(tree: Tree) -> None:
    made: list[torch.Tensor] = []

    def fill(size: tuple[int, ...]) -> torch.Tensor:
        made.append(torch.ones(size))
        return made[-1]

    for size in ((2, 3), (3,), ()):
        made.clear()
        tensor = tree.make(size, fill)
        assert tensor.shape == size and all(x is y for x, y in zip(dense_leaves(tensor), made, strict=True))
    assert depth(tree) <= 2


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_has_operators(kind: str) -> None:
    inner = () if kind == "Scaled" else (DENSE, DENSE)
    tensor = Tree(kind, inner).make((2, 3), torch.ones)
    assert type(tensor).__name__ in (kind, "TwoTensor")
    torch.testing.assert_close((tensor * 2).sum(), tensor.sum() * 2)


@pytest.mark.parametrize("kind", READY_MADE)
def test_each_class_that_people_use_is_made_of_a_matrix(kind: str) -> None:
    tensor = Tree(kind).make((2, 4), torch.rand)
    assert type(tensor).__name__ == kind and tensor.shape == (2, 4)
    for size in ((3,), (2, 0), (2, 3)):
        assert Tree(kind).make(size, torch.rand).shape == size


@given(trees(ready_made=True))
def test_they_are_drawn_beside_the_others(tree: Tree) -> None:
    assert tree.make((2, 4), torch.rand).shape == (2, 4)


def test_a_recipe_prints_as_a_call() -> None:
    assert repr(Tree("Tagged", (Tree("Parts", (DENSE,)), DENSE), 1)) == "Tagged(Parts(dense), dense, 1)"


def test_the_tag_is_the_context() -> None:
    assert Tree("Tagged", (DENSE,), 3).make((2,), torch.ones).tag == 3
    assert Tree("Tagged", (DENSE, DENSE)).make((2,), torch.ones).extra is not None


def test_room_for_a_scaled_tensor_has_scales_of_one() -> None:
    scaled = Scaled(torch.ones(2, 3), torch.full((2, 1), 4.0))
    room = torch.zeros_like(scaled)
    assert torch.equal(room.scale, torch.ones(2, 1)) and torch.equal(room.codes, torch.zeros(2, 3))
