"""Weak references, of each kind that Python has: what they lead to, and how another one is made."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from typing import Any, Literal

WeakKind = Literal["ref", "WeakMethod", "proxy"]
"""What makes one, by its name in the module `weakref`."""

REFERENT = "()"
"""A step on the way to an object: to what a weak reference leads to."""

_KINDS: Mapping[type, WeakKind] = {
    weakref.ref: "ref",
    weakref.WeakMethod: "WeakMethod",
    weakref.ProxyType: "proxy",
    weakref.CallableProxyType: "proxy",
}


def is_weak(value: object) -> bool:
    """Returns whether a value is a weak reference. A proxy claims to be its target: check this first.

    A proxy says of itself that it is what it leads to: ask this first.
    """
    return type(value) in _KINDS


def referent(reference: object) -> Any:
    """Returns what a weak reference leads to; None if that is gone.

    >>> class Cell:
    ...     pass
    >>> cell = Cell()
    >>> referent(weakref.ref(cell)) is referent(weakref.proxy(cell)) is cell
    True
    """
    held: Any = reference
    if issubclass(type(reference), weakref.ref):
        return held()
    try:
        return held.__init__.__self__  # Python shows it in no other way
    except (AttributeError, ReferenceError):  # its class hides what it has, or it is gone
        return None


def weak_kind(reference: object) -> WeakKind:
    """Returns the kind of a weak reference."""
    return _KINDS[type(reference)]


def make_weak(kind: WeakKind, target: object) -> Any:
    """Makes a weak reference of a kind. Nothing is called when the target is gone."""
    return getattr(weakref, kind)(target)
