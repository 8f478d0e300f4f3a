"""Comparing what a class has with what it had."""

from __future__ import annotations

from typing import Any

from subclass_aot.base import exact
from subclass_aot.engine.objects.class_guard import ClassGuard, is_method
from subclass_aot.engine.objects.nodes import ObjectAt, ValueAt
from subclass_aot.engine.tables import Table


def guarded() -> tuple[Any, ClassGuard]:
    class Made:
        level = 1

        def go(self) -> None: ...

        @property
        def prop(self) -> int:
            return 1

    return Made, ClassGuard(Made, [(name, ValueAt(value)) for name, value in Table("class").read(Made)])


def test_what_is_unchanged_fits_at_once() -> None:
    cls, guard = guarded()
    assert exact.same_items(guard.kept) and guard.fits()
    cls.go, cls.__doc__ = cls.go, "other"  # data of Python's own does not count
    assert not exact.same_items(guard.kept)
    assert guard.fits() and exact.same_items(guard.kept)


def test_data_is_compared_elsewhere() -> None:
    cls, guard = guarded()
    cls.level = 2
    assert guard.fits() and exact.same_items(guard.kept)


def test_other_methods_and_names() -> None:
    for name, value in (("go", lambda self: None), ("prop", property(lambda self: 1)), ("late", 1), ("level", len)):
        cls, guard = guarded()
        setattr(cls, name, value)
        assert guard.fits() is (name == "level")  # a builtin is data
        cls, guard = guarded()
        if name != "late":
            delattr(cls, name)
            assert not guard.fits()


def test_which_nodes_are_methods() -> None:
    assert is_method(ValueAt(len.__class__)) and is_method(ValueAt(property())) and is_method(ValueAt(lambda: 1))
    assert not is_method(ValueAt(1)) and not is_method(ValueAt(len)) and not is_method(ObjectAt(0))
