"""Raising an exception of the user's, as a handler of signals does, at any line of the library that runs."""

from __future__ import annotations

import ast
import dis
import gc
import linecache
import signal
import sys
import traceback
import types
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch

import subclass_aot
from subclass_aot.base import _torch
from subclass_aot.engine.trace import is_tracing
from subclass_aot.subjects.numbers import text

_LIBRARY = (str(Path(subclass_aot.__file__).parent), "<subclass_aot generated")


class Alarm(Exception):
    """What a handler raises: a class that nobody else knows."""


class Lines:
    """Within the block, counts the lines of the library that run; at one of them a signal comes, if that is asked for.

    The garbage collector does not run meanwhile: it would run lines of finalizers at another time in each run.

    Args:
        at: At which, from 0 on, or when a line of a file runs first; at none when negative.
        files: Files of others whose lines count, too.
    """

    def __init__(self, at: int | tuple[str, int] = -1, files: tuple[str, ...] = ()) -> None:
        self.at, self.count, self.where = at, 0, ""
        self._files = (*_LIBRARY, *files)
        self.first: dict[tuple[str, int], int] = {}  # by file and line, its number when it ran first
        self.callers: list[str] = []  # of the line at which the signal came
        self.raised = Alarm(at)

    def __enter__(self) -> Lines:
        self._before = signal.signal(signal.SIGUSR1, self._handle)
        gc.disable()
        sys.settrace(self._call)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)
        gc.enable()
        signal.signal(signal.SIGUSR1, self._before)

    @property
    def in_finalizer(self) -> bool:
        """Whether the signal came while Python frees an object: it prints what is raised there, and goes on."""
        return "__del__" in self.callers

    def _call(self, frame: types.FrameType, event: str, argument: object) -> Callable[..., Any] | None:
        return self._line if frame.f_code.co_filename.startswith(self._files) else None

    def _line(self, frame: types.FrameType, event: str, argument: object) -> Callable[..., Any] | None:
        if event == "line" and not _leaves_block(frame):
            place = (frame.f_code.co_filename, frame.f_lineno)
            self.first.setdefault(place, self.count)
            self.count += 1
            if self.at in (self.count - 1, place):
                self.where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                self.callers = [caller.f_code.co_name for caller, _ in traceback.walk_stack(frame)]
                sys.settrace(None)
                signal.raise_signal(signal.SIGUSR1)
        return self._line

    def _handle(self, number: int, frame: types.FrameType | None) -> None:
        raise self.raised


def _leaves_block(frame: types.FrameType) -> bool:
    """Whether what runs next is the end of a `with`: Python hears of no signal before `__exit__` has run.

    These lines are where a block is entered, too, which begins with the expression of its context manager.
    """
    code, at = frame.f_code.co_code, frame.f_lasti
    if dis.opname[code[at]] != "LOAD_CONST" or frame.f_code.co_consts[code[at + 1]] is not None:
        return False
    return frame.f_lineno in _blocks_in(frame.f_code.co_filename)


@cache
def _blocks_in(file: str) -> frozenset[int]:
    """The lines in a file, or in generated code, where the expressions of a `with` stand."""
    text = "".join(linecache.getlines(file))
    blocks = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.With)]
    return frozenset(x.context_expr.lineno for node in blocks for x in node.items) | {node.lineno for node in blocks}


def modes() -> dict[str, Any]:
    """What the thread is set to, of what the library sets."""
    kinds = torch._C._TorchDispatchModeKey
    return {
        "grad": (torch.is_grad_enabled(), torch.is_inference_mode_enabled()),
        "dtype": torch.get_default_dtype(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "dispatch": torch._C._len_torch_dispatch_stack(),
        "own": [torch._C._get_dispatch_mode(kind) for kind in (kinds.PROXY, kinds.FAKE, kinds.FUNCTIONAL)],
        "function": (torch._C._len_torch_function_stack(), torch._C._is_torch_function_enabled()),
        "transforms": torch._C._functorch.peek_interpreter_stack(),
        "included": str(torch._C._dispatch_tls_local_include_set()),
        "excluded": str(torch._C._dispatch_tls_local_exclude_set()),
        "switches": (
            torch.compiler._is_compiling_flag,
            torch._C._only_lift_cpu_tensors(),
            torch._C._get_mkldnn_enabled(),
        ),
        "trace": (is_tracing(), text._hashes.get()),
        "solver": _torch.dynamo.current_solver(),
        "threads": (torch._C._is_multithreading_enabled(), torch._C._is_view_replay_enabled()),
    }
