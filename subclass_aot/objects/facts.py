"""What objects hold, in words: for the reason of a recompile."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import torch

from subclass_aot.objects.holders import Holder
from subclass_aot.objects.nodes import NumberAt, ObjectAt, TensorAt, TupleAt, ValueAt, WeakAt
from subclass_aot.objects.walk import Objects
from subclass_aot.tables import HOOKS, Table, vars_of_number
from subclass_aot.weak import is_weak


def facts_of(objects: Objects) -> dict[str, str]:
    """Returns everything that a signature depends on of some objects, by name."""
    found = {}
    for position, node in objects.leaves.items():
        if isinstance(node, ValueAt):
            found[f"Python value {position}"] = f"{type(node.value).__name__} {text_of(node.value)}"
    for holder in objects.holders:
        found.update(_contents(holder))
    return found


def integers_in(objects: Objects) -> Iterator[tuple[str, int]]:
    """Yields the integers that objects hold, each with its path."""
    for holder in objects.holders:
        for table, entries in holder.tables:
            for key, node in entries:
                if isinstance(node, ValueAt) and type(node.value) is int:
                    yield holder.path + table.step(key), node.value


def text_of(value: object) -> str:
    """Returns a Python value as text of one short line."""
    if not is_weak(value) and isinstance(value, torch.nn.Module):
        return type(value).__name__
    if is_weak(value) or hasattr(type(value), "__next__"):  # how it looks changes, and nobody asks that
        return f"{type(value).__name__} at {id(value):#x}"
    text = repr(value)
    if vars_of_number(value):
        text += f" with {vars(value)}"
    if len(text) < 80:
        return text
    return f"{text[:60]}... #{hashlib.sha256(text.encode()).hexdigest()[:8]}"  # by which two long ones are told apart


def _contents(holder: Holder) -> Iterator[tuple[str, str]]:
    """Yields what an object holds: Python values by themselves, the rest by class or number."""
    for table, entries in holder.tables:
        if holder.only_grows or table.kind in HOOKS:
            continue
        for key, node in entries:
            if table.kind == "elements" and isinstance(key, int) and key == len(entries) - 1:
                yield f"len({holder.path})", str(len(entries))
            path = _path(holder, table, key)
            match node:
                case ValueAt():
                    yield path, text_of(node.value)
                case TensorAt():
                    yield f"class of {path}", "a tensor"
                case TupleAt():
                    yield f"class of {path}", node.cls.__name__
                case WeakAt():
                    yield f"class of {path}", "a weak reference"
                case NumberAt() | ObjectAt():
                    pass  # the number is among the tensors of the call, the object among the holders


def _path(holder: Holder, table: Table, key: object) -> str:
    return str(key) if table.kind in ("cells", "globals") else holder.path + table.step(key)
