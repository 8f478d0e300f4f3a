"""What is replayed is what the class itself makes, in every property."""

from __future__ import annotations

import cProfile
import gc
import sys
import weakref
from typing import Any, ClassVar

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor

from subclass_aot import aot_compile
from subclass_aot.errors import PlanError
from subclass_aot.kit.flatten import FlattenPlan, replay
from subclass_aot.kit.flatten.replay import Replayed
from tests.kit.flatten.test_watch import Base

pytestmark = pytest.mark.usefixtures("either_way")


@pytest.fixture(autouse=True)
def _not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "MODE", "1")


def replayed(x: Any) -> Replayed:
    """What makes wrappers like this one, after it was watched."""
    names, context = x.__tensor_flatten__()
    found = Replayed(type(x), names, context, tuple(x.size()), tuple(x.stride()))
    found.make(*(getattr(x, name) for name in names))
    return found


def is_replayed(found: Replayed) -> bool:
    return getattr(found.make, "__self__", None) is not found and found.make is not found._by_itself


def two(**options: Any) -> TwoTensor:
    return TwoTensor(torch.randn(4, 6, **options), torch.randn(4, 6, **options))


class Profiler:
    """One in Python."""

    def enable(self) -> None:
        sys.setprofile(self.note)

    def note(self, frame: Any, event: str, argument: Any) -> None:
        """Sees a call."""

    def disable(self) -> None:
        sys.setprofile(None)


EXAMPLES: dict[str, Any] = {
    "two": two,
    "nested": lambda: TwoTensor(two(), two()),
    "transposed": lambda: TwoTensor(torch.randn(4, 6).t(), torch.randn(4, 6).t()),
    "float64": lambda: two(dtype=torch.float64),
    "complex": lambda: two(dtype=torch.complex64),
    "integers": lambda: TwoTensor(torch.arange(4), torch.arange(4)),
    "a number": lambda: TwoTensor(torch.ones(()), torch.ones(())),
    "empty": lambda: TwoTensor(torch.ones(0, 3), torch.ones(0, 3)),
    "with a note": lambda: Base(torch.randn(3), ("a", 1, torch.float32)),
    "without": lambda: Base(torch.randn(3)),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_equal_in_every_property(name: str) -> None:
    x = EXAMPLES[name]()
    found = replayed(x)
    assert found.why_not is None and is_replayed(found)
    inner = [getattr(x, n) for n in x.__tensor_flatten__()[0]]
    made, original = found.make(*inner), found._by_itself(*inner)
    assert replay._difference(original, made) == ""
    assert all(getattr(made, n) is t for n, t in zip(x.__tensor_flatten__()[0], inner, strict=True))


def test_plans_and_compiled_functions_replay() -> None:
    x = two()
    plan = FlattenPlan.of([x])
    leaves = plan.unwrap([x])
    first, second = plan.wrap(leaves)[0], plan.wrap(leaves)[0]
    assert "replayed.make(" in plan.wrap.__source__  # type: ignore[attr-defined]
    assert replay._difference(first, second) == "" and second.a is x.a
    compiled = aot_compile(lambda x: x * 2)
    for _ in range(3):
        x.requires_grad_()
        result = compiled(x)
        (gradient,) = torch.autograd.grad(result, x, result.detach())
        assert torch.equal(result.a, x.a * 2) and torch.equal(gradient.b, x.b * 4)


@pytest.mark.parametrize("profiler", [cProfile.Profile, Profiler])
def test_a_profiler_stays_and_is_not_disturbed(profiler: Any) -> None:
    """One in C cannot be set again by who has taken it away."""
    x, profiler = two(), profiler()
    profiler.enable()
    try:
        own = sys.getprofile()
        found = replayed(x)
        # From Python 3.12 on, the one in C has a place of its own, beside that of `sys.setprofile`.
        assert sys.getprofile() is own and is_replayed(found) == (own is None)
    finally:
        profiler.disable()
    assert replay._difference(x, found.make(x.a, x.b)) == "" and is_replayed(found)


def test_another_offset_and_inner_gradients_are_the_class_s_own() -> None:
    found, memory = replayed(two()), torch.randn(5, 6)
    part = found.make(memory[1:], memory[1:])
    assert part.storage_offset() == 6 == found._by_itself(memory[1:], memory[1:]).storage_offset()
    a = torch.randn(4, 6, requires_grad=True)
    assert found.make(a, a).requires_grad == found._by_itself(a, a).requires_grad


class SaysNo(Base):
    __wrapper_replay__ = False


class HasSlots(Base):
    __slots__ = ("more",)


class Checks(Base):
    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)


class Ends(Base):
    def __del__(self) -> None:
        pass


class Clones(Base):
    def also(self, a: torch.Tensor) -> None:
        self.a = a.clone()


class ReadsSize(Base):
    rows: int

    def also(self, a: torch.Tensor) -> None:
        self.rows = a.shape[0]


class MakesAList(Base):
    def also(self, a: torch.Tensor) -> None:
        self.note = [1, 2]


@pytest.mark.parametrize(
    ("cls", "says"),
    [
        (SaysNo, "the class says __wrapper_replay__ = False"),
        (HasSlots, "HasSlots has __slots__"),
        (Checks, "Checks has __setattr__"),
        (Ends, "Ends has __del__"),
        (Clones, "it calls aten.clone.default"),
        (ReadsSize, "attribute rows does not come from the context"),
        (MakesAList, "attribute note does not come from the context"),
    ],
)
def test_what_is_not_replayed(cls: type, says: str) -> None:
    x = cls(torch.randn(3))
    found = replayed(x)
    assert found.why_not == says and not is_replayed(found)
    assert type(FlattenPlan.of([x]).wrap([torch.randn(3)])[0]) is cls


class Switched(Base):
    """What its constructor does depends on what is no argument of it."""

    on: ClassVar[bool] = False

    def also(self, a: torch.Tensor) -> None:
        if Switched.on:
            self.note = None


def test_comparing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "MODE", "check")
    found, inner = replayed(Switched(torch.randn(3), "a")), torch.randn(3)
    assert found.make(inner).note == "a"  # type: ignore[attr-defined]
    monkeypatch.setattr(Switched, "on", True)
    with pytest.raises(PlanError, match="Switched: what `__tensor_unflatten__` makes is not what was seen .* note is"):
        found.make(inner)


def test_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "MODE", "0")
    assert not is_replayed(replayed(two()))
    assert "__tensor_unflatten__" in FlattenPlan.of([two()]).wrap.__source__  # type: ignore[attr-defined]


def test_nothing_is_kept_alive() -> None:
    x = two()
    found, seen = replayed(x), weakref.ref(x.a)
    made = weakref.ref(found.make(x.a, x.b))
    del x
    gc.collect()
    assert seen() is None and made() is None
