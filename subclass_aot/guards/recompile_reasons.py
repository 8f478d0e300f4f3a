"""What a call looks like, in words: for `explain()` and for the reason of a recompile."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import torch

from subclass_aot import _torch
from subclass_aot.call import (
    HOOKS,
    Arguments,
    Holder,
    Literal,
    Outcome,
    TensorAt,
    TupleAt,
    ValueAt,
    autograd_base,
    storage_groups,
    tensors_of,
    vars_of_number,
)
from subclass_aot.codegen import Source
from subclass_aot.guards.guard import MODES
from subclass_aot.meta import Spec
from subclass_aot.symbols import is_symbolic, plain
from subclass_aot.trace import JointSignature


def facts(
    arguments: Arguments, leaves: list[Any], state: tuple[Any, ...], places: Mapping[str, str] = MappingProxyType({})
) -> dict[str, str]:
    """Everything that a signature depends on, by name.

    Args:
        arguments: The call.
        leaves: Its leaves.
        state: Its global modes.
        places: Sizes that are not told by their number, such as `args[0].size(1)`, and what is said instead.
    """
    found: dict[str, str] = {}
    found["structure of the arguments"] = str(arguments.treespec).replace(", namespace='torch'", "")
    for name, value in zip(MODES, state, strict=True):
        found[name] = str(value)
    for i, node in arguments.roots:
        if isinstance(node, ValueAt) and i is not None:
            found[f"Python value {i}"] = f"{type(node.value).__name__} {_short(node.value)}"
    for holder in arguments.objects.holders:
        found.update(_contents(holder))
    for place, position in zip(arguments.places, arguments.value_at, strict=True):
        path = place.path
        first = arguments.path_of(position)
        if path in arguments.changing:
            number = f"{path}.size(0)"
            found[path] = places.get(number, str(arguments.values[position].size(0)))
        elif first != path:
            found[path] = f"the same tensor as {first}"
        else:
            found[path] = describe_tensor(arguments.values[position], path, places)
    found["leaves that share storage"] = str(storage_groups(leaves) or "none")
    for group in storage_groups(leaves):
        for i in group:
            found[f"storage offset of leaf {i}"] = str(leaves[i].storage_offset())
    found["tensors with one history"] = _views_of_one_base(arguments)
    return found


def changing_numbers(arguments: Arguments, outcome: Outcome, before: Mapping[str, str]) -> set[str]:
    """The paths of numbers that a function changes itself and that are others now than when it was compiled.

    Args:
        arguments: A call.
        outcome: What the function left behind in another call.
        before: The facts of that one.
    """
    changed = {c.path + c.table.step(k.value) for c in outcome.changes for k, _ in c.assigned if isinstance(k, Literal)}
    found = set()
    for holder in arguments.objects.holders:
        for table, entries in holder.tables:
            for key, node in entries:
                path = holder.path + table.step(key)
                if path in changed and isinstance(node, ValueAt) and type(node.value) is int:
                    if before.get(path) != str(node.value):
                        found.add(path)
    return found


def difference(before: dict[str, str], now: dict[str, str]) -> list[str]:
    """The facts that differ, each as one line.

    >>> difference({"x": "float32[3]"}, {"x": "float32[5]"})
    ['x: float32[3] before, float32[5] now']
    """
    names = list(dict.fromkeys([*before, *now]))
    return [
        f"{name}: {before.get(name, 'absent')} before, {now.get(name, 'absent')} now"
        for name in names
        if before.get(name) != now.get(name)
    ]


def describe_tensor(tensor: Any, path: str = "", places: Mapping[str, str] = MappingProxyType({})) -> str:
    """A tensor in one line, inner tensors and context included. `places` is as for `facts`, `path` where it stands."""
    size = ", ".join(places.get(f"{path}.size({dim})", _number(n)) for dim, n in enumerate(tensor.shape))
    kind = type(tensor)
    name = kind.__name__ if kind in (torch.Tensor, torch.nn.Parameter) else f"{kind.__module__}.{kind.__qualname__}"
    text = f"{name} {str(tensor.dtype).removeprefix('torch.')}[{size}] on {tensor.device}"
    if tensor.layout is torch.strided and tensor.stride() != torch.empty(tensor.shape, device="meta").stride():
        steps = [places.get(f"{path}.stride({dim})", str(n)) for dim, n in enumerate(tensor.stride())]
        text += f" stride ({', '.join(steps)})"
    if tensor.requires_grad:
        text += " requires_grad" + ("" if tensor.is_leaf else " non-leaf")
    if hasattr(tensor, "__tensor_flatten__"):
        names, context = tensor.__tensor_flatten__()
        inner = ", ".join(f"{n}: {_inner(getattr(tensor, n), f'{path}.{n}', places)}" for n in names)
        text += f" {{{inner}}}" + (f" context {context!r}" if context is not None else "")
    return text


def symbolic_places(signature: JointSignature) -> dict[str, str]:
    """Every size and stride of the inputs that is a symbol or made of symbols, with its text."""
    if signature.symbols is None:
        return {}
    found: dict[str, Any] = {}
    patterns = [pattern for given in signature.inputs for pattern in given.specs]
    for slot, pattern in zip(signature.index_map.slots, patterns, strict=True):
        path = signature.inputs[slot.outer].path + "".join(slot.path)
        if isinstance(pattern, Spec):
            found.update({f"{path}.size({dim})": n for dim, n in enumerate(pattern.size)})
            found.update({f"{path}.stride({dim})": n for dim, n in enumerate(pattern.stride)})
        elif slot.dim is not None:
            found[f"{path}.{slot.kind}({slot.dim})"] = pattern
    return {place: signature.symbols.text(n) for place, n in found.items() if is_symbolic(plain(n))}


def unmet(signature: JointSignature, arguments: Arguments) -> list[str]:
    """Which values that the trace read, and which assumptions about symbolic sizes, do not hold of a call.

    The call fits otherwise. Each is one line.
    """
    if signature.symbols is None:
        return _read_otherwise(signature, arguments)
    numbers = {
        f"{path}.{kind}({dim})": n
        for path, tensor, _ in tensors_of(arguments)
        for kind, all_numbers in (("size", tensor.size()), ("stride", tensor.stride()))
        for dim, n in enumerate(all_numbers)
    }
    values: dict[str, int] = {}
    wrong = _read_otherwise(signature, arguments)
    for place, text in symbolic_places(signature).items():
        if text.isidentifier() and text not in values:
            values[text] = numbers[place]
        elif (expected := _evaluated(text, values)) is not None and expected != numbers[place]:
            wrong.append(f"{place}: {text} before, that is {expected}, {numbers[place]} now")
    where = ", ".join(f"{name} = {value}" for name, value in values.items())
    for text, _ in signature.symbols.assumptions(values):
        if _evaluated(text, values) is False:
            wrong.append(f"{text} before, not so now, where {where}")
    return wrong


def _read_otherwise(signature: JointSignature, arguments: Arguments) -> list[str]:
    plan = arguments.plan()
    paths = [arguments.path_of(s.outer) + "".join(s.path) for s in plan.index_map.slots]
    now = dict(zip(paths, plan.unwrap(arguments.values), strict=True))
    wrong = []
    for slot, values in signature.read:
        place = signature.index_map.slots[slot]
        path = signature.inputs[place.outer].path + "".join(place.path)
        if now[path].tolist() != values:
            wrong.append(f"the values of {path}, which were read while tracing")
    return wrong


def _evaluated(text: str, values: Mapping[str, int]) -> Any:
    """The value of an expression over symbols, or None where one of them is not known."""
    if not values.keys() >= set(re.findall(r"\bs\d+\b", text)):
        return None
    source = Source("evaluated", ", ".join(values))
    source.globals |= {"math": math, "torch": torch}
    source.line(f"return {text}")
    return source.build()(**values)


def _number(size: Any) -> str:
    return "ragged" if _torch.is_nested_int(size) else str(size)


def _inner(value: Any, path: str, places: Mapping[str, str]) -> str:
    return describe_tensor(value, path, places) if isinstance(value, torch.Tensor) else _short(value)


def _contents(holder: Holder) -> Iterator[tuple[str, str]]:
    """What an object holds: Python values by themselves, the rest by class or number."""
    for table, entries in holder.tables:
        if holder.only_grows or table.kind in HOOKS:
            continue
        for key, node in entries:
            if table.kind == "elements" and isinstance(key, int) and key == len(entries) - 1:
                yield f"len({holder.path})", str(len(entries))
            path = str(key) if table.kind in ("cells", "globals") else holder.path + table.step(key)
            if isinstance(node, ValueAt):
                yield path, _short(node.value)
            elif isinstance(node, TensorAt):
                yield f"class of {path}", "a tensor"
            elif isinstance(node, TupleAt):
                yield f"class of {path}", node.cls.__name__


def _views_of_one_base(arguments: Arguments) -> str:
    """Which tensors are views of one, and so have one history."""
    by_base: dict[int, list[str]] = {}
    for i, value in enumerate(arguments.values):
        by_base.setdefault(id(autograd_base(value)), []).append(arguments.path_of(i))
    return ", ".join(" and ".join(views) for views in by_base.values() if len(views) > 1) or "none"


def _short(value: Any) -> str:
    if isinstance(value, torch.nn.Module):
        return type(value).__name__
    if hasattr(type(value), "__next__"):  # how it looks changes, and nobody asks that
        return f"{type(value).__name__} at {id(value):#x}"
    text = repr(value)
    if vars_of_number(value):
        text += f" with {vars(value)}"
    return text if len(text) < 80 else text[:77] + "..."
