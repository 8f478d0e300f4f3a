"""Blocks that put back what they set, also where a signal comes at the worst moment.

Note [What a block puts back]
~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
Python handles signals between any two instructions of Python code: before the first line of a `finally` too, and of an
`__exit__`. What the handler raises there leaves the block, and what the block has set stays for good: a parameter
without data in a model, a function of torch that is another one. Nothing that the block itself does can prevent it.

So each block that sets something stands on a stack of its thread for as long as that is set. A block that is left puts
back what the blocks inside have not, the innermost first, and then its own. So whatever is missed is put back by the
next block around it, in order. The outermost block of a trace sets nothing, and ends all others. A block that a signal
comes to while it is being entered is left at once, since no block need be around it.

What puts back is called again where a signal came in the middle of it: it has to give the same the second time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any, Self


class PutBack:
    """Calls a function at the end of a block, at the latest at the end of a block around it.

    See Note [What a block puts back].

    Args:
        function: What puts back what is set in the block. It may be called twice.

    >>> numbers = [1, 2]
    >>> with PutBack(lambda: numbers.__setitem__(0, 1)):
    ...     numbers[0] = 3
    >>> numbers
    [1, 2]
    """

    def __init__(self, function: Callable[[], object]) -> None:
        self._function = function

    def put_back(self) -> None:
        """Puts back what is set in the block."""
        self._function()

    def __enter__(self) -> Self:
        try:
            _entered.stack.append(self)
            return self
        except BaseException as error:  # of a signal: nobody leaves the block then
            self.__exit__(type(error))
            raise

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        stack = _entered.stack
        if kind is GeneratorExit and self in stack:  # it was missed, and its generator is freed: at any time
            stack.remove(self)
            self.put_back()
        while self in stack:  # else a block around it was left before
            last = stack[-1]
            last.put_back()
            stack.pop()


def attributes_put_back(places: Iterable[tuple[Any, str]]) -> Callable[[], None]:
    """Returns what gives objects the attributes that they have now, or deletes those that they do not have themselves.

    Args:
        places: Each object or class with a name.

    >>> class Cell: ...
    >>> put_back = attributes_put_back([(Cell, "value")])
    >>> Cell.value = 1
    >>> put_back(), put_back(), hasattr(Cell, "value")
    (None, None, False)
    """
    before = [(holder, name, vars(holder).get(name, _ABSENT)) for holder, name in places]

    def put_back() -> None:
        for holder, name, value in reversed(before):
            if value is not _ABSENT:
                setattr(holder, name, value)
            elif name in vars(holder):
                delattr(holder, name)

    return put_back


_ABSENT = object()


class _Entered(threading.local):
    """The blocks that are entered in this thread, innermost last."""

    def __init__(self) -> None:
        self.stack: list[PutBack] = []


_entered = _Entered()
