"""What stands in places of torch while a program is traced: a table, to which each subject adds its lines.

Note [Stand-ins]
~~~~~~~~~~~~~~~~
Some of what a program does in torch, neither a mode nor a class sees: it takes place in C++, or in Python that asks
nobody. So functions of this library stand in these places while a program is traced. Each is declared once, beside what
it is about:

    @stands_in(torch._C, "fork")
    def _forked(torchs, function, *args, **kwargs): ...

It is called with what it stands for, and then with the arguments. In other threads torch's function is called.
What is no function is a line of the same table, for all threads: see `has_value`. Hooks of all modules have a table of
their own.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, TypeVar

from torch.utils.hooks import RemovableHandle

from subclass_aot.base.put_back import PutBack, attributes_put_back

_F = TypeVar("_F", bound=Callable[..., Any])


class _StandIn:
    """Stands in a place of torch. For a function it is made anew only if another function is there by now."""

    def __init__(self, holder: Any, name: str, make: Callable[[Any], Any] | None, value: object = None) -> None:
        self.holder, self.name, self.make = holder, name, make
        self.made: tuple[Any, Any] = None, value  # of what it was made last, and what


_TABLE: list[_StandIn] = []


def stands_in(holder: Any, name: str, is_static: bool = False) -> Callable[[_F], _F]:
    """Declares a function that stands for one of torch in traces. See Note [Stand-ins].

    Args:
        holder: The class or module that has torch's function. What need not be imported by then is named:
            `"torch.distributed.fsdp:FullyShardedDataParallel"`.
        name: The name of the function. What is not there has no stand-in.
        is_static: Whether it is a static method of a class.
    """

    def declare(function: _F) -> _F:
        def make(torchs: Callable[..., Any]) -> Any:
            @functools.wraps(torchs)
            def stands(*args: object, **kwargs: object) -> Any:
                return function(torchs, *args, **kwargs) if _in_thread.is_traced else torchs(*args, **kwargs)

            return staticmethod(stands) if is_static else stands

        _TABLE.append(_StandIn(holder, name, make))
        return function

    return declare


def has_value(holder: Any, name: str, value: object) -> None:
    """Declares what an attribute is while a program is traced, to all threads."""
    _TABLE.append(_StandIn(holder, name, None, value))


_HOOKS: list[tuple[Callable[[Callable[..., None]], RemovableHandle], Callable[..., None]]] = []


def hooks_in(register: Callable[[Callable[..., None]], RemovableHandle]) -> Callable[[_F], _F]:
    """Declares a hook that is called while a program is traced, in that thread.

    Args:
        register: What registers it.
    """

    def declare(function: _F) -> _F:
        def hook(*args: object) -> None:
            if _in_thread.is_traced:
                function(*args)

        _HOOKS.append((register, hook))
        return function

    return declare


@contextmanager
def stand_ins() -> Iterator[None]:
    """Runs a block of a trace, in this thread, with all stand-ins in their places, and with hooks. Traces run one at a
    time.

    See Note [Stand-ins].
    """
    holders = [_named(each.holder) if type(each.holder) is str else each.holder for each in _TABLE]
    found = [x for x in zip(holders, _TABLE, strict=True) if getattr(x[0], x[1].name, None) is not None]
    of_thread = partial(setattr, _in_thread, "is_traced", _in_thread.is_traced)
    with ExitStack() as stack:
        stack.enter_context(PutBack(attributes_put_back((holder, each.name) for holder, each in found)))
        stack.enter_context(PutBack(of_thread))
        for register, hook in _HOOKS:
            stack.enter_context(PutBack(register(hook).remove))
        _in_thread.is_traced = True
        for holder, each in found:
            torchs = getattr(holder, each.name)
            if each.make is not None and torchs is not each.made[0]:
                each.made = torchs, each.make(torchs)
            setattr(holder, each.name, each.made[1])
        yield


def _named(holder: str) -> Any:
    """Returns a module, or a class of one; None where it is not imported."""
    module, _, cls = holder.partition(":")
    found = sys.modules.get(module)
    return getattr(found, cls, None) if cls else found


class _InThread(threading.local):
    """Says whether a program is traced in this thread."""

    is_traced = False


_in_thread = _InThread()
