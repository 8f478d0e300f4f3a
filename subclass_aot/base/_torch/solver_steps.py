"""Counts what sympy does for a trace, such that an expression that it finds no end with becomes no symbol.

Note [Steps of the solver]
~~~~~~~~~~~~~~~~~~~~~~~~~~
Sympy has no budget. Of quotients and remainders by sizes, in one another, it looks for minutes whether something is
true, and for hours a step further. What takes its time makes objects: ten thousand a second, whatever the machine does
beside. A question of a model takes at most a few hundred, and a trace of one some ten thousand.

So the one place where sympy makes an object that is no symbol counts while a program is traced, in the thread that
traces. Where one question takes `OF_QUESTION` of them, or a trace `OF_TRACE`, the trace ends there, and begins again
with numbers for the sizes in the expression that was asked about.

Sympy keeps what it has found of an expression. What was left in the middle is unknown there, so that is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import TYPE_CHECKING, Any, TypeVar

from subclass_aot.base.put_back import PutBack, attributes_put_back

if TYPE_CHECKING:  # brings sympy
    import sympy

_T = TypeVar("_T")

OF_QUESTION = 20_000
"""How many steps one question about sizes may take: about two seconds."""
OF_TRACE = 200_000
"""How many all questions of a trace may take together."""

_NO_LIMIT = 1 << 62


class Steps:
    """The steps of one trace.

    Args:
        refuse: Gives the error that ends the trace, by the expressions that were asked about.
    """

    def __init__(self, refuse: Callable[[tuple[sympy.Basic, ...]], BaseException]) -> None:
        self._refuse = refuse
        self.count = 0
        self.limit = OF_TRACE
        self.asked: tuple[sympy.Basic, ...] | None = None
        self.thread = get_ident()

    def end(self) -> BaseException:
        """Returns the error that ends the trace. What is done on the way out is not counted."""
        from sympy.core.cache import clear_cache

        self.limit = _NO_LIMIT
        clear_cache()
        return self._refuse(self.asked or ())


@contextmanager
def counted(refuse: Callable[[tuple[sympy.Basic, ...]], BaseException]) -> Iterator[None]:
    """Runs the block so that steps are counted.

    Args:
        refuse: Gives the error that is raised where there are too many, by the expressions that were asked about.
    """
    from sympy.core.basic import Basic

    steps = Steps(refuse)
    make = Basic.__new__

    def count(cls: type, *args: object) -> Any:
        if steps.thread == get_ident():
            steps.count += 1
            if steps.count > steps.limit:
                raise steps.end()
        return make(cls, *args)

    before = _running[:]

    def put_back() -> None:
        _running[:] = before

    with PutBack(put_back), PutBack(attributes_put_back([(Basic, "__new__")])):
        _running.append(steps)
        Basic.__new__ = count
        yield


def ask(expressions: tuple[sympy.Basic, ...], function: Callable[..., _T], *args: Any) -> _T:
    """Calls what has sympy answer a question, within its budget.

    Args:
        expressions: Those of the question.
        function: What asks.
        *args: Its arguments.
    """
    steps = _running[-1] if _running else None
    if steps is None or steps.asked is not None or steps.limit == _NO_LIMIT or steps.thread != get_ident():
        return function(*args)
    steps.asked = expressions
    steps.limit = min(OF_TRACE, steps.count + OF_QUESTION)
    try:
        return function(*args)
    finally:
        steps.asked = None
        if steps.limit != _NO_LIMIT:
            steps.limit = OF_TRACE


_running: list[Steps] = []
"""The steps of the traces that run, the innermost last."""
