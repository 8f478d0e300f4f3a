"""The class of a symbolic number, as a program sees it: that of the number.

Note [Classes of symbols]
~~~~~~~~~~~~~~~~~~~~~~~~~
`isinstance(n, int)` and `type(n)` are found by names, and `shown_type.py` gives a program others. Where Python itself
asks, in `match n: case int()`, in `functools.singledispatch`, and in `n.__class__`, it reads the attribute `__class__`.
So the classes of symbols have one that gives code of the program the class of the number, and all other code their own.
A class cannot be given such an attribute by an assignment, which would be one of its metaclass: it is put into its
dictionary.
"""

from __future__ import annotations

import functools
import gc
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from subclass_aot.base import _torch
from subclass_aot.base.put_back import PutBack
from subclass_aot.subjects.numbers.text import PLAIN, is_of_program


@contextmanager
def classes_are_those_of_numbers() -> Iterator[None]:
    """Runs the block so that symbolic numbers have the classes of numbers in the user's code."""
    before = {cls: vars(cls).get("__class__") for cls in PLAIN}
    with PutBack(functools.partial(_write, before)):
        _write({cls: property(functools.partial(_class_of, plain)) for cls, plain in PLAIN.items()})
        yield


def _class_of(plain: type, number: object) -> type:
    frame = sys._getframe(1)
    file = frame.f_code.co_filename
    if file in _LIBRARIES:
        return type(number)
    asks = is_of_program(frame) or file == functools.__file__
    if not asks and not file.startswith("<"):  # torch asks thousands of times; generated files are of several modules
        _LIBRARIES.add(file)
    return plain if asks and not _torch.wrappers.is_nested_int(number) else type(number)


_LIBRARIES: set[str] = set()
"""Files that are known to be no code of a program."""


def _write(attributes: Mapping[Any, property | None]) -> None:
    """Puts an attribute `__class__` into the dictionary of each class, or removes it."""
    for cls, attribute in attributes.items():
        (names,) = [x for x in gc.get_referents(vars(cls)) if type(x) is dict]
        if attribute is None:
            names.pop("__class__", None)
        else:
            names["__class__"] = attribute
        cls.__doc__ = cls.__doc__  # Python keeps what it has found of a class until an attribute is set
