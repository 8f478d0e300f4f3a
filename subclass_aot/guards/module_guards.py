"""The part of a guard that compares modules: their tree, the names of what they hold, and their hooks."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from subclass_aot import _torch
from subclass_aot.codegen import GuardedSource
from subclass_aot.facts import Facts, Kind
from subclass_aot.facts import fact as kinds
from subclass_aot.tables import HOOKS, MODULE_TABLES

Modules = Sequence[tuple[str, torch.nn.Module]]
"""Modules, each with the path where the user finds it."""


def refuse_other_modules(source: GuardedSource, modules: Modules, facts: Facts) -> None:
    """Writes the comparison of modules with what they held while they were traced, but for the tensors themselves."""
    for path, module in modules:
        conditions = _other_names(source, path, module) + _other_children(source, path, module)
        if conditions:
            source.refuse_if(" or ".join(conditions))
    tables = [getattr(module, name) for _, module in modules for name in MODULE_TABLES]
    if not all(tables):  # most tables are empty, and `any` asks all of these in one call
        empty = source.const(tuple(table for table in tables if not table), "empty_tables")
        source.refuse_if(f"any({empty})")
    _refuse_other_hooks(source, modules)
    if modules:
        _refuse_other_hooks_of_all(source, facts)


def _other_names(source: GuardedSource, path: str, module: torch.nn.Module) -> list[str]:
    """Returns conditions under which a module has other names. That tensors are there, is seen when they are read."""
    conditions = []
    tables = (
        (_torch.modules.PARAMETERS, _torch.modules.parameters_of(module)),
        (_torch.modules.BUFFERS, _torch.modules.buffers_of(module)),
    )
    for name, table in tables:
        local = source.const(table, f"{path}_{name}".replace(".", "_"))
        if table:
            conditions.append(f"tuple({local}) != {tuple(table)}")
        conditions += [f"{local}.get({key!r}) is not None" for key, tensor in table.items() if tensor is None]
    return conditions


def _other_children(source: GuardedSource, path: str, module: torch.nn.Module) -> list[str]:
    """Returns conditions under which a module has other submodules."""
    children = _torch.modules.submodules_of(module)
    if not children:
        return []
    local = source.const(children, f"{path}_modules".replace(".", "_"))
    same = [f"{local}.get({key!r}) is not {source.const(child, f'{path}_{key}')}" for key, child in children.items()]
    return [f"tuple({local}) != {tuple(children)}", *same]


def _refuse_other_hooks(source: GuardedSource, modules: Modules) -> None:
    """Compares hooks, which run while tracing; each has a number that no other hook of the process has."""
    tables = [getattr(module, name) for _, module in modules for name in HOOKS]
    empty = tuple(table for table in tables if not table)
    if empty:
        source.refuse_if(f"any({source.const(empty, 'hooks')})")
    for table in tables:
        if table:
            source.refuse_if(f"tuple({source.const(table, 'hooks')}) != {tuple(table)}")


def _refuse_other_hooks_of_all(source: GuardedSource, facts: Facts) -> None:
    """Compares the hooks that every module of the process has: mostly none."""
    places = {fact.place: fact.value for fact in facts if fact.kind is Kind.HOOKS}
    found, read = places.get("hooks of all modules"), source.const(kinds.Hooks.of_all, "hooks_of_all")
    if isinstance(found, kinds.Hooks):
        source.refuse_if(f"{read}().numbers != {found.numbers}")
    else:
        tables = source.const(_torch.modules.hooks_of_all, "tables_of_all")
        source.refuse_if(f"any({tables}) and {read}().numbers")
