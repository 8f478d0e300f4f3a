"""One run of an operator, as listeners get it: what ran, and in which phase, module and line."""

from __future__ import annotations

import os
import sys
from types import CodeType, FrameType
from typing import Any, NamedTuple, Protocol

import torch

from subclass_aot.base import _torch
from subclass_aot.base._stack import UserFrame, is_own, is_user_file
from subclass_aot.base._torch.operators import Operator
from subclass_aot.base.operators import flops_of
from subclass_aot.meta.storage import in_thread


class Place(NamedTuple):
    """Where in a program an operator runs.

    Attributes:
        phase: One of `Operation.PHASES`.
        module: The innermost module whose forward runs; in backward, the one whose forward made the gradient function.
        line: The user's line, likewise: file, number, function. None if no line of the user's is on the stack.
        node: The gradient function that runs; None outside of backward.
    """

    phase: str
    module: torch.nn.Module | None
    line: UserFrame | None
    node: Any


class Records(Protocol):
    """What an operator runs in: a stream, or a mode of torch."""

    records: bool
    """Whether what runs in it is recorded, to run later."""


class Operation:
    """An operator that has run, with what it was given and what it made.

    Attributes:
        stream: The stream that it ran in; None outside of any.
        func: The operator overload.
        args: Its arguments; tensors without data for tensors.
        kwargs: Its keyword arguments, likewise.
        result: What it returned, likewise.
    """

    PHASES = ("forward", "recompute", "backward", "optimizer")
    """The phases of a step of training. What a checkpoint computes again within backward is a phase of its own."""

    __slots__ = ("stream", "func", "args", "kwargs", "result", "_place")

    def __init__(
        self,
        stream: Records | None,
        func: Operator,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        result: Any,
    ) -> None:
        self.stream = stream
        self.func = func
        self.args = args
        self.kwargs = kwargs
        self.result = result
        self._place: Place | None = None

    @property
    def place(self) -> Place:
        """Where it ran. It is found when it is read first, so read it before `on_operator` returns.

        A gradient function has the place of the operator that made it, if a listener read that one's.
        """
        if self._place is None:
            frame: FrameType | None = sys._getframe(1)
            while frame is not None and frame.f_code.co_filename == __file__:
                frame = frame.f_back
            while frame is not None and not is_own(frame):  # a listener of the user's
                frame = frame.f_back
            self._place = _place(frame)
        return self._place

    @property
    def flops(self) -> int:
        """The floating-point operations of its products: see `flops_of`."""
        return flops_of(self.func, self.args, self.kwargs, self.result)

    @property
    def phase(self) -> str:
        """One of `PHASES`."""
        return self.place.phase

    @property
    def module(self) -> torch.nn.Module | None:
        """The module that it belongs to."""
        return self.place.module

    @property
    def line(self) -> UserFrame | None:
        """The user's line that it belongs to."""
        return self.place.line

    @property
    def node(self) -> Any:
        """The gradient function that runs."""
        return self.place.node


def tell_listeners(
    stream: Records | None,
    func: Operator,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    result: object,
) -> None:
    """Calls the listeners of this thread for an operator that has run."""
    operation = Operation(stream, func, args, kwargs, result)
    for listener in in_thread.listeners:
        listener.on_operator(operation)


made_at: dict[int, tuple[torch.nn.Module | None, UserFrame | None]] = {}
"""Of gradient functions, by their number: the module and the line of the operator that made each.

It is emptied when the last listener goes. Numbers are those of a thread; so are listeners.
"""


def _place(frame: FrameType | None) -> Place:
    node = _torch.autograd.current_gradient()
    if node is None:
        phase, module, line = _on_stack(frame)
        if _torch.autograd.is_backward_running():  # a hook, or a callback
            return Place("backward", module, line, None)
        if phase == "forward":  # autograd has made its gradient function just before
            made_at.setdefault(_torch.autograd.last_sequence_number(), (module, line))
        return Place(phase, module, line, None)
    if _torch.autograd.is_recomputing(node):
        _, module, line = _on_stack(frame)
        made_at.setdefault(_torch.autograd.last_sequence_number(), (module, line))
        return Place("recompute", module, line, node)
    found = made_at.get(_torch.autograd.sequence_number_of(node))
    if found is None:
        found = None, _on_stack(frame)[2]
    return Place("backward", *found, node)


_OTHER, _OF_USER, _OF_MODULE, _OF_OPTIMIZER = range(4)
_kinds: dict[CodeType, int] = {}
_OPTIMIZERS = tuple(
    os.path.join(os.path.dirname(torch.__file__), *parts)
    for parts in (("optim", ""), ("nn", "utils", "clip_grad.py"), ("amp", "grad_scaler.py"))
)


def _on_stack(frame: FrameType | None) -> tuple[str, torch.nn.Module | None, UserFrame | None]:
    """Returns the phase outside of backward, and the innermost module and line of the user's."""
    line: UserFrame | None = None
    while frame is not None:  # for each operator
        code = frame.f_code
        kind = _kinds.get(code)
        if kind is None:
            kind = _kinds[code] = _kind_of(code)
        if kind:
            if kind == _OF_MODULE:
                return "forward", frame.f_locals["self"], line or _line_above(frame)
            if kind == _OF_OPTIMIZER:
                return "optimizer", None, line or _line_above(frame)
            if line is None:
                line = code.co_filename, frame.f_lineno or code.co_firstlineno, code.co_name
        frame = frame.f_back
    return "forward", None, line


def _line_above(frame: FrameType | None) -> UserFrame | None:
    """Returns the innermost line of the user's that is above a frame: a layer of torch's own is no line of theirs."""
    while frame is not None:
        code = frame.f_code
        if _kinds.get(code) == _OF_USER or is_user_file(code.co_filename):
            return code.co_filename, frame.f_lineno or code.co_firstlineno, code.co_name
        frame = frame.f_back
    return None


def _kind_of(code: CodeType) -> int:
    if code is torch.nn.Module.__call__.__code__:
        return _OF_MODULE
    if code.co_filename.startswith(_OPTIMIZERS):
        return _OF_OPTIMIZER
    return _OF_USER if is_user_file(code.co_filename) else _OTHER
