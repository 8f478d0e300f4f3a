"""What is left out of one of the things that say whether a call fits makes them disagree, for each kind of fact."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from subclass_aot import aot_compile
from subclass_aot.base.codegen import GuardedSource
from subclass_aot.engine.facts import Fact, Facts, Kind, difference, of_call
from subclass_aot.engine.guards import tables, tensor_guards
from subclass_aot.files.compiled import key
from tests.engine.facts import test_agreement
from tests.engine.facts.calls import MODES, World
from tests.engine.facts.test_agreement import PLAIN, Choices, answers, disagreement, jagged

WRITES: Choices = {"view": "front", "other": "back", "program": "writes"}
GRADIENTS: Choices = WRITES | {"requires grad": True, "non-leaf": True}


def objects(one: str, other: str, line: str) -> tuple[str, Choices, Choices]:
    return line, {"objects": one}, {"objects": other}


PAIRS: dict[Kind, tuple[str, Choices, Choices]] = {
    Kind.STRUCTURE: (r"^type\(args_\d\) is not list$", {"objects": "list"}, {"objects": "deque"}),
    Kind.MODE: (r"^modes ", {}, {"mode": "no grad"}),
    Kind.CLASS: objects("an object of a library", "an object of another class of it", r"^type\(leaves\[2\]\)"),
    Kind.IDENTITY: objects("a bare object", "another bare object", r"^leaves\[2\] is not args_2\w*$"),
    Kind.VALUE: (r"same_constant\(leaves\[4\]", {}, {"number": 2}),
    Kind.CODE: objects("a class", "another class", r"\.get\('other', \w+\) is not"),
    Kind.METHOD: objects("a method of a metaclass", "another method of a metaclass", r"_methods\.kept"),
    Kind.STANDS: objects("a pair inside", "a plain tuple inside", r"other\) is not PairOfLibrary$"),
    Kind.OBJECT: objects("the first list twice", "the second list twice", r"other_2 is not"),
    Kind.KEYS: objects("dict", "turned dict", r"same_keys"),
    Kind.LIMIT: objects("a deque inside", "a short deque inside", r"\.maxlen"),
    Kind.NAMES: (r"_buffers", {}, {"empty buffer": True}),
    Kind.CHILDREN: (r"module_modules", {}, {"child that stands twice": "child"}),
    Kind.HOOKS: (r"tables_of_all|hooks_of_all", {"hook of all modules": "adds"}, {"hook of all modules": "doubles"}),
    Kind.TENSOR: (r"same_specs|^read is None", {}, {"dtype": torch.float64}),
    Kind.SAME: objects("the first tensor twice", "the second tensor twice", r"other_2 is not"),
    Kind.LEAF: (r"\.is_leaf", GRADIENTS, {"non-leaf": False}),
    Kind.VIEW: (r"view_rules", GRADIENTS, {"view": "split"}),
    Kind.STORAGE: (r"data_ptr", WRITES, {"view": "front of another storage"}),
    Kind.BEGINNING: (r"storage_offset", WRITES, {"view": "back"}),
    Kind.BYTES: (r"nbytes", WRITES, {"length": 9}),
    Kind.HISTORY: (r"histor", GRADIENTS | {"other": "own history"}, {"other": "back"}),
    Kind.ADDRESS: objects("knows the tensor", "knows another tensor", r"^id\("),
    Kind.TWICE: (r"passed_twice", {"program": "appends"}, {"shared list": True}),
}  # fmt: skip
"""Of each kind what is written of it in a guard, a call, and what makes of that another one by this kind alone."""

IMPLIED = {
    Kind.LENGTH,  # each element is a fact
    Kind.NUMBER,  # which are symbols: no two of a place differ
    Kind.SIZE,  # see `test_sizes.py`
    Kind.ASSUMED,
    Kind.GRADIENTS,  # what the program does, whatever the call
}


def leave_out(kind: Kind, line: str, rendering: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves a kind of facts out of one of those that say whether a call fits.

    Args:
        kind: The kind.
        line: What is written of it in the conditions of a guard.
        rendering: What it is left out of.
        monkeypatch: Undoes it.
    """
    refuse_if, describe, write = GuardedSource.refuse_if, tables._describe, key._Writer.fact

    def of_guard(source: GuardedSource, condition: str, comment: str = "") -> None:
        if not re.search(line, condition):
            refuse_if(source, condition, comment)

    def of_table(value: Any, meta: Any, fact: object, is_leaf: object = None) -> Any:
        return describe(value, meta, fact, None if kind is Kind.LEAF else is_leaf)

    def of_words(before: Facts, now: Facts) -> list[str]:
        one, other = (tuple(fact for fact in facts if fact.kind is not kind) for facts in (before, now))
        return difference(one, other)

    def of_file(writer: Any, fact: Fact) -> str | None:
        return None if fact.kind is kind else write(writer, fact)

    match rendering:
        case "guard":
            monkeypatch.setattr(GuardedSource, "refuse_if", of_guard)
            monkeypatch.setattr(tables, "_describe", of_table)
        case "words":
            monkeypatch.setattr(test_agreement, "difference", of_words)
        case "stable text":
            monkeypatch.setattr(key._Writer, "fact", of_file)


@pytest.mark.every_case
@pytest.mark.parametrize("kind", PAIRS, ids=lambda kind: kind.name)
def test_left_out_of_words_and_files(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    line, one, change = PAIRS[kind]
    a = PLAIN | one
    assert disagreement(a, a | change) == ""
    for rendering in ("words", "stable text"):
        if kind not in (Kind.IDENTITY, Kind.METHOD) or rendering != "stable text":  # it has methods with their classes
            with monkeypatch.context() as patch:
                leave_out(kind, line, rendering, patch)
                assert disagreement(a, a | change) != ""


@pytest.mark.every_case
@pytest.mark.parametrize("kind", PAIRS, ids=lambda kind: kind.name)
@pytest.mark.usefixtures("either_way")
def test_left_out_of_guards(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    line, one, change = PAIRS[kind]
    a = PLAIN | one
    assert disagreement(a, a | change) == ""
    leave_out(kind, line, "guard", monkeypatch)
    assert disagreement(a, a | change) != ""


WITHOUT_FACTS = {
    Kind.STRUCTURE, Kind.CLASS, Kind.IDENTITY, Kind.VALUE, Kind.CODE, Kind.METHOD, Kind.STANDS, Kind.OBJECT, Kind.KEYS,
    Kind.LIMIT, Kind.SAME,
}  # fmt: skip
"""The kinds of what guards compare as they go through arguments, objects and places. No hooks are no fact."""


@pytest.mark.every_case
@pytest.mark.parametrize("kind", [kind for kind in PAIRS if kind is not Kind.HOOKS], ids=lambda kind: kind.name)
@pytest.mark.usefixtures("either_way")
def test_left_out_of_facts(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    """All are renderings of one list: what is not in it, none of them compares."""
    _, one, change = PAIRS[kind]
    read, a = of_call._Reader.read, PLAIN | one

    def without(reader: Any) -> None:
        read(reader)
        reader.found = [fact for fact in reader.found if fact.kind is not kind]

    world = World()
    monkeypatch.setattr(of_call._Reader, "read", without)
    compiled = aot_compile(world.programs[a["program"]], dynamic=False)
    with MODES[a["mode"]]():
        compiled(*world.call(a))
    b = a | change
    with MODES[b["mode"]]():
        same = answers(compiled._specializations.latest, compiled.fn, world.call(b))  # type: ignore[arg-type]
    assert same == {"guard": kind not in WITHOUT_FACTS, "words": True, "stable text": kind is not Kind.METHOD}


@pytest.mark.usefixtures("either_way")
def test_contexts_left_out_of_guards(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = (PLAIN | {"kind": kind} for kind in ("optional 1", "optional 1.0"))
    assert disagreement(a, b) == ""
    for module in (tables, tensor_guards):
        monkeypatch.setattr(module, "constants_of", lambda *_: {})
    assert disagreement(a, b) != ""


def test_values_left_out_of_guards(monkeypatch: pytest.MonkeyPatch) -> None:
    leave_out(Kind.DATA, "tolist", "guard", monkeypatch)
    compiled = aot_compile(lambda x: [part * 2 for part in x.unbind()], dynamic=False)
    compiled(jagged([2, 3, 4]))
    specialization = compiled._specializations.latest
    assert specialization is not None
    assert len(set(answers(specialization, compiled.fn, (jagged([4, 3, 2]),)).values())) > 1


def test_every_kind_is_tried() -> None:
    assert len(PAIRS) + len(IMPLIED) + 1 == len(Kind)  # values of tensors have a test of their own
