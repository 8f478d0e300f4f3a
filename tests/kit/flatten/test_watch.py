"""What constructors do besides making a tensor is seen."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
import torch

from subclass_aot.kit.flatten.watch import watched

make_wrapper: Any = torch.Tensor._make_wrapper_subclass
COUNT = 0
SEEN: list[object] = []
flag = True
LIMITS = {"a": 1}


class Base(torch.Tensor):
    """A wrapper of one tensor; subclasses do more."""

    made: ClassVar[int] = 0
    all: ClassVar[Any] = weakref.WeakValueDictionary()
    a: torch.Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, a: torch.Tensor, note: Any = None) -> Any:
        options: dict[str, Any] = {}
        options["dtype"] = a.dtype
        options["strides"] = a.stride()
        return make_wrapper(cls, a.size(), **options)

    def __init__(self, a: torch.Tensor, note: Any = None) -> None:
        self.a, self.note = a, note
        self.also(a)

    def also(self, a: torch.Tensor) -> None:
        """What a subclass does."""

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        return ["a"], self.note

    @classmethod
    def __tensor_unflatten__(cls, inner: dict[str, torch.Tensor], context: Any, size: Any, stride: Any) -> Any:
        return cls(inner["a"], context)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise NotImplementedError


def an_operator(self: Any, a: torch.Tensor) -> None:
    self.a = a.clone()


def a_view(self: Any, a: torch.Tensor) -> None:
    self.a = a[:]


def a_value(self: Any, a: torch.Tensor) -> None:
    self.note = a.sum().item() > 0


def a_global(self: Any, a: torch.Tensor) -> None:
    global COUNT
    COUNT += 1


def a_list(self: Any, a: torch.Tensor) -> None:
    SEEN.append(1)


def a_list_by_another_name(self: Any, a: torch.Tensor) -> None:
    seen = SEEN
    seen.append(1)


def an_element(self: Any, a: torch.Tensor) -> None:
    LIMITS["a"] = 2


def an_element_by_another_name(self: Any, a: torch.Tensor) -> None:
    limits = LIMITS
    limits["a"] = 2


def an_attribute_of_the_class(self: Any, a: torch.Tensor) -> None:
    cls = type(self)
    cls.made = cls.made + 1


def an_attribute_of_the_inner_tensor(self: Any, a: torch.Tensor) -> None:
    a.seen = True  # type: ignore[attr-defined]


def a_registry(self: Any, a: torch.Tensor) -> None:
    Base.all[1] = self


def a_variable_of_a_closure(self: Any, a: torch.Tensor) -> None:
    def count() -> None:
        nonlocal counted
        counted += 1

    counted = 0
    count()


def a_flag(self: Any, a: torch.Tensor) -> None:
    self.note = 1 if flag else 2


def numbers_of_chance(self: Any, a: torch.Tensor) -> None:
    self.note = id(object())
    torch.manual_seed(0)


class Last:
    note: object = None


def an_attribute_of_another(self: Any, a: torch.Tensor) -> None:
    last: Any = Last
    last.note = 1  # which the tensor has, too


def an_attribute_of_the_inner_tensor_that_it_has_too(self: Any, a: Any) -> None:
    a.note = 1


def made_with(closed: bool) -> Callable[..., None]:
    def a_variable_of_its_closure(self: Any, a: torch.Tensor) -> None:
        self.note = None if closed else 1

    return a_variable_of_its_closure


READS_ITS_CLOSURE = made_with(True)
OTHERS = [
    an_attribute_of_another, an_attribute_of_the_inner_tensor_that_it_has_too, READS_ITS_CLOSURE,
    an_operator, a_view, a_value, a_global, a_list, a_list_by_another_name, an_element, an_element_by_another_name,
    an_attribute_of_the_class, an_attribute_of_the_inner_tensor, a_registry, a_variable_of_a_closure, a_flag,
    numbers_of_chance,
]  # fmt: skip


def why_not(also: Callable[..., None]) -> str | None:
    cls, inner = type("Made", (Base,), {"also": also}), torch.ones(2)
    made, why = watched(lambda: cls(inner))
    assert type(made) is cls
    return why


SAYS = {
    an_operator: "it calls aten.clone.default",
    a_global: "a_global has STORE_GLOBAL COUNT",
    a_list: "it changes a container that others have",
    an_element: "an_element sets an element of something else",
    an_attribute_of_the_class: "an_attribute_of_the_class sets made of something else",
    a_flag: "a_flag reads flag, a bool that can change",
    READS_ITS_CLOSURE: "a_variable_of_its_closure reads closed of its closure",
}


@pytest.mark.parametrize("also", OTHERS)
def test_what_is_seen(also: Callable[..., None]) -> None:
    assert why_not(also) == SAYS.get(also, why_not(also)) is not None


def test_ordinary_constructors() -> None:
    def ordinary(self: Any, a: torch.Tensor) -> None:
        kept = [1]
        kept.append(2)
        self.note = LIMITS.get("b")
        self.note = [each for each in kept if each not in kept] and a
        if (isinstance(a, torch.Tensor) and len(kept) > 5) or a.dim() > 7:
            raise ValueError

    assert why_not(Base.also) is None
    assert why_not(ordinary) is None


def test_errors_pass() -> None:
    def fails(self: Any, a: torch.Tensor) -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        why_not(fails)
    assert sys.getprofile() is None
