"""Methods of the user's classes that are replaced, added or deleted between calls, and methods that a call replaces."""

from __future__ import annotations

import abc
import copy
import dataclasses
import enum
import functools
import types
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch

import subclass_aot as sa
from subclass_aot.errors import CompiledFileError


def world() -> types.SimpleNamespace:
    """New classes, which belong to one test."""

    class Base:
        def base(self, x: Any) -> Any:
            return x + 10

    class Mixin:
        def mixin(self, x: Any) -> Any:
            return x - 1

    class Meta(type):
        def of_class(cls, x: Any) -> Any:
            return x * 7

    class P(Base, Mixin, metaclass=Meta):
        k = 2

        def go(self, x: Any) -> Any:
            return x * 2

        @staticmethod
        def static(x: Any) -> Any:
            return x * 3

        @classmethod
        def of(cls, x: Any) -> Any:
            return x * 4

        @property
        def prop(self) -> int:
            return 5

        def __call__(self, x: Any) -> Any:
            return x * 6

        def __len__(self) -> int:
            return 3

        def __add__(self, x: Any) -> Any:
            return x + 1

        def __bool__(self) -> bool:
            return True

        @functools.cached_property
        def cached(self) -> int:
            return 4

        partial = functools.partialmethod(go)

        def __getattr__(self, name: str) -> int:
            if name == "dynamic":
                return 3
            raise AttributeError(name)

        class Inner:
            level = 1

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(2, 2)

        def forward(self, x: Any) -> Any:
            return self.helper(self.linear(x)) * 2

        def helper(self, x: Any) -> Any:
            return x + 1

    @dataclasses.dataclass
    class Data:
        v: int = 1

        def go(self, x: Any) -> Any:
            return x * self.v

    class Color(enum.Enum):
        RED = 1

        def go(self, x: Any) -> Any:
            return x * 2

    class Pair(typing.NamedTuple):
        a: int

        def go(self, x: Any) -> Any:
            return x * self.a

    class Number(int):
        def go(self, x: Any) -> Any:
            return x * int(self)

    class Slots:
        __slots__ = ("v",)

        def go(self, x: Any) -> Any:
            return x * 2

    class Abstract(abc.ABC):
        @abc.abstractmethod
        def go(self, x: Any) -> Any: ...

    class Concrete(Abstract):
        def go(self, x: Any) -> Any:
            return x * 2

    class Descriptor:
        def __init__(self, n: int) -> None:
            self.n = n

        def __get__(self, of: object, cls: type | None = None) -> int:
            return self.n

    class Described:
        d = Descriptor(3)

    return types.SimpleNamespace(**{name: x for name, x in locals().items() if isinstance(x, type)})


def times(n: int) -> Callable[[Any, Any], Any]:
    return lambda self, x: x * n


def cached_anew(c: Any) -> None:
    c.P.cached = functools.cached_property(lambda self: 9)
    c.P.cached.__set_name__(c.P, "cached")


def put(cls: str, name: str, value: Any) -> Callable[[Any], None]:
    return lambda c: setattr(getattr(c, cls), name, value)


P, GO = (lambda c: c.P()), (lambda p, x: p.go(x))
Case = tuple[Callable[[Any], Any], Callable[[Any, Any], Any], Callable[[Any], object]]
CASES: dict[str, Case] = {
    "method": (P, GO, put("P", "go", times(9))),
    "static method": (P, lambda p, x: p.static(x), put("P", "static", staticmethod(lambda x: x * 9))),
    "class method": (P, lambda p, x: p.of(x), put("P", "of", classmethod(lambda cls, x: x * 9))),
    "property": (P, lambda p, x: p.prop * x, put("P", "prop", property(lambda self: 9))),
    "call": (P, lambda p, x: p(x), put("P", "__call__", times(9))),
    "len": (P, lambda p, x: len(p) * x, put("P", "__len__", lambda self: 9)),
    "bool": (P, lambda p, x: x * 2 if p else x, put("P", "__bool__", lambda self: False)),
    "operator": (P, lambda p, x: p + x, put("P", "__add__", times(9))),
    "getattr": (P, lambda p, x: p.dynamic * x, put("P", "__getattr__", lambda self, name: 9)),
    "one that appears": (P, lambda p, x: x * (2 if hasattr(type(p), "late") else 3), put("P", "late", times(9))),
    "one that hides that of a base": (P, lambda p, x: p.base(x), put("P", "base", times(9))),
    "on a base": (P, lambda p, x: p.base(x), put("Base", "base", times(9))),
    "on a mixin": (P, lambda p, x: p.mixin(x), put("Mixin", "mixin", times(9))),
    "one that is deleted": (P, lambda p, x: x if hasattr(type(p), "go") else x * 2, lambda c: delattr(c.P, "go")),
    "cached property": (P, lambda p, x: p.cached * x, cached_anew),
    "partial method": (P, lambda p, x: p.partial(x), put("P", "partial", functools.partialmethod(times(9)))),
    "metaclass": (P, lambda p, x: type(p).of_class(x), put("Meta", "of_class", times(9))),
    "a class": (lambda c: c.P, lambda p, x: p().go(x), put("P", "go", times(9))),
    "a class inside": (P, lambda p, x: p.Inner.level * x, put("P", "Inner", types.SimpleNamespace(level=9))),
    "data of a class inside": (P, lambda p, x: p.Inner.level * x, lambda c: setattr(c.P.Inner, "level", 9)),
    "data": (P, lambda p, x: p.k * x, put("P", "k", 9)),
    "forward": (lambda c: c.Net(), lambda p, x: p(x), put("Net", "forward", times(9))),
    "of a module": (lambda c: c.Net(), lambda p, x: p(x), put("Net", "helper", times(9))),
    "dataclass": (lambda c: c.Data(), GO, put("Data", "go", times(9))),
    "enumeration": (lambda c: c.Color.RED, GO, put("Color", "go", times(9))),
    "named tuple": (lambda c: c.Pair(2), GO, put("Pair", "go", times(9))),
    "number": (lambda c: c.Number(2), GO, put("Number", "go", times(9))),
    "slots": (lambda c: c.Slots(), GO, put("Slots", "go", times(9))),
    "abstract base": (lambda c: c.Concrete(), GO, put("Concrete", "go", times(9))),
    "descriptor": (lambda c: c.Described(), lambda p, x: p.d * x, lambda c: setattr(vars(c.Described)["d"], "n", 9)),
    "another descriptor": (lambda c: c.Described(), lambda p, x: p.d * x, lambda c: setattr(c.Described, "d", 9)),
    "get": (lambda c: c.Described(), lambda p, x: p.d * x, put("Descriptor", "__get__", lambda self, of, cls=None: 9)),
    "builtin": (P, lambda p, x: p.static(x), put("P", "static", staticmethod(torch.exp))),
}


@pytest.mark.every_case
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("how", ["held", "passed"])
@pytest.mark.parametrize("name", CASES)
def test_as_in_eager_mode(name: str, how: str, dynamic: bool | None) -> None:
    make, program, change = CASES[name]
    classes = world()
    thing = make(classes)
    call: Any = (lambda given, x: program(thing, x)) if how == "held" else program
    compiled = sa.aot_compile(call, dynamic=dynamic)

    def check(rows: int) -> None:
        x = torch.arange(2.0 * rows).view(rows, 2).requires_grad_()
        given = None if how == "held" else thing
        results = [run(given, x) for run in (call, compiled)]
        assert torch.equal(*results), compiled.recompiles
        assert torch.equal(*[torch.autograd.grad(result.sum(), x)[0] for result in results])

    for rows in (2, 2, 3, 4):
        check(rows)
    change(classes)
    before = len(compiled.recompiles)
    if name == "cached property":
        vars(thing).clear()
    for rows in (4, 4, 5):
        check(rows)
    assert len(compiled.recompiles) > before and not any(
        "its entry was dropped" in each for each in compiled.recompiles
    )


def test_the_reason() -> None:
    classes = world()
    compiled, p, x = sa.aot_compile(lambda p, x: p.go(x)), classes.P(), torch.ones(2)
    for change in (
        lambda: None,
        lambda: setattr(classes.P, "go", times(3)),
        lambda: setattr(classes.P, "late", times(3)),
    ):
        change()
        compiled(p, x)
        compiled(p, x)
    path = classes.P.__qualname__
    assert compiled.recompiles == [f"{path}.go was replaced", f"{path}.late: absent before, function <lambda> now"]
    assert f"{path}.go was replaced" in compiled.explain()


def test_what_was_compiled_before_serves_again() -> None:
    classes = world()
    compiled, p, x = sa.aot_compile(lambda p, x: p.go(x)), classes.P(), torch.ones(2)
    compiled(p, x)
    for _ in range(3):
        with mock.patch.object(classes.P, "go", times(9)):
            assert compiled(p, x).tolist() == [9, 9] or len(compiled.recompiles) > 1
        assert compiled(p, x).tolist() == [2, 2]
    replaced = [each for each in compiled.recompiles if "was replaced" in each]
    assert len(replaced) == 3  # each is another function; the first one is found again


def test_python_puts_something_into_a_class() -> None:
    classes = world()
    compiled, d, x = sa.aot_compile(lambda d, x: d.go(x)), classes.Data(), torch.ones(2)
    compiled(d, x)
    copy.copy(d)
    classes.Data.__doc__ = "other"
    isinstance(d, classes.Concrete)
    compiled(d, x)
    assert compiled.recompiles == []


def test_a_call_replaces_a_method() -> None:
    classes = world()
    p, other = classes.P(), times(9)

    def program(x: torch.Tensor) -> torch.Tensor:
        before = p.go(x)
        classes.P.go = other
        return before + p.go(x)

    compiled = sa.aot_compile(program)
    go = classes.P.go
    for _ in range(2):
        classes.P.go = go
        assert compiled(torch.ones(2)).tolist() == [11, 11] and classes.P.go is other
    assert compiled(torch.ones(2)).tolist() == [18, 18]


def test_a_patch_inside() -> None:
    classes = world()
    p, other = classes.P(), times(9)

    def program(x: torch.Tensor) -> torch.Tensor:
        with mock.patch.object(classes.P, "go", other):
            inside = p.go(x)
        return inside + p.go(x)

    compiled, go = sa.aot_compile(program), classes.P.go
    for _ in range(2):
        assert compiled(torch.ones(2)).tolist() == [11, 11] and classes.P.go is go
    assert compiled.recompiles == []


class Saved:
    def go(self, x: Any) -> Any:
        return x * 2


class SavedMeta(type):
    def of(cls, x: Any) -> Any:
        return x * 2


class OfMeta(metaclass=SavedMeta): ...


@pytest.mark.parametrize(("cls", "name", "program"), [
    (Saved, "go", lambda p, x: p.go(x)),
    (SavedMeta, "of", lambda p, x: OfMeta.of(x)),
])  # fmt: skip
def test_a_file_of_one_method_does_not_serve_another(cls: Any, name: str, program: Any, tmp_path: Path) -> None:
    p, x = Saved(), torch.ones(2)
    p.note = 1
    compiled = sa.aot_compile(program)
    assert compiled(p, x).tolist() == [2, 2]
    compiled.save(tmp_path / "file")
    loaded = sa.load_compiled(tmp_path / "file", program, trust=True)
    assert loaded(p, x).tolist() == [2, 2] and "loaded from" in loaded.explain()
    with mock.patch.object(cls, name, times(9)):
        loaded = sa.load_compiled(tmp_path / "file", program, trust=True)
        assert loaded(p, x).tolist() == [9, 9]
        if cls is Saved:  # the arguments bring it
            with pytest.raises(CompiledFileError, match="Saved"):
                sa.load_compiled(tmp_path / "file", trust=True)(p, x)
    assert loaded(p, x).tolist() == [2, 2]
