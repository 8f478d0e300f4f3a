"""Arguments and results as trees: what torch knows as a pytree is flattened, `None` is a leaf."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import optree
import torch

from subclass_aot.base import _torch
from subclass_aot.engine.objects import Objects, refuse_key
from subclass_aot.engine.tables import has_vars, is_object

NAMESPACE = _torch.modules.PYTREE_NAMESPACE
"""The optree namespace: what torch knows as a pytree is one here; `torch.utils._pytree.register_pytree_node` adds
one."""


def flatten(tree: Any) -> tuple[list[Any], optree.PyTreeSpec]:
    """Returns the leaves and the structure of what a user passes or returns."""
    return optree.tree_flatten(tree, none_is_leaf=True, namespace=NAMESPACE)


def flatten_but_for_whole(tree: Any) -> tuple[list[Any], optree.PyTreeSpec]:
    """Returns the same, but what is more than its parts is a leaf: as an object of the call, it is walked."""
    return optree.tree_flatten(tree, is_whole, none_is_leaf=True, namespace=NAMESPACE)


def is_whole(value: object) -> bool:
    """Returns whether a container is more than its parts: tensors are keys of it, or it is a tuple with attributes.

    Two structures with such keys cannot be compared, and in a trace the keys are other tensors.
    """
    if isinstance(value, dict):
        return any(isinstance(key, torch.Tensor) for key in value)
    return isinstance(value, tuple) and type(value) is not tuple and has_vars(type(value))


def path_of(accessor: optree.PyTreeAccessor) -> str:
    """Returns `args[0]['x']` for an accessor of `(args, kwargs)`; keyword arguments by their own name."""
    entries = list(accessor)
    rest = entries[1:]
    if entries[0].entry == 0:
        return "args" + "".join(e.codify("") for e in rest)
    return f"kwargs[{rest[0].entry!r}]" + "".join(e.codify("") for e in rest[1:])


def classes_in(treespec: optree.PyTreeSpec) -> Iterator[type]:
    """Yields the classes of containers among the arguments, but for Python's own."""
    todo = [treespec]
    while todo:
        for child in todo.pop().children():
            if child.type not in (None, tuple, list, dict):
                yield child.type
            todo.append(child)


def keys_of(treespec: optree.PyTreeSpec) -> Iterator[tuple[str, Any]]:
    """Yields keys of dicts among the arguments that are objects. A dict with another key has another structure.

    Raises:
        PlanError: A key reads values of tensors.
    """
    for accessor in treespec.accessors():
        for i, entry in enumerate(accessor):  # the same key is on the way to several leaves: it is walked once
            if isinstance(entry, optree.MappingEntry) and type(entry.entry) is not str:
                path = path_of(accessor[:i]) if i > 1 else "kwargs"
                refuse_key(entry.entry, path)
                if is_object(entry.entry):
                    yield f"a key of {path}", entry.entry


def reached_twice(call: tuple[tuple[Any, ...], dict[str, Any]], objects: Objects) -> Mapping[int, str]:
    """Finds lists and dicts that stand a second time among what optree flattens, or that an object holds, too.

    Returns:
        Where, by their ids.
    """
    whole = set(map(id, flatten_but_for_whole(call)[0]))  # lists and dicts of a user's class are not copied
    seen: set[int] = set()  # by ids, and of tuples, too: these are no copies, but lists in them are
    found: dict[int, str] = {}
    todo = [(x, name) for x, name in zip(call, ("args", "kwargs"), strict=True) if x]
    while todo:
        container, path = todo.pop()
        items = container.items() if isinstance(container, dict) else enumerate(container)
        for key, x in items:
            if isinstance(x, (list, dict, tuple)) and id(x) not in whole:
                where = f"{path}[{key!r}]"
                if not isinstance(x, tuple) and (id(x) in seen or objects.position_of(x) is not None):
                    found[id(x)] = where
                if id(x) not in seen:
                    todo.append((x, where))
                seen.add(id(x))
    return found
