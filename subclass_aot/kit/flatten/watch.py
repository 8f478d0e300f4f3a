"""Watches what a constructor does besides making a tensor: operators, functions in C, stores of its bytecode."""

from __future__ import annotations

import builtins
import enum
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.base.bytecode import stores_of
from subclass_aot.base.put_back import PutBack

_PURE = frozenset(
    "size stride dim ndimension storage_offset numel element_size is_contiguous is_floating_point is_complex "
    "_make_wrapper_subclass __new__ __init__ __get__ __setattr__ len isinstance issubclass hasattr getattr setattr "
    "callable id min max all any keys values items get format join lower startswith endswith "
    "_log_api_usage_once".split()
)
"""Functions in C that change nothing but the new tensor."""

_CHANGES = frozenset({"append", "extend", "insert", "update", "setdefault", "pop", "add", "discard"})
"""Methods in C that change a container, which is nobody's business where that is gone after the call."""


@dataclass(slots=True)
class _Seen:
    operators: list[object] = field(default_factory=list)
    called: dict[tuple[str, types.CodeType], None] = field(default_factory=dict)
    ran: dict[types.CodeType, dict[str, Any]] = field(default_factory=dict)
    changed: dict[int, object] = field(default_factory=dict)

    def note(self, frame: types.FrameType, event: str, argument: Any) -> None:
        """Notes a function: what `sys.setprofile` calls."""
        if event == "c_call":
            changed = getattr(argument, "__self__", None)
            if argument.__name__ in _CHANGES and type(changed) in (list, dict, set):
                self.changed[id(changed)] = changed
            else:
                self.called[argument.__name__, frame.f_code] = None
        elif event == "call":
            self.ran[frame.f_code] = frame.f_globals


class _Operators(_torch.dispatch.DispatchMode):
    """Notes operators, and lets them run."""

    def __init__(self, seen: list[object]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen = seen

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(func)
        return func(*args, **(kwargs or {}))


def watched(make: Callable[[], torch.Tensor]) -> tuple[torch.Tensor, str | None]:
    """Runs a constructor.

    Args:
        make: Runs it, and nothing else; what it calls itself is watched, and it is not. No profiler may be on.

    Returns:
        What it made, and the first thing that it does besides; None if there is no such thing.
    """
    seen = _Seen()
    with _Operators(seen.operators), PutBack(partial(sys.setprofile, None)):
        sys.setprofile(seen.note)
        made = make()
        sys.setprofile(None)  # it would note the end of the block, too
    ours = {make.__code__, watched.__code__}
    return made, next(_effects(seen, ours, frozenset(vars(made))), None)


def _effects(seen: _Seen, ours: set[types.CodeType], attributes: frozenset[str]) -> Iterator[str]:
    """Yields effects of a constructor that later calls might not repeat, or that others might notice."""
    for func in seen.operators:
        yield f"it calls {func}"
    for name, code in seen.called:
        if name not in _PURE and code not in ours and not _torch.wrappers.decorates_constructors(code.co_filename):
            yield f"{code.co_name} calls {name}, in C"
    for key in seen.changed:
        if sys.getrefcount(seen.changed[key]) > _ONLY_HERE:
            yield "it changes a container that others have"
    inside = {constant for code in seen.ran for constant in code.co_consts if isinstance(constant, types.CodeType)}
    for code, names in seen.ran.items():
        if code not in ours and not _torch.wrappers.decorates_constructors(code.co_filename):
            yield from _stores(code, names, attributes)
            closure = [] if code in inside else [name for name in code.co_freevars if name != "__class__"]
            yield from (f"{code.co_name} reads {name} of its closure" for name in closure)


_ONLY_HERE = 2
"""References to a container that is gone but for a dict of ours: the dict's, and the argument of `getrefcount`."""


def _stores(code: types.CodeType, names: dict[str, Any], attributes: frozenset[str]) -> Iterator[str]:
    """Yields what the bytecode of a function stores elsewhere than in locals and in the new tensor, or reads of
    globals.
    """
    others, set_attributes, read = stores_of(code)
    yield from others
    for name in set_attributes:
        if name not in attributes:
            yield f"{code.co_name} sets {name} of something else"
    for name in read:
        value = names.get(name, getattr(builtins, name, None))
        if not _is_lasting(value):
            yield f"{code.co_name} reads {name}, a {type(value).__name__} that can change"


def _is_lasting(value: object) -> bool:
    """Returns whether a global is a part of the program, and no data."""
    parts = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, enum.Enum, torch.dtype)
    return isinstance(value, parts) or callable(value)
