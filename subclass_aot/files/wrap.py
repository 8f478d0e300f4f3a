"""State dicts put together again, from dense tensors by name."""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.base._stack import pass_on_interruption
from subclass_aot.base.named import full_name
from subclass_aot.errors import StateDictError
from subclass_aot.files.classes import Classes, KnownClasses
from subclass_aot.files.context import from_json, refusals
from subclass_aot.files.leaves import State, is_wrapper, memory_of, parts_of, state_of
from subclass_aot.files.like import wrap_like
from subclass_aot.files.strides import with_stride
from subclass_aot.files.unwrap import KEY, VERSION
from subclass_aot.kit.declaration import Declaration
from subclass_aot.kit.wrapper import rebuild_by_name
from subclass_aot.ranks import within_distributed


def wrap_state_dict(
    tensors: Mapping[str, Any],
    metadata: Mapping[str, str] | None = None,
    *,
    like: State | None = None,
    classes: Classes = (),
) -> dict[str, Any]:
    """Wraps the entries of a state dict that `unwrap_state_dict` has unwrapped.

    Args:
        tensors: Dense tensors by name. Those that belong to no wrapper are entries of the result, as they are.
        metadata: What `unwrap_state_dict` gave beside them. Other keys are passed over.
        like: A module, or a state dict: where the metadata does not speak of an entry that is a wrapper there, its
            class and context count. So files that others have written can be read.
        classes: Classes that the metadata may name, besides those that derive from `WrapperTensor`, and those in
            `like`: wrapper classes of other libraries, and enums and dataclasses of their contexts. A dict gives them
            by the names that the metadata has: `{"old.module:OldName": Name}`.

    Returns:
        The state dict. The wrappers hold the tensors that were given, unless these have lost their strides.

    Raises:
        StateDictError: Something is missing, has another size or dtype than the metadata says, or is of a class that
            nobody knows.
    """
    flat, said = dict(tensors), _said(metadata)
    others = {} if like is None else state_of(like)
    expected = {name: parts_of(value, name) for name, value in others.items() if is_wrapper(value)}
    known = KnownClasses(classes)
    for cls in _classes_of(expected.values()):
        known.given.setdefault(full_name(cls), cls)
    with torch.no_grad():
        for place, look in _leaves(said["wrappers"]):
            first = said["tied"].get(place, place)
            if first in flat:
                flat[first] = _as_it_was(flat[first], look, place)
        for name, first in said["tied"].items():
            if first in flat:
                flat.setdefault(name, flat[first])
        made = _wrapped(said["wrappers"], flat, known)
        made.update((name, flat.pop(name)) for name in others if name in flat)
        for name in sorted(expected, key=len, reverse=True):  # `a.b` before `a`, to which all else below `a` belongs
            if name not in made and (found := wrap_like(expected[name], name, flat)) is not None:
                made[name] = found
        for name in expected.keys() & made.keys():
            made[name] = _placed(made[name], others[name])
    return {**flat, **made}


def _wrapped(entries: Mapping[str, Any], flat: dict[str, Any], known: KnownClasses) -> dict[str, Any]:
    """Returns the wrappers that are said of, by name. Their tensors are taken out of `flat`."""
    made: dict[str, Any] = {}
    of_memory: dict[Hashable, str] = {}
    for name, entry in entries.items():
        places = [place for place, _ in _leaves({name: entry})]
        missing = [place for place in places if place not in flat]
        if places and len(missing) == len(places):
            continue  # it is in another file
        if missing:
            raise StateDictError(f"{name} is a {entry['class']}, of which {', '.join(missing)} is missing")
        first = of_memory.setdefault(tuple(memory_of(flat[place]) for place in places), name)
        if first != name and entries[first] == entry:
            made[name] = made[first]
            for place in places:
                flat.pop(place, None)
        else:
            made[name] = _wrap(entry, name, flat, known)
    return made


def _placed(wrapper: torch.Tensor, like: Any) -> Any:
    """Returns a wrapper of distributed tensors as what `like` is: a distributed tensor of wrappers, perhaps."""
    if not _torch.wrappers.is_distributed(like) or _torch.wrappers.is_distributed(wrapper):
        return wrapper
    return within_distributed(wrapper, like) if _is_in_parts(wrapper) else wrapper


def _is_in_parts(wrapper: torch.Tensor) -> bool:
    """Returns whether an inner tensor is a distributed one."""
    if _torch.wrappers.is_distributed(wrapper) or not is_wrapper(wrapper):
        return _torch.wrappers.is_distributed(wrapper)
    flat: Any = wrapper
    return any(_is_in_parts(getattr(wrapper, name)) for name in flat.__tensor_flatten__()[0])


def _said(metadata: Mapping[str, str] | None) -> dict[str, Any]:
    """Returns what the metadata says."""
    text = (metadata or {}).get(KEY)
    if text is None:
        return {"wrappers": {}, "tied": {}}
    try:
        said = json.loads(text)
        version, found = int(said["version"]), {"wrappers": dict(said["wrappers"]), "tied": dict(said["tied"])}
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        pass_on_interruption(error)
        raise StateDictError(f"the metadata {KEY!r} cannot be read: {error!r}") from error
    for name, entry in found["wrappers"].items():
        if not _is_entry(entry):
            what = f"something is missing in what it says of {name:.200}, or is of another kind"
            raise StateDictError(f"the metadata {KEY!r} cannot be read: {what}")
    for name, first in found["tied"].items():
        if type(first) is not str:
            raise StateDictError(f"the metadata {KEY!r} cannot be read: {name:.200} is tied to what is no name")
    if version > VERSION:
        raise StateDictError(
            f"the metadata {KEY!r} is of version {version}, and this version of subclass_aot reads {VERSION}: "
            "install a newer one"
        )
    return found


_DEEPEST = 50
"""No wrapper is so deep: what goes through entries calls itself for each that is in another one."""

_TEXTS = ("dtype", "class", "device")
_NUMBERS = ("size", "stride")


def _is_entry(entry: object, depth: int = 0) -> bool:
    """Returns whether it has what is said of a wrapper, or of a dense tensor in one."""
    if not isinstance(entry, dict) or not {"size", "dtype"} <= set(entry) or depth > _DEEPEST:
        return False
    if not all(type(entry.get(key, "")) is str for key in _TEXTS):
        return False
    if not all(type(entry.get(key, [])) is list and all(map(_is_number, entry.get(key, []))) for key in _NUMBERS):
        return False
    if "inner" not in entry:
        return True
    if not {"class", "stride"} <= set(entry) or not {"fields", "context"} & set(entry):
        return False
    inner = entry["inner"]
    return isinstance(inner, dict) and all(_is_entry(look, depth + 1) for look in inner.values())


def _is_number(number: object) -> bool:
    return type(number) is int and 0 <= number < 2**63


def _leaves(entries: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the dense tensors of wrappers, by name, each with what is said of it."""
    for name, entry in entries.items():
        if "inner" in entry:
            yield from _leaves({f"{name}.{inner}": look for inner, look in entry["inner"].items()})
        else:
            yield name, entry


def _as_it_was(tensor: torch.Tensor, look: Mapping[str, Any], place: str) -> torch.Tensor:
    """Returns a leaf with the strides that it had, if it has the size and the dtype that it had."""
    found = {"size": list(tensor.size()), "dtype": str(tensor.dtype).removeprefix("torch.")}
    for key, value in found.items():
        if value != look[key]:
            raise StateDictError(
                f"{place} has the {key} {value}, and the metadata says {look[key]}: it was changed without the "
                "metadata. Change the wrapper, and unwrap that"
            )
    return with_stride(tensor, look["stride"], place) if "stride" in look else tensor


def _wrap(entry: Mapping[str, Any], place: str, flat: dict[str, Any], known: KnownClasses) -> Any:
    """Returns the wrapper that an entry of the metadata describes. Its leaves are taken out of `flat`."""
    with refusals(place):
        cls: Any = known.wrapper(entry["class"])
    inner = {}
    for name, look in entry["inner"].items():
        there = f"{place}.{name}"
        inner[name] = _wrap(look, there, flat, known) if "inner" in look else flat.pop(there)
    declaration = Declaration.of(cls)
    by_name = declaration is not None and declaration.is_told_by_name
    if by_name != ("fields" in entry):
        raise StateDictError(
            f"{place} was written as a {'WrapperTensor' if 'fields' in entry else 'class with its own flatten'}, which "
            f"{cls.__name__} is no more. Hand in the class that it was: classes={{{entry['class']!r}: ...}}"
        )
    size, stride = tuple(entry["size"]), tuple(entry["stride"])
    try:
        if by_name:
            fields = dict(entry["fields"])
            for name, value in fields.items():
                if declaration is not None and declaration.named_now(name) in declaration.fields:
                    fields[name] = from_json(value, f"{place}, field {name}", known, cls)
            wrapper = rebuild_by_name(cls, inner, fields, None, None)
            if wrapper.size() == size and wrapper.stride() != stride:
                wrapper = rebuild_by_name(cls, inner, fields, size, stride)
        else:
            context = from_json(entry["context"], f"{place}, context", known, cls)
            wrapper = cls.__tensor_unflatten__(inner, context, size, stride)
    except StateDictError:
        raise
    except Exception as error:  # of the class: what was saved is not what it takes
        pass_on_interruption(error)
        raise StateDictError(f"{place} cannot be made of what was saved: {error}") from error
    _check(wrapper, cls, entry, inner, place)
    return wrapper


def _check(
    wrapper: torch.Tensor, cls: type, entry: Mapping[str, Any], inner: Mapping[str, torch.Tensor], place: str
) -> None:
    """Checks that a wrapper is what was saved, and where its inner tensors are."""
    found_device = str(wrapper.device)
    devices = [entry["device"]] if "device" in entry else [str(tensor.device) for tensor in inner.values()]
    said = {
        "class": cls.__name__,
        "size": entry["size"],
        "dtype": entry["dtype"],
        "device": found_device if found_device in devices else ", ".join(devices),
    }
    found = {
        "class": type(wrapper).__name__,
        "size": list(wrapper.shape),
        "dtype": str(wrapper.dtype).removeprefix("torch."),
        "device": found_device,
    }
    for key, value in found.items():
        if value != said[key]:
            raise StateDictError(
                f"{place} has the {key} {value} when it is made of what was saved, and should have {said[key]}"
                + (". Read it to the device that its context names, and move it then" if key == "device" else "")
            )


def _classes_of(wrappers: Iterable[Any]) -> Iterator[type]:
    for wrapper in wrappers:
        yield type(wrapper)
        inner = [getattr(wrapper, name) for name in wrapper.__tensor_flatten__()[0]]
        yield from _classes_of(value for value in inner if is_wrapper(value))
