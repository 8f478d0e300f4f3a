"""What says whether a call fits what was compiled for another one: all of it must give the same answer."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from subclass_aot import aot_compile
from subclass_aot.base.refused import Refused
from subclass_aot.engine.call import Arguments, flatten
from subclass_aot.engine.facts import Kind, difference, facts_of, global_state
from subclass_aot.engine.guards import MISS
from subclass_aot.engine.specializations import Specialization
from subclass_aot.errors import SubclassAotError
from subclass_aot.files.compiled import key_of
from subclass_aot.testing.compare import difference as differs
from tests.engine.facts.calls import CHOICES, MODES, TENSORS, World

Choices = dict[str, Any]
PLAIN: Choices = {name: options[0] for name, options in CHOICES.items()}
BASES: dict[str, Choices] = {
    "plain": {},
    "with gradients": {"requires grad": True},
    "views that are written": {"view": "front", "other": "back", "program": "writes"},
    "views with gradients": {
        "view": "front", "other": "back", "program": "writes", "requires grad": True, "non-leaf": True,
    },
    "views that are read": {"view": "front", "other": "back"},
    "a wrapper": {"kind": "two"},
    "a wrapper of another library": {"kind": "tagged"},
    "a context that is changed": {"kind": "tagged held"},
    "writes": {"program": "writes"},
    "where one begins is read": {"program": "begins", "other": "back"},
    "lists that are changed": {"program": "appends"},
}  # fmt: skip


@pytest.fixture(autouse=True)
def _hooks_of_all_modules() -> Iterator[None]:
    yield
    torch.nn.modules.module._global_forward_hooks.clear()


def flat(value: Any) -> Iterator[Any]:
    if isinstance(value, tuple | list):
        for part in value:
            yield from flat(part)
    elif isinstance(value, torch.Tensor):
        yield value


def answers(specialization: Specialization, fn: Callable[..., Any], call: tuple[Any, ...]) -> dict[str, bool]:
    """What each rendering of the facts says of another call."""
    leaves, treespec = flatten((call, {}))
    state = global_state()
    arguments = Arguments.of(fn, call, {})
    facts = facts_of(arguments, state, specialization.scope)
    before, now = key_of(specialization.facts), key_of(facts)
    told = [tuple(f for f in each if f.kind is not Kind.IDENTITY) for each in (specialization.facts, facts)]
    only_identity = difference(specialization.facts, facts) and not difference(*told)  # which no file can have
    return {
        "guard": specialization.entry.call(call, {}, leaves, treespec, state, check_only=True) is not MISS,
        "words": not difference(specialization.facts, facts),
        "stable text": not only_identity and (before.call, before.function) == (now.call, now.function),
    }


def disagreement(a: Choices, b: Choices) -> str:
    """Compiles for one call and asks for another one; says what is wrong, "" if nothing is."""
    world = World()
    fn = world.programs[a["program"]]
    compiled = aot_compile(fn, dynamic=False)
    try:
        with MODES[a["mode"]]():
            compiled(*world.call(a))
    except (RuntimeError, SubclassAotError, UserWarning):
        return ""  # eager mode fails, it is refused, or the function itself runs
    specialization = compiled._specializations.latest
    assert specialization is not None
    with MODES[b["mode"]]():
        try:
            same = answers(specialization, fn, world.call(b))
        except (RuntimeError, SubclassAotError, Refused):
            return ""
        if len(set(same.values())) > 1:
            return f"{same}"
        if not same["guard"]:
            return ""
        outcomes = []
        for run in (fn, compiled):
            call = world.call(b)
            try:
                outcomes.append([*flat(run(*call)), *flat(call)])
            except RuntimeError as error:
                outcomes.append(type(error))
    assert len(compiled._specializations) == 1
    if any(isinstance(outcome, type) for outcome in outcomes):
        return "" if all(isinstance(outcome, type) for outcome in outcomes) else f"one of two raises: {outcomes}"
    return "".join(differs(x, y) for x, y in zip(*outcomes, strict=True))


PAIRS = [(base, name, option) for base in BASES for name, options in CHOICES.items() for option in options]


@pytest.mark.parametrize(("base", "name", "option"), PAIRS, ids=str)
def test_calls_that_differ_in_one_thing(base: str, name: str, option: Any) -> None:
    a = PLAIN | BASES[base]
    b = a | {name: option}
    if name != "program":
        found = disagreement(a, b), disagreement(b, a)
        assert found == ("", "")


ALIKE = [(name, *pair) for name in ("objects", "kind", "view") for pair in itertools.pairwise(CHOICES[name])]


@pytest.mark.every_case
@pytest.mark.parametrize(("name", "one", "other"), ALIKE)
def test_what_is_alike(name: str, one: str, other: str) -> None:
    a, b = (PLAIN | {"requires grad": name == "view", name: x} for x in (one, other))
    assert (disagreement(a, a), disagreement(a, b), disagreement(b, a)) == ("", "", "")


calls = st.fixed_dictionaries({name: st.sampled_from(options) for name, options in CHOICES.items()})
changes = st.lists(st.sampled_from([(name, x) for name, xs in CHOICES.items() for x in xs]), max_size=2)


@settings(max_examples=40)
@given(calls, changes)
def test_random_calls(a: Choices, changed: list[tuple[str, Any]]) -> None:
    assert disagreement(a, a | dict(changed) | {"program": a["program"]}) == ""


def divides(x: Any, y: Any) -> Any:
    if x.shape[0] <= 2:
        return x + 1
    return x * (2 if y.shape[0] // (x.shape[0] - 2) > 1 else 3)


OF_SIZES: dict[str, Callable[..., Any]] = {
    "reads": lambda x, y: x.sum() + y.sum(),
    "equal": lambda x, y: x * y if x.shape[0] == y.shape[0] else x + 1,
    "twice": lambda x, y: x * 2 if x.shape[0] * 2 == y.shape[0] else x + 1,
    "even": lambda x, y: x * 2 if (x.shape[0] + y.shape[0]) % 2 == 0 else x + 1,
    "bounds": lambda x, y: x * 2 if x.shape[0] < 5 <= y.shape[0] else x + 1,
    "divides": divides,
}


@pytest.mark.parametrize("name", OF_SIZES)
@settings(max_examples=15)
@given(st.tuples(*[st.integers(2, 8)] * 2), st.tuples(*[st.integers(0, 8)] * 2), st.sampled_from(["dense", "two"]))
def test_sizes_that_are_symbols(name: str, a: tuple[int, int], b: tuple[int, int], kind: str) -> None:
    fn = OF_SIZES[name]
    compiled = aot_compile(fn, dynamic=True)
    compiled(*map(TENSORS[kind], map(torch.ones, a)))
    specialization = compiled._specializations.latest
    assert specialization is not None
    call = tuple(map(TENSORS[kind], map(torch.ones, b)))
    same = set(answers(specialization, fn, call).values())
    assert len(same) == 1 and differs(compiled(*call), fn(*call)) == ""
    assert same != {True} or len(compiled._specializations) == 1


@pytest.mark.parametrize("lengths", [[2, 3, 4], [4, 3, 2], [2, 4, 3]])
def test_values_that_are_read_while_tracing(lengths: list[int]) -> None:
    compiled = aot_compile(lambda x: [part * 2 for part in x.unbind()], dynamic=False)
    compiled(jagged([2, 3, 4]))
    specialization = compiled._specializations.latest
    assert specialization is not None
    assert set(answers(specialization, compiled.fn, (jagged(lengths),)).values()) == {lengths == [2, 3, 4]}


def jagged(lengths: list[int]) -> torch.Tensor:
    values, offsets = torch.arange(float(sum(lengths))), torch.tensor([0, *lengths]).cumsum(0)
    return torch.nested.nested_tensor_from_jagged(values, offsets, max_seqlen=4)
