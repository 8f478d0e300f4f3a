"""Attributes that tensors do not have, and that a later call brings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import subclass_aot as sa
from subclass_aot.base.missing import missing_names, note_missing
from tests.engine.facts.calls import Tagged

pytestmark = pytest.mark.usefixtures("either_way")

ASKS: dict[str, Callable[[Any], Any]] = {
    "getattr": lambda x: x * 2 if getattr(x, "first", True) else x * 3,
    "hasattr": lambda x: x * 3 if hasattr(x, "first") else x * 2,
    "try": lambda x: tried(x),
    "in its dict": lambda x: x * getattr(x, "factor", 2) * (3 if hasattr(x, "first") else 1),
    "inside a function": lambda x: (lambda y: y * 2 if not hasattr(y, "first") else y * 3)(x),
    "a private name": lambda x: x * 3 if hasattr(x, "_first") else x * 2,
    "get of its dict": lambda x: x * (3 if x.__dict__.get("first") is not None else 2),
    "in its dict, alone": lambda x: x * (3 if "first" in x.__dict__ else 2),
    "vars": lambda x: x * (3 if "first" in vars(x) else 2),
    "dir": lambda x: x * (3 if "first" in dir(x) else 2),
    "a helper": lambda x: x * (3 if "first" in names_of(x) else 2),
    "a method of a class": lambda x: x * Reading(x).factor(),
}


def names_of(x: Any) -> list[str]:
    return [*x.__dict__]


class Reading:
    def __init__(self, x: Any) -> None:
        self.x = x

    def factor(self) -> int:
        return 3 if any(name == "first" for name in self.x.__dict__) else 2


def tried(x: Any) -> Any:
    try:
        return x * 3 if not x.first else x * 2
    except AttributeError:
        return x * 2


KINDS: dict[str, Callable[[], Any]] = {
    "dense": lambda: torch.ones(2),
    "parameter": lambda: nn.Parameter(torch.ones(2)),
    "two": lambda: sa.TwoTensor(torch.ones(2), torch.ones(2)),
    "int8": lambda: sa.Int8Weight.from_float(torch.ones(2, 2)),
    "foreign": lambda: Tagged(torch.ones(2)),
    "computed": lambda: torch.ones(2, requires_grad=True) * 2,
}


def plain(x: Any) -> Any:
    x = x.to_plain() if hasattr(x, "to_plain") else x
    return x.inner.detach() if isinstance(x, Tagged) else x.a.detach() if isinstance(x, sa.TwoTensor) else x.detach()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ASKS)
def test_an_attribute_of_an_argument_appears(how: str, kind: str) -> None:
    program, x = ASKS[how], KINDS[kind]()
    if how == "a private name" and kind in ("two", "int8", "foreign"):
        return  # of wrappers, that is the business of the class
    compiled = sa.aot_compile(program)
    name = "_first" if how == "a private name" else "first"
    for value in (None, False):
        if value is not None:
            setattr(x, name, value)
        for _ in range(2):
            torch.testing.assert_close(plain(compiled(x)), plain(program(x)))
    assert len(compiled.recompiles) == 1 and f"args[0].{name}: absent before, False now" in compiled.recompiles[0]


class Holds(nn.Module):
    def __init__(self, weight: Any) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight, requires_grad=False)

    def forward(self, x: Any) -> Any:
        return x * (2 if getattr(self.weight, "is_first", True) else 3)


@pytest.mark.parametrize("kind", ["dense", "two", "foreign"])
def test_an_attribute_of_a_weight_appears(kind: str) -> None:
    module, x = Holds(KINDS[kind]()), torch.ones(2)
    compiled = sa.aot_compile(module)
    for value in (None, False, True):
        if value is not None:
            module.weight.is_first = value
        for _ in range(2):
            torch.testing.assert_close(compiled(x), module(x))
    assert "self.weight.is_first: absent before, False now" in compiled.recompiles[0]


class Drops(Holds):
    def forward(self, x: Any) -> Any:
        self.weight.__dict__.pop("is_first", None)
        return x * 2


class Counts(Holds):
    def forward(self, x: Any) -> Any:
        return x * (2 if vars(self.weight).get("is_first", True) else 3)


@pytest.mark.parametrize("kind", ["dense", "two", "foreign"])
@pytest.mark.parametrize("cls", [Drops, Counts])
def test_attributes_of_a_weight_are_read_as_a_whole(cls: type[Holds], kind: str) -> None:
    module, same, x = cls(KINDS[kind]()), cls(KINDS[kind]()), torch.ones(2)
    compiled = sa.aot_compile(module)
    for value in (None, False, None, True):
        if value is not None:
            module.weight.is_first = same.weight.is_first = value
        for _ in range(2):
            torch.testing.assert_close(compiled(x), same(x))
            assert getattr(module.weight, "is_first", None) is getattr(same.weight, "is_first", None)


def count(x: Any) -> Any:
    x.micro = getattr(x, "micro", 0) + 1
    return x * x.micro


def test_a_counter_on_a_parameter() -> None:
    one, other = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    compiled = sa.aot_compile(count)
    for _ in range(4):
        torch.testing.assert_close(compiled(one), count(other))
    assert one.micro == other.micro == 4  # type: ignore[attr-defined]


def test_a_file_asks_too(tmp_path: Path) -> None:
    compiled, x = sa.aot_compile(ASKS["getattr"]), torch.ones(2)
    compiled(x)
    compiled.save(tmp_path / "x.sa")
    loaded = sa.load_compiled(tmp_path / "x.sa", trust=True)
    assert loaded(x).equal(x * 2)
    x.first = False  # type: ignore[attr-defined]
    with pytest.raises(sa.CompiledFileError, match=r"args\[0\].first"):
        loaded(x)


OURS = sorted(
    name for name in {*dir(sa.MetaTensor)} - {*dir(torch.Tensor), "_is_param"} if not name.startswith(("__", "meta_"))
)
"""What tensors without data have beside `Tensor`, and torch's own note on parameters."""


@pytest.mark.parametrize("name", [*OURS, "tag", "spec", "node", "front", "memory", "value"])
def test_a_program_may_use_any_name(name: str) -> None:
    """What stands for a tensor in a trace has names of its own, and these are not in the way."""

    def program(x: Any) -> Any:
        before = getattr(x, name, 2) if hasattr(x, name) else 3
        setattr(x, name, before + 1)
        return x * before * getattr(x, name)

    compiled = sa.aot_compile(program)
    one, other = torch.ones(2), torch.ones(2)
    for _ in range(3):
        torch.testing.assert_close(compiled(one), program(other))
        assert getattr(one, name) == getattr(other, name)


def test_names_of_the_class_alone() -> None:
    x = sa.MetaTensor(torch.ones(2))
    assert x.spec is x.meta_spec and not hasattr(x, "like") and sa.MetaTensor.like(x).shape == (2,)


@pytest.mark.parametrize("how", ["getattr", "hasattr", "a private name"])
def test_a_number_in_the_place_of_a_tensor(how: str) -> None:
    compiled = sa.aot_compile(ASKS[how])
    compiled(torch.ones(2))
    assert compiled(3.0) == 6.0


def test_what_nobody_asks_for_makes_no_difference() -> None:
    compiled, x = sa.aot_compile(lambda x: x * 2), torch.ones(2)
    compiled(x)
    x.note = 1  # type: ignore[attr-defined]
    compiled(x)
    assert not compiled.recompiles and "__dict__" not in compiled.source


def test_dynamo_reads_attributes_of_wrappers() -> None:
    """It refuses those of classes with `__getattr__`, also where another compilation has failed in between."""
    x = sa.TwoTensor(torch.ones(3), torch.ones(3))
    with pytest.raises(ZeroDivisionError):
        sa.aot_compile(lambda x: x * (1 / 0))(x)
    assert "__getattr__" not in vars(sa.WrapperTensor)
    read = torch.compile(lambda t: t.a * 2, fullgraph=True, backend="subclass_aot")
    assert torch.equal(read(x), torch.full((3,), 2.0))


def test_what_is_noted() -> None:
    thing = object()

    class Tells:
        def __getattr__(self, name: str) -> Any:
            note_missing(thing, name)
            raise AttributeError(name)

    asked = Tells()
    hasattr(asked, "before")
    with missing_names([]) as found:
        hasattr(asked, "a")
        with missing_names([]) as inner:
            hasattr(asked, "b")
        hasattr(asked, "__dunder__")
    hasattr(asked, "after")
    assert found == [(thing, "a")] and inner == [(thing, "b")]
