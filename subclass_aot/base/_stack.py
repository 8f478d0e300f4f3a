"""Frames: finds the line of the user's code in which a thing happened."""

from __future__ import annotations

import contextlib
import functools
import linecache
import os
import re
import signal
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextvars import ContextVar
from traceback import FrameSummary, walk_tb
from types import CodeType, FrameType, FunctionType

import optree
import torch

_LIBRARIES = (
    *(os.path.dirname(module.__file__) + os.sep for module in (torch, optree) if module.__file__),
    contextlib.__file__,  # stands between a `with` and what enters it
)
_STANDARD_LIBRARY = os.path.dirname(os.__file__) + os.sep
PACKAGE = os.path.dirname(os.path.dirname(__file__)) + os.sep
"""The folder of this library."""
_OWN_USERS = PACKAGE + "tensors" + os.sep
_GENERATED = "<subclass_aot generated"
_seen_files: dict[str, bool] = {}

UserFrame = tuple[str, int, str]
"""A file, a line, and the name of the function that it is in. Some instructions have no line, as a handler of signals
may find: then it is that of the function.
"""


def user_frames(limit: int = 0) -> tuple[UserFrame, ...]:
    """Returns the user's frames, innermost first; frames of torch and of this library are left out.

    Args:
        limit: How many at the most; 0 for all.
    """
    captured = _captured.get()
    if captured is not None:
        return captured[:limit] if limit else captured
    frames = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:  # for each operator that is traced
        code = frame.f_code
        mine = _seen_files.get(code.co_filename)
        if is_user_file(code.co_filename) if mine is None else mine:
            frames.append((code.co_filename, frame.f_lineno or code.co_firstlineno, code.co_name))
            if len(frames) == limit:
                break
        frame = frame.f_back
    return tuple(frames)


@contextlib.contextmanager
def captured_at(stack_trace: str) -> Iterator[None]:
    """Runs the block with the user's frames of an earlier time, when another tracer captured what runs now.

    Args:
        stack_trace: As Python prints it.
    """
    found = [(file, int(line), name) for file, line, name in _FRAME.findall(stack_trace)]
    before = _captured.set(tuple(frame for frame in reversed(found) if is_user_file(frame[0])))
    try:
        yield
    finally:
        _captured.reset(before)


_FRAME = re.compile(r'File "(.+)", line (\d+), in (.+)')
_captured: ContextVar[tuple[UserFrame, ...] | None] = ContextVar("captured", default=None)


def user_line() -> str:
    """Returns the line of the user's that is running, as `file.py:12: the line`; a fixed phrase when there is none."""
    frames = user_frames()
    return _format_line([frame for frame in frames if not is_standard(frame[0])] or frames)


def warn(message: str) -> None:
    """Warns the user; the warning stands at the line of the user's that is running, however deep below we are."""
    level, frame = 1, sys._getframe(0)
    while frame.f_back is not None and not is_user_code(frame.f_code):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, stacklevel=level)


def user_line_of(error: BaseException) -> str:
    """Returns the innermost line of the user's that an error came through, in the same form; else the running one."""
    tracebacks = walk_tb(error.__traceback__)
    steps = [(frame.f_code.co_filename, line or frame.f_code.co_firstlineno, "") for frame, line in tracebacks]
    through = [step for step in reversed(steps) if is_user_file(step[0])][:1]
    return _format_line(through) if through else user_line()


def first_line(error: BaseException) -> str:
    """Returns what an error is, in one line.

    >>> first_line(ValueError("no\\nand why"))
    'ValueError: no'
    """
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def is_raised_by_user(error: BaseException) -> bool:
    """Returns whether the frame that raised an error is the user's, and not of this library or of torch."""
    frames = [frame for frame, _ in walk_tb(error.__traceback__)]
    return bool(frames) and is_user_code(frames[-1].f_code)


_SIGNALS = tuple(map(int, signal.valid_signals()))
_handler_of: Callable[[int], object] = getattr(sys.modules.get("_signal"), "getsignal", signal.getsignal)
"""What `signal.getsignal` calls, which then looks for an enum: ten times the time, for each of 64 signals."""


def pass_on_interruption(error: BaseException) -> None:
    """Raises an error again that a handler of signals raised, or a debugger at its end.

    Such an error, an alarm for example, comes at any line. It says nothing of what was tried there, so whoever catches
    all errors and goes on calls this first, and the user gets it as it is.

    Args:
        error: What was caught.
    """
    debugger = sys.modules.get("bdb")
    if debugger is not None and isinstance(error, debugger.BdbQuit):
        raise error
    codes = [frame.f_code for frame, _ in walk_tb(error.__traceback__)]  # no set: Dynamo makes some without a hash
    for number in _SIGNALS:
        handler = _handler_of(number)
        if not isinstance(handler, int | None):
            mine = _code_of(handler)
            if any(code is mine for code in codes):
                raise error


def _code_of(handler: object) -> CodeType | None:
    """Returns the code that a callable runs, where that is in Python."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    handler = getattr(handler, "__func__", handler)
    if not isinstance(handler, FunctionType):
        handler = getattr(type(handler).__call__, "__func__", type(handler).__call__) if callable(handler) else None
    return handler.__code__ if isinstance(handler, FunctionType) else None


def user_line_in(summary: Iterable[FrameSummary]) -> str:
    """Returns the innermost line of the user's in a stack that was taken earlier, in the same form."""
    users = [frame for frame in summary if is_user_file(frame.filename)]
    mine = [frame for frame in users if not is_standard(frame.filename)] or users
    return f"{mine[-1].filename}:{mine[-1].lineno}: {(mine[-1].line or '').strip()}" if mine else _format_line(())


def format_frames(frames: tuple[UserFrame, ...]) -> str:
    """Returns frames as Python prints them, outermost first."""
    text = _formatted.get(frames)
    if text is None:
        lines = []
        for file, line, name in reversed(frames):
            lines.append(f'  File "{file}", line {line}, in {name}')
            lines.append("    " + linecache.getline(file, line).strip())
        text = "\n".join(lines)
        if len(_formatted) > 20_000:
            _formatted.clear()
        _formatted[frames] = text
    return text


_formatted: dict[tuple[UserFrame, ...], str] = {}


def _format_line(frames: Sequence[UserFrame]) -> str:
    if not frames:
        return "(no line of yours is on the stack)"
    file, line, _ = frames[0]
    return f"{file}:{line}: {linecache.getline(file, line).strip()}"


def is_program_file(module: str, file: str) -> bool:
    """Returns whether a file is of a program: the user's, and not installed.

    Args:
        module: The name of the module.
        file: Its file.
    """
    return is_user_file(file) and not is_installed(module, file)


def is_standard(filename: str) -> bool:
    """Returns whether a file is of Python's own library, as `copy.py` is: whoever called it is more to the point."""
    return filename.startswith(_STANDARD_LIBRARY) and "site-packages" not in filename


def is_installed(module: str, file: str) -> bool:
    """Returns whether a module was installed: it is Python's own, or a package manager has put its package there.

    Such packages come by `site-packages` of this environment or another one, and by folders that a `.pth` file or
    `PYTHONPATH` names, into which `pip install --target` wrote.

    Args:
        module: The name of the module.
        file: Its file.
    """
    if any(f"{os.sep}{folder}{os.sep}" in file for folder in ("site-packages", "dist-packages")):
        return True
    if file.startswith(_STANDARD_LIBRARY):
        return True
    above = module.count(".") + (os.path.basename(file).partition(".")[0] == "__init__")
    folder = os.path.dirname(file)
    for _ in range(above):
        folder = os.path.dirname(folder)
    return _has_installed(folder)


@functools.lru_cache(maxsize=256)
def _has_installed(folder: str) -> bool:
    """Returns whether a package manager has left its notes in a folder; it leaves none beside an editable package."""
    try:
        with os.scandir(folder) as entries:
            return any(entry.name.endswith(".dist-info") for entry in entries)
    except OSError:  # as in a zip file
        return False


def is_user_code(code: CodeType) -> bool:
    """Returns whether code is the user's, and not of torch, of optree or of this library."""
    return is_user_file(code.co_filename)


def is_own(frame: FrameType) -> bool:
    """Returns whether a frame runs code of this library, or that it generated; its wrapper classes are users of it."""
    return is_own_file(frame.f_code.co_filename)


def is_own_file(filename: str) -> bool:
    """Returns whether a file is one of this library, or of what it generated."""
    return filename.startswith((PACKAGE, _GENERATED)) and not filename.startswith(_OWN_USERS)


def is_user_file(filename: str) -> bool:
    """Returns whether code of a file is the user's. See `is_user_code`."""
    if filename.startswith("<"):  # generated code has a new name each time
        return "stdin" in filename
    mine = _seen_files.get(filename)
    if mine is None:
        libraries = filename.startswith((PACKAGE, *_LIBRARIES)) and not filename.startswith(_OWN_USERS)
        mine = _seen_files[filename] = not libraries
    return mine
