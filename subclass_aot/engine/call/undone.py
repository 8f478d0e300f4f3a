"""What a trace that fails does to modules beside their tables: hooks, and the classes of parametrized modules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.base.put_back import PutBack

_HOOKS = (*_torch.modules.MODULE_HOOKS, *_torch.modules.HOW_HOOKS_RUN, *_torch.modules.HOOKS_OF_STATE)


@contextmanager
def undone_if_it_fails(modules: Sequence[torch.nn.Module]) -> Iterator[None]:
    """Runs a block. If it fails, modules have the hooks and classes again that they had: the function may run itself.

    If it does not fail, hooks stay as the function leaves them.

    Args:
        modules: The modules.
    """
    before = [(module, type(module), _hooks_of(module)) for module in modules]
    failed = [True]
    with PutBack(partial(_undo, before, failed)):
        yield
        failed[0] = False


def _hooks_of(module: torch.nn.Module) -> list[Any]:
    """Returns the hooks of a module, and how they run, in the order of the names; most have none."""
    there = module.__dict__
    return [dict(value) if value and type(value) is not bool else value or None for value in map(there.get, _HOOKS)]


def _undo(before: Sequence[tuple[torch.nn.Module, type, list[Any]]], failed: Sequence[bool]) -> None:
    """Gives modules their hooks and classes back. Others may hold the dicts of hooks, as handles do."""
    for module, cls, hooks in before if failed[0] else ():
        if type(module) is not cls:
            module.__class__ = cls
        there = module.__dict__
        for name, value in zip(_HOOKS, hooks, strict=True):
            now = there.get(name)
            if isinstance(now, dict):
                if now or value:
                    now.clear()
                    now.update(value or {})
            elif now is not value and name in there:
                there[name] = value
