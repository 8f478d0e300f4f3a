"""Texts that are to be read, and not to be computed with."""

from __future__ import annotations

from collections.abc import Callable


class Text(str):
    """A text of several lines, which a notebook and the prompt of Python show as `print` does.

    >>> Text("a graph\\n  two nodes")
    a graph
      two nodes
    """

    def __repr__(self) -> str:
        return str(self)


def counted(number: int, what: str) -> str:
    """Returns how many there are in words.

    >>> counted(1, "signature"), counted(2, "signature")
    ('1 signature', '2 signatures')
    """
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def called(fn: Callable[..., object]) -> str:
    """Returns what a text calls a function: its name; of one that a function has made, the name of that.

    >>> called(len), called(counted), called(print.__class__)
    ('len', 'counted', 'builtin_function_or_method')
    """
    name: str = getattr(fn, "__qualname__", type(fn).__qualname__)
    return name.partition(".<locals>")[0]
