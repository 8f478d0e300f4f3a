"""What a function raises while it is traced.

Note [Functions that raise]
~~~~~~~~~~~~~~~~~~~~~~~~~~~
A trace puts everything back, so a function that raises in it has done nothing: no write, no draw, no count. In eager
mode it has done what stands before the line that raises, and callers that catch the error build on that. So where a
trace ends in an error of the function's own, the function itself runs for that call, once: it does what it does, and
raises as in eager mode. Where it does not raise there (backward does, or the trace was at fault), its result is that of
eager mode, and a warning says so.

>>> import subclass_aot as sa
>>> @sa.aot_compile
... def step(x, seen):
...     seen.append(x.sum())
...     raise ValueError("a bad batch")
>>> seen = []
>>> step(torch.ones(3), seen)
Traceback (most recent call last):
ValueError: a bad batch
>>> seen
[tensor(3.)]

What this library refuses has happened in the trace alone, and stays an error. What a handler of signals raises, an
interruption from the keyboard and an exit come at any line, and leave things as they were before the call.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Hashable
from types import FrameType

import torch  # noqa: F401  # the example above needs it

from subclass_aot.base._stack import pass_on_interruption, user_line_of
from subclass_aot.engine.graph import Retrace
from subclass_aot.engine.trace.handlers import Abandoned
from subclass_aot.errors import (
    DefinitionError,
    InnerTensorError,
    OnlyInEagerModeError,
    OperatorRuleError,
    RuleResultError,
    SubclassAotError,
    UnreadableWrapperError,
)
from subclass_aot.meta.symbols import SizesMustBeKnown

_FAILED = """{name} could not be traced for a call: so the function itself ran, as in eager mode, and did not fail.
  It said:    {error}
  Your line:  {line}
  Each such call is traced first, and takes longer than in eager mode."""

_IN_EAGER_MODE = DefinitionError, InnerTensorError, OperatorRuleError, RuleResultError
"""Errors of this library that wrapper classes raise without a trace as well."""

_OF_NO_FUNCTION = KeyboardInterrupt, SystemExit, Abandoned, Retrace, SizesMustBeKnown
_OF_SUSPENDED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


class RunsItself(Exception):
    """The function itself runs a call. See Note [Functions that raise].

    Args:
        why: A warning that says why.
        error: What the function has raised in a trace, if that is why.
        refusal: What the function does that only eager mode can do, if that is why.
        kind: The kind of the call.

    Attributes:
        error: What the function has raised.
        refusal: What it does that only eager mode can do.
        kind: The kind of the call.
    """

    def __init__(
        self,
        why: str,
        error: BaseException | None = None,
        refusal: OnlyInEagerModeError | None = None,
        kind: Hashable = None,
    ) -> None:
        super().__init__(why)
        self.error = error
        self.refusal = refusal
        self.kind = kind
        self._first = None if error is None or error.__traceback__ is None else error.__traceback__.tb_frame

    @classmethod
    def since(cls, error: BaseException, name: str) -> RunsItself:
        """Returns that it runs since it has raised an error in a trace.

        Args:
            error: The error.
            name: Of the function.
        """
        said = "".join(traceback.format_exception_only(error)).strip()
        return cls(_FAILED.format(name=name, error=said, line=user_line_of(error)), error)

    def forget(self) -> None:
        """Takes the steps of the trace from what the function has raised there.

        They hold the tensors of the trace; and a function may raise one error again and again.
        """
        if self.error is None or self._first is None:
            return
        step = self.error.__traceback__
        while step is not None and _is_below(step.tb_frame, self._first):
            step = step.tb_next
        self.error.__traceback__ = step


def is_of_function(error: BaseException) -> bool:
    """Returns whether what came out of a trace is an error of the function's.

    Args:
        error: What came.

    Raises:
        BaseException: It came from a handler of signals, or a debugger.
    """
    pass_on_interruption(error)
    is_refusal = isinstance(error, SubclassAotError) and not isinstance(error, _IN_EAGER_MODE)
    is_refusal = is_refusal or isinstance(error, UnreadableWrapperError)
    return not is_refusal and not isinstance(error, _OF_NO_FUNCTION)


def _is_below(frame: FrameType, first: FrameType) -> bool:
    """Returns whether a frame was called below another one. A generator that has raised has no caller any more."""
    caller: FrameType | None = frame
    while caller is not None and caller is not first:
        frame, caller = caller, caller.f_back
    return caller is first or bool(frame.f_code.co_flags & _OF_SUSPENDED)
