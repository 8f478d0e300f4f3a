"""What tells the context of a wrapper: attributes where nothing else does, and else its class."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor as ForeignTensor

from subclass_aot import Int8Weight, TwoTensor, WrapperTensor, aot_compile
from subclass_aot.engine.facts.metadata import metadata_of
from subclass_aot.engine.guards.contexts import absent_fields, constants_of, is_constant, same_layout

SHARED = ["value"]


class Foreign(torch.Tensor):
    """Of another library; those below tell their context in other ways."""

    @staticmethod
    def __new__(cls, value: torch.Tensor, note: Any = 1) -> Any:
        made: Any = torch.Tensor._make_wrapper_subclass(cls, value.shape, dtype=value.dtype)
        made.value, made.note = value, note
        return made

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        return ["value"], (self.note, 1)  # type: ignore[attr-defined]

    @classmethod
    def __tensor_unflatten__(cls, inner: Any, context: Any, size: Any, stride: Any) -> Any:
        return cls(inner["value"], context[0] if isinstance(context, tuple) else context)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        args = [arg.value if isinstance(arg, Foreign) else arg for arg in args]
        return cls(func(*args, **kwargs))


class AsDict(Foreign):
    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        return ["value"], {"note": self.note, "more": [self.note]}  # type: ignore[attr-defined]


class Calls(Foreign):
    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        return ["value"], str(self.note)  # type: ignore[attr-defined]


class ReadsGlobal(Foreign):
    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        return SHARED, None


class ReadsShape(Foreign):
    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        return ["value"], self.shape


class Deep(Foreign):
    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        return ["value"], self.note.real  # type: ignore[attr-defined]


class Branches(Foreign):
    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        return ["value"], 1 if self.note else 2  # type: ignore[attr-defined]


class WithDefault(Foreign):
    def __tensor_flatten__(self, more: Any = SHARED) -> tuple[list[str], Any]:
        return ["value"], more


class OfClass(Foreign):
    kind = SHARED

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        return ["value"], self.kind


class Guarded(Foreign):
    @staticmethod
    def __metadata_guard__(one: Any, other: Any) -> bool:
        return True


class Own(Foreign):
    def __getattribute__(self, name: str) -> Any:
        return super().__getattribute__(name)


def constants(x: Any) -> dict[str, object] | None:
    found = constants_of(x, metadata_of(x, "", {}))
    return None if found is None else dict(found)


def ones() -> torch.Tensor:
    return torch.ones(2)


def test_of_a_declared_class() -> None:
    assert constants(TwoTensor(ones(), ones())) == {}
    weight = Int8Weight.from_float(torch.ones(4, 4))
    assert constants(weight) == dict(weight.__wrapper_attributes__(("codes", "scale"), weight.__tensor_flatten__()[1]))


def test_of_a_class_that_only_puts_attributes_together() -> None:
    assert constants(ForeignTensor(ones(), ones())) == {}
    assert constants(Foreign(ones(), "a")) == {"note": "a"}
    assert constants(AsDict(ones(), 2)) == {"note": 2}


@pytest.mark.parametrize("cls", [Calls, ReadsGlobal, ReadsShape, Deep, Branches, WithDefault, OfClass, Guarded, Own])
def test_of_a_class_that_may_go_by_anything(cls: Any) -> None:
    assert constants(cls(ones())) is None


def test_what_can_change_is_asked_for() -> None:
    assert constants(Foreign(ones(), [1])) is None
    x = Foreign(ones())
    del x.note
    with pytest.raises(AttributeError):
        constants(x)


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("cls", [Foreign, AsDict, Calls, Branches, Guarded, Own])
def test_a_changed_context_is_compiled_anew(cls: Any) -> None:
    compiled = aot_compile(lambda x: x * 2)
    compiled(cls(ones(), 1))
    compiled(cls(ones(), 1))
    assert not compiled.recompiles
    compiled(cls(ones(), 0))
    compiled(cls(ones(), True))
    expected = {Guarded: 0, Branches: 1, Foreign: 2, AsDict: 2, Own: 2, Calls: 2}
    assert len(compiled.recompiles) == expected[cls]


def test_absent_fields() -> None:
    class Maybe(WrapperTensor, fallback="each"):
        value: torch.Tensor
        more: torch.Tensor | None = None

    values = Maybe(ones()), Maybe(ones(), ones()), ForeignTensor(ones(), ones())
    assert [absent_fields(metadata_of(x, "", {})) for x in values] == [("more",), (), ()]


def test_same_layout() -> None:
    x = Foreign(ones(), "a")
    assert same_layout(x, ("value",), ("a", 1)) and not same_layout(x, ("value",), ("b", 1))
    assert not same_layout(x, ("other",), ("a", 1)) and same_layout(Guarded(ones()), ("value",), "anything")


def test_constants() -> None:
    @dataclasses.dataclass(frozen=True)
    class Frozen:
        value: Any

    @dataclasses.dataclass
    class Open:
        value: Any

    assert all(map(is_constant, [1, "a", None, (1, ("a",)), frozenset([1]), Frozen(1), torch.float32, int]))
    assert not any(map(is_constant, [[1], {}, (1, [2]), Frozen([1]), Open(1), object()]))
