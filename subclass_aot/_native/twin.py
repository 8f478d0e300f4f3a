"""What `exact.c` does, in Python. It says what the functions promise, and stands in where no compiler was at hand."""

from __future__ import annotations

from typing import Any, TypeVar

_Values = TypeVar("_Values")


def exactly(values: _Values, classes: tuple[type, ...], /) -> _Values:
    """`values` itself, if it is a list or a tuple of instances of exactly these classes, one by one.

    A list or tuple is not consumed by looking at it; anything else, an iterator for one, is refused untouched.

    Raises:
        TypeError: It is not.

    >>> exactly([1, "a"], (int, str))
    [1, 'a']
    >>> exactly([True, "a"], (int, str))
    Traceback (most recent call last):
    TypeError: the values are not of exactly these classes
    """
    if not isinstance(classes, tuple):
        raise TypeError("exactly(values, classes) takes two arguments, and classes in a tuple")
    items: Any = values
    if type(items) in (list, tuple) and are_exactly(classes, *items):
        return values
    raise TypeError("the values are not of exactly these classes")


def are_exactly(classes: tuple[type, ...], /, *values: object) -> bool:
    """Whether the values are instances of exactly these classes, one by one.

    >>> are_exactly((int, str), 1, "a"), are_exactly((int, str), True, "a"), are_exactly((int,), 1, 2)
    (True, False, False)
    """
    if not isinstance(classes, tuple):
        raise TypeError("are_exactly(classes, *values) takes classes in a tuple")
    return len(values) == len(classes) and all(type(value) is cls for value, cls in zip(values, classes, strict=True))


def same_items(kept: tuple[Any, ...], /) -> bool:
    """Whether dicts, and the `__dict__` of other objects, still hold the very same objects.

    Args:
        kept: Each holder, followed by the tuple of its names and values in turns, as they are to be, in their order.

    >>> table = {"a": 1, "b": None}
    >>> kept = (table, ("a", 1, "b", None))
    >>> same_items(kept)
    True
    >>> table["b"] = 2
    >>> same_items(kept)
    False
    """
    if not isinstance(kept, tuple) or len(kept) % 2:
        raise TypeError("same_items(kept) takes a tuple of holders, each followed by its items")
    for holder, items in zip(kept[::2], kept[1::2], strict=True):
        table = holder if isinstance(holder, dict) else holder.__dict__
        now = [x for item in table.items() for x in item]
        if len(now) != len(items) or any(a is not b for a, b in zip(now, items, strict=True)):
            return False
    return True
