"""The functions of `exact.c` in Python.

They define what the functions promise, and run where no compiler was at hand.
"""

from __future__ import annotations

import operator
import types
from itertools import chain
from typing import Any, TypeVar

_Values = TypeVar("_Values")


def exactly(values: _Values, classes: tuple[type, ...], /) -> _Values:
    """Returns `values` itself, if it is a list or a tuple of instances of exactly these classes, one by one.

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
    """Returns whether the values are instances of exactly these classes, one by one.

    >>> are_exactly((int, str), 1, "a"), are_exactly((int, str), True, "a"), are_exactly((int,), 1, 2)
    (True, False, False)
    """
    if not isinstance(classes, tuple):
        raise TypeError("are_exactly(classes, *values) takes classes in a tuple")
    return len(values) == len(classes) and all(type(value) is cls for value, cls in zip(values, classes, strict=True))


def same_items(kept: tuple[Any, ...], /) -> bool:
    """Returns whether dicts, lists, sets, cells of closures, and `__dict__` of others still hold the very same objects.

    Args:
        kept: Each holder, followed by the tuple of its names and values in turns, as they are to be, in their order.
            Of a list or set, the elements; of a cell, what it holds. A dict with one name, in a tuple, is followed by
            what stands there, alone in a tuple; so is another object with the name of a slot, but by nothing if that is
            empty.

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
        now = items_of(holder)
        if len(now) != len(items) or not all(map(operator.is_, now, items)):
            return False
    return True


def items_of(holder: object) -> tuple[Any, ...]:
    """Returns what `same_items` compares of a holder."""
    if isinstance(holder, list):
        return tuple(list.__iter__(holder))  # below what a subclass makes of it
    if type(holder) is set:
        return tuple(holder)
    if isinstance(holder, types.CellType):
        return (holder.cell_contents,)
    if type(holder) is tuple and isinstance(holder[0], dict):
        return (holder[0].get(holder[1]),)
    if type(holder) is tuple:
        try:
            return (object.__getattribute__(*holder),)
        except AttributeError:
            return ()
    if isinstance(holder, type):
        return tuple(chain.from_iterable(vars(holder).items()))
    table = holder if isinstance(holder, dict) else holder.__dict__
    return tuple(chain.from_iterable(dict.items(table)))


def have_exactly(values: object, classes: tuple[type, ...], name: str, attributes: tuple[object, ...], /) -> bool:
    """Returns whether `values` is a list or tuple of instances of exactly these classes, with exactly these attributes.

    Reading an attribute may run code; a list that has another length after it does not fit.

    Args:
        values: The values to compare.
        classes: The class of each value.
        name: The attribute.
        attributes: What it is, for each value: this very object. `None` where it is not read.

    >>> have_exactly([1, 2j], (int, complex), "real", (1, None)), have_exactly([1], (int,), "real", (2,))
    (True, False)
    """
    if not (isinstance(classes, tuple) and isinstance(attributes, tuple) and len(classes) == len(attributes)):
        raise TypeError("have_exactly(values, classes, name, attributes) takes two tuples of one length")
    sequence: Any = values
    if type(sequence) not in (list, tuple) or not are_exactly(classes, *sequence):
        return False
    pairs = zip(tuple(sequence), attributes, strict=True)
    fit = all(planned is None or getattr(value, name) is planned for value, planned in pairs)
    return fit and len(sequence) == len(classes)


def hold(holder: object, names: tuple[str, ...], /, *values: object) -> None:
    """Sets attributes of `holder`, whatever `__setattr__` its class has.

    >>> import types
    >>> holder = types.SimpleNamespace()
    >>> hold(holder, ("a", "b"), 1, 2)
    >>> holder
    namespace(a=1, b=2)
    """
    if not isinstance(names, tuple) or len(names) != len(values):
        raise TypeError("hold(holder, names, *values) takes as many values as names in a tuple")
    for name, value in zip(names, values, strict=True):
        object.__setattr__(holder, name, value)
