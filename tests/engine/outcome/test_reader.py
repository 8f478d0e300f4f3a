"""Reading the outcome of a call: what is noted of results and of objects, and what is refused."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch

from subclass_aot.base.generators_elsewhere import drawn_elsewhere, states_elsewhere
from subclass_aot.engine.objects import Objects
from subclass_aot.engine.outcome import Outcome, read_outcome
from subclass_aot.engine.outcome.recipes import Given, Leaf, Literal, New, Tuple, Weak
from subclass_aot.errors import DataDependentError, MutationError, TraceError

A, B = torch.ones(1), torch.ones(2)


class Cell:
    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)


def read(program: Callable[[Any], Any], value: Any, **options: Any) -> tuple[list[Any], Outcome]:
    """Reads the outcome of a program that is called with a value."""
    seen = Objects(whole_modules=True)
    seen.root(value, "args", False)
    before = states_elsewhere()
    result = program(value)
    seen.refuse_changed(drawn_elsewhere(before))
    return read_outcome(seen, result, **options)[:2]


@pytest.mark.parametrize(
    ("program", "kind", "leaves"),
    [
        (lambda args: A, Leaf, [A]),
        (lambda args: A.shape, Leaf, [A.shape]),
        (lambda args: 3, Literal, []),
        (lambda args: (1, (2, "a")), Literal, []),
        (lambda args: (A, 1, (B,)), Tuple, [A, B]),
        (lambda args: [1], New, []),
        (lambda args: {"k": [A]}, New, [A]),
        (lambda args: args, Given, []),
        (lambda args: Cell(a=1), New, []),
        (lambda args: __import__("weakref").ref(args[0]), Weak, []),
        (lambda args: len, Literal, []),
    ],
)
def test_kinds_of_results(program: Any, kind: type, leaves: list[Any]) -> None:
    found, outcome = read(program, [Cell()])
    assert type(outcome.result) is kind and len(found) == len(leaves)
    assert all(a is b or a == b for a, b in zip(found, leaves, strict=True))


def test_an_older_object_without_tensors_stays_the_same() -> None:
    old = Cell(inner=Cell(a=1))
    _, outcome = read(lambda args: old, [], older=[old, old.inner])  # type: ignore[attr-defined]
    assert isinstance(outcome.result, Literal) and outcome.result.value is old and not outcome.new
    _, outcome = read(lambda args: old, [])
    assert outcome.result == New(0) and len(outcome.new) == 2
    old.tensor = A  # type: ignore[attr-defined]
    leaves, outcome = read(lambda args: old, [], older=[old, old.inner])  # type: ignore[attr-defined]
    assert outcome.result == New(0) and leaves == [A]


def test_results_come_before_what_is_put_into_objects() -> None:
    def program(args: Any) -> Any:
        args["k"].append(A)
        args["l"] = B
        return [A]

    leaves, outcome = read(program, {"k": []})
    assert [id(leaf) for leaf in leaves] == [id(A), id(B), id(A)]
    assert outcome.assigned == ("args['l']", "args['k'][0]")
    assert [(change.path, change.appended) for change in outcome.changes] == [("args", False), ("args['k']", True)]


@pytest.mark.parametrize(
    ("value", "program"),
    [
        ([1, 2], lambda args: args.reverse() or args.reverse()),
        ({"a": 2**70}, lambda args: args.update(a=2**69 * 2)),
        ([A], lambda args: args.__setitem__(0, A)),
        (Cell(a=1), lambda args: setattr(args, "b", 1) or delattr(args, "b")),
    ],
)
def test_what_is_as_it_was_is_no_change(value: Any, program: Any) -> None:
    assert read(program, value)[1].changes == ()


@pytest.mark.parametrize(
    ("value", "program", "removed", "assigned"),
    [
        ({"a": 1, "b": 2}, lambda args: args.pop("a"), ["a"], {}),
        ({"a": 1, "b": 2}, lambda args: args.update(b=3), [], {"b": 3}),
        ({"a": 1, "b": 2}, lambda args: args.update(a=args.pop("a")), ["a", "b"], {"b": 2, "a": 1}),
        ({1: "a"}, lambda args: (args.pop(1), args.update({True: "b"})), [1], {True: "b"}),
        ({1: "a"}, lambda args: args.update({True: args.pop(1)}), [1], {True: "a"}),
        ([1, 2], lambda args: args.append(3), [], {2: 3}),
        ([1, 2], lambda args: args.pop(0), [], {0: 2}),
    ],
)
def test_changes(value: Any, program: Any, removed: list[Any], assigned: dict[Any, Any]) -> None:
    (change,) = read(program, value)[1].changes
    assert [key.value for key in change.removed] == removed  # type: ignore[union-attr]
    pairs = {key.value: part.value for key, part in change.assigned}  # type: ignore[union-attr]
    assert pairs == assigned and list(map(type, pairs)) == list(map(type, assigned)) and list(pairs) == list(assigned)


def in_itself(args: Any) -> Any:
    from transformers.modeling_outputs import BaseModelOutput

    made: Any = BaseModelOutput(last_hidden_state=A)
    made["attentions"] = made
    return made


@pytest.mark.parametrize(
    ("value", "program", "error", "message"),
    [
        ([], lambda args: torch.utils.dlpack.to_dlpack(A), DataDependentError, "capsule"),
        ([], lambda args: torch.nn.ReLU(), MutationError, "^the result: the function makes a module"),
        ([], lambda args: args.append(torch.nn.ReLU()), MutationError, r"^args\[0\]: the function makes a module"),
        (torch.nn.Linear(1, 1), lambda args: setattr(args, "weight", torch.nn.Parameter(B)), MutationError,
         r"^args\.weight: the function assigns another parameter"),
        ([], in_itself, TraceError, "^the result.*: a BaseModelOutput holds itself"),
        ([], lambda args: random.random(), TraceError, "^random: the function draws"),
        ([numpy.zeros(1)], lambda args: args[0].__setitem__(0, 1), MutationError, r"^args\[0\]: .* ndarray"),
    ],
)  # fmt: skip
def test_what_is_refused(value: Any, program: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        read(program, value)


def test_a_list_that_is_passed_twice_is_not_changed() -> None:
    inner: list[Any] = [1]
    twice = {id(inner): "args[1]"}
    read(lambda args: None, [inner, inner], twice=twice)
    with pytest.raises(MutationError, match=r"^args\[1\]: .* passed twice, and the function changes args\[0\]"):
        read(lambda args: args[0].append(2), [inner, inner], twice=twice)


def test_the_way_to_a_given_object_goes_by_those_around_it() -> None:
    _, outcome = read(lambda args: args[0].a, [Cell(a=[1])])
    assert outcome.result == Given(2) and len(outcome.objects) == 3
    starts = [way.start for way in outcome.objects]
    assert starts[0] == "args" and [start.holder for start in starts[1:]] == [0, 1]  # type: ignore[union-attr]
