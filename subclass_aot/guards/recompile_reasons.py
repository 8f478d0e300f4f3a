"""What a call looks like, in words: for `explain()` and for the reason of a recompile."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch

from subclass_aot import _torch
from subclass_aot.aliasing import autograd_base, storage_groups
from subclass_aot.call import Arguments
from subclass_aot.codegen import Source
from subclass_aot.flatten import SubclassCreationMeta
from subclass_aot.guards.modes import MODES, Modes
from subclass_aot.meta import Spec
from subclass_aot.objects import facts_of, integers_in, text_of
from subclass_aot.signature import JointSignature
from subclass_aot.sizes import tensors_of
from subclass_aot.symbols import is_symbolic, plain


def facts(
    arguments: Arguments, leaves: list[Any], state: Modes, places: Mapping[str, str] = MappingProxyType({})
) -> dict[str, str]:
    """Describes everything that a signature depends on, by name.

    Args:
        arguments: The call.
        leaves: Its leaves.
        state: Its global modes.
        places: Sizes that are not told by their number, such as `args[0].size(1)`, and what is said instead.
    """
    found: dict[str, str] = {}
    # All trees here are of that namespace; users need not hear of it.
    found["structure of the arguments"] = str(arguments.treespec).replace(", namespace='torch'", "")
    for name, value in zip(MODES, state, strict=True):
        found[name] = str(value)
    found |= facts_of(arguments.objects)
    for place, position in arguments.placed:
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


def changing_numbers(arguments: Arguments, signature: JointSignature, before: Mapping[str, str]) -> set[str]:
    """Finds the paths of numbers that a function changes itself and that are others now than when it was compiled.

    Args:
        arguments: A call.
        signature: What the function left behind in another call, forward and backward.
        before: The facts of that one.
    """
    changed, ids = signature.assigned_paths, set(arguments.identified.values())
    numbers = ((path, n) for path, n in integers_in(arguments.objects) if path in changed and n not in ids)
    return {path for path, n in numbers if before.get(path) != str(n)}


def difference(before: dict[str, str], now: dict[str, str]) -> list[str]:
    """Lists the facts that differ, each as one line.

    >>> difference({"x": "float32[3]"}, {"x": "float32[5]"})
    ['x: float32[3] before, float32[5] now']
    """
    names = list(dict.fromkeys([*before, *now]))
    return [
        f"{name}: {before.get(name, 'absent')} before, {now.get(name, 'absent')} now"
        for name in names
        if before.get(name) != now.get(name)
    ]


def describe_tensor(tensor: torch.Tensor, path: str = "", places: Mapping[str, str] = MappingProxyType({})) -> str:
    """Describes a tensor in one line, inner tensors and context included.

    Args:
        tensor: The tensor.
        path: Where it stands.
        places: As for `facts`.
    """
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
        context = SubclassCreationMeta.masked(context, path, places)
        text += f" {{{inner}}}" + (f" context {context!r}" if context is not None else "")
    return text


def symbolic_places(signature: JointSignature) -> dict[str, str]:
    """Names every size and stride of the inputs that is a symbol or made of symbols, with its text.

    Where the context of a wrapper repeats one, that place is named, too. See Note [Sizes in contexts].
    """
    if signature.assumptions.symbols is None:
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
    texts = {place: signature.assumptions.symbols.text(n) for place, n in found.items() if is_symbolic(plain(n))}
    for given in signature.inputs:
        if isinstance(given.meta, SubclassCreationMeta):
            texts.update(given.meta.symbolic_places(given.path))
    return texts


def unmet(signature: JointSignature, arguments: Arguments) -> list[str]:
    """Lists what the trace read and assumed that does not hold of a call: beginnings in storages, values, sizes.

    The call fits otherwise. Each is one line.
    """
    wrong = signature.begins_elsewhere((*arguments.values, *arguments.views)) + _read_otherwise(signature, arguments)
    if signature.assumptions.symbols is None:
        return wrong
    numbers = {
        f"{path}.{kind}({dim})": n
        for path, tensor, _ in tensors_of(arguments)
        for kind, all_numbers in (("size", tensor.size()), ("stride", tensor.stride()))
        for dim, n in enumerate(all_numbers)
    }
    values: dict[str, int] = {}
    for place, text in symbolic_places(signature).items():
        if text.isidentifier() and text not in values:
            values[text] = numbers[place]
        elif place in numbers and (expected := _evaluated(text, values)) is not None and expected != numbers[place]:
            wrong.append(f"{place}: {text} before, that is {expected}, {numbers[place]} now")
    where = ", ".join(f"{name} = {value}" for name, value in values.items())
    for text, _ in signature.assumptions.symbols.assumptions(values):
        if _evaluated(text, values) is False:
            wrong.append(f"{text} before, not so now, where {where}")
    return wrong


def _read_otherwise(signature: JointSignature, arguments: Arguments) -> list[str]:
    """Names the inputs whose values were read while tracing and are others now."""
    if not signature.assumptions.read:
        return []
    plan = arguments.plan
    paths = [arguments.path_of(s.outer) + "".join(s.path) for s in plan.index_map.slots]
    now = dict(zip(paths, plan.unwrap(arguments.values), strict=True))
    wrong = []
    for slot, values in signature.assumptions.read:
        place = signature.index_map.slots[slot]
        path = signature.inputs[place.outer].path + "".join(place.path)
        if now[path].tolist() != values:
            wrong.append(f"the values of {path}, which were read while tracing")
    return wrong


def _evaluated(text: str, values: Mapping[str, int]) -> Any:
    """Computes the value of an expression over symbols, or None where one of them is not known."""
    if not values.keys() >= set(re.findall(r"\bs\d+\b", text)):
        return None
    source = Source("evaluated", ", ".join(values))
    source.globals |= {"math": math, "torch": torch}
    source.line(f"return {text}")
    return source.build()(**values)


def _number(size: object) -> str:
    return "ragged" if _torch.is_nested_int(size) else str(size)


def _inner(value: object, path: str, places: Mapping[str, str]) -> str:
    return describe_tensor(value, path, places) if isinstance(value, torch.Tensor) else text_of(value)


def _views_of_one_base(arguments: Arguments) -> str:
    """Says which tensors are views of one, and so have one history."""
    by_base: dict[int, list[str]] = {}
    for i, value in enumerate(arguments.values):
        by_base.setdefault(id(autograd_base(value)), []).append(arguments.path_of(i))
    return ", ".join(" and ".join(views) for views in by_base.values() if len(views) > 1) or "none"
