"""The part of a guard that compares modules: their tree, the names of what they hold, and their hooks."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.base.codegen import GuardedSource
from subclass_aot.engine.facts import Facts
from subclass_aot.engine.facts import fact as kinds
from subclass_aot.engine.tables import HOOKS, MODULE_TABLES

Modules = Sequence[tuple[str, torch.nn.Module]]
"""Modules, each with the path where the user finds it, in the order of their facts."""


def refuse_other_modules(source: GuardedSource, modules: Modules, facts: Facts) -> None:
    """Writes the facts of a call about names in modules and about hooks; the others are compared where things are read.

    Args:
        source: The guard.
        modules: The modules of the call.
        facts: The facts.
    """
    left: dict[str, Iterator[tuple[str, torch.nn.Module]]] = {name: iter(modules) for name in MODULE_TABLES}
    conditions: dict[str, list[str]] = {}
    empty: list[dict[str, Any]] = []
    for fact in facts:
        if isinstance(fact.value, kinds.Names):
            path, module = next(left[fact.value.table])
            if fact.value.entries:
                conditions.setdefault(path, []).extend(_other_names(source, path, module, fact.value))
            else:
                empty.append(getattr(module, fact.value.table))
    for each in conditions.values():
        source.refuse_if(" or ".join(each))
    if empty:  # most tables are, and `any` asks all of these in one call
        source.refuse_if(f"any({source.const(tuple(empty), 'empty_tables')})")
    _refuse_other_hooks(source, [getattr(module, name) for _, module in modules for name in HOOKS], facts)


def _other_names(source: GuardedSource, path: str, module: torch.nn.Module, names: kinds.Names) -> list[str]:
    """Returns conditions under which a table of a module has other names. That tensors are there, is seen when they are
    read.
    """
    table = getattr(module, names.table)
    local = source.const(table, f"{path}{names.table}".replace(".", "_"))
    conditions = [f"tuple({local}) != {tuple([key for key, _ in names.entries])}"]
    if names.table == _torch.modules.SUBMODULES:
        held = source.const(tuple(table.values()), f"held_by_{path}".replace(".", "_"))
        return [*conditions, f"any(map({source.const(operator.is_not, 'is_not')}, {local}.values(), {held}))"]
    return conditions + [f"{local}.get({key!r}) is not None" for key, found in names.entries if found is None]


def _refuse_other_hooks(source: GuardedSource, tables: Sequence[dict[int, Any]], facts: Facts) -> None:
    """Emits the comparison of hooks, which run in a trace; each has a number that no other of the process has."""
    hooks = [(fact.place == kinds.OF_ALL, fact.value) for fact in facts if isinstance(fact.value, kinds.Hooks)]
    found = [value.numbers for is_of_all, value in hooks if not is_of_all]
    of_all = [value.numbers for is_of_all, value in hooks if is_of_all]
    empty = tuple(table for table in tables if not table)
    if empty:
        source.refuse_if(f"any({source.const(empty, 'hooks')})")
    for table, numbers in zip(filter(None, tables), found, strict=False):
        source.refuse_if(f"tuple({source.const(table, 'hooks')}) != {numbers}")
    if tables:
        read = source.const(kinds.Hooks.of_all, "hooks_of_all")
        every = source.const(_torch.modules.hooks_of_all, "tables_of_all")
        source.refuse_if(f"{read}().numbers != {of_all[0]}" if of_all else f"any({every}) and {read}().numbers")
