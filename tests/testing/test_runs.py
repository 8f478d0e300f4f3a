"""A call is observed whole, and each thing that differs is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from subclass_aot.testing.runs import INVALIDATED, Later, Run, differences, observe, tangent_of
from tests.kit.wrapper.with_sets import Masked


def made() -> tuple[list[Any], list[Any]]:
    leaf = torch.ones(2, 2, requires_grad=True)
    return [leaf * 2, torch.ones(2, 2)], [leaf]


def program(x: Any, y: Any) -> Any:
    y.add_(1)
    return x * y, y[0]


def fails(x: Any, y: Any) -> Any:
    raise ValueError("no")


WRONG: dict[str, tuple[Callable[..., Any], str, str]] = {
    "result": (lambda x, y: (x * y.add_(1) + 1, y[0]), "result", "result 0: values"),
    "structure": (lambda x, y: [x * y.add_(1), y[0]], "result", "the structure"),
    "aliasing": (lambda x, y: (x * (y.add_(1) * 1), y.mul_(1)[0] * 1), "aliasing", "shared storages"),
    "write": (lambda x, y: (x * (y + 1), y[0]), "result", "result 1: values"),
    "gradient": (lambda x, y: (x.detach() * y.add_(1) + x * 0, y[0]), "gradient", "gradient 0: values"),
    "version": (lambda x, y: (x * y.data.add_(1), y[0]), "version", "which version counters"),
    "error": (fails, "error", "the call raises ValueError: no"),
}


@pytest.mark.parametrize("name", WRONG)
def test_differences_are_told(name: str) -> None:
    other, kind, text = WRONG[name]
    found = next(differences(observe(program, made()), observe(other, made())))
    assert found.kind == kind and text in found.text


def test_no_difference() -> None:
    assert not list(differences(observe(program, made()), observe(program, made())))


def test_a_gradient_that_arrives_in_a_result_is_compared() -> None:
    def leaf_and(x: Any, factor: float) -> Any:
        leaf = x[0].requires_grad_()
        return leaf, leaf * 2 if factor == 2 else leaf.detach() * 2 + leaf * factor - leaf.detach() * factor

    runs = [observe(lambda x, factor=factor: leaf_and(x, factor), ([torch.ones(2, 2)], [])) for factor in (2, 3)]
    (found,) = differences(*runs)
    assert (found.kind, found.position) == ("gradient", 0) and "gradient 0: values" in found.text
    assert not list(differences(runs[0], runs[0]))


def test_the_same_object_and_an_equal_one() -> None:
    runs = [observe(f, ([torch.ones(2)], [])) for f in (lambda x: x, lambda x: x.view_as(x))]
    assert [d.kind for d in differences(*runs)] == ["identity"]


def test_an_error_that_is_missing() -> None:
    (found,) = differences(observe(fails, made()), observe(program, made()))
    assert (found.kind, found.text) == ("no error", "the call should raise ValueError: no")
    (back,) = differences(observe(program, made()), observe(fails, made()))
    assert not found.like(back) and found.like(found)


def test_backward_twice_accumulates() -> None:
    once, twice = (observe(program, made(), later=Later(twice=t)).behind[0].grad for t in (False, True))
    assert not torch.equal(once, twice)
    assert observe(program, made(), later=Later(backward=False)).behind[0].grad is None


def test_random_numbers_are_those_of_the_seed() -> None:
    def draws(x: Any, y: Any) -> Any:
        return torch.rand_like(x) * y

    results = [observe(draws, made(), seed).results[0] for seed in (1, 1, 2)]
    assert torch.equal(results[0], results[1]) and not torch.equal(results[0], results[2])


def test_partial_backward() -> None:
    run = observe(lambda x, y: (x * 2, x * 3), made(), later=Later(used=(True, False)))
    assert run.partial and not run.failed and run.cut == [False] * 4


def test_a_write_into_the_results() -> None:
    def views(x: Any, y: Any) -> Any:
        return y[0], y[1]

    run = observe(views, made(), later=Later(after="no_grad"))
    assert torch.equal(run.arguments[1], torch.full((2, 2), 1.5)) and run.counted == [False, False]


def test_a_view_that_autograd_gave_up() -> None:
    run: Run = observe(lambda x, y: x.clone().unbind(), made(), later=Later(after="grad"))
    assert run.failed == "after"
    with torch.no_grad():
        view = made()[0][0][0]

    def written(x: Any, y: Any) -> Any:
        parts = x.clone().chunk(2)
        base = parts[0]._base
        with torch.no_grad():
            base.detach().mul_(2)
            base.mul_(2)
        return parts[1], view

    assert observe(written, made()).results[0] is INVALIDATED


@pytest.mark.parametrize("kind", ["random", "expanded"])
def test_tangents_have_the_structure_of_what_they_belong_to(kind: str) -> None:
    mask = torch.tensor([True, False])
    tangent = tangent_of(Masked(torch.zeros(2), mask), kind, torch.Generator())
    assert tangent.mask.equal(mask) and tangent.mask is not mask and tangent.content.all()
