"""No traced tensor leaves a trace: whatever of the user's still holds one when it is over is an error that says where.

Note [Traced tensors that stay]
~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
What a program puts into objects that the call reaches is put there again at each call (`outcome/`). Elsewhere, in a
class, in a module of Python, in a generator, in a context variable, a traced tensor would stay, and have no data.
Autograd's graph of the trace may hold traced tensors, and so may what it leads to. So a tensor that somebody holds is
followed upwards, from holder to holder, and is a leak where that ends in something that anybody can reach: a module, a
class, a context, or a variable of a function that is running.

Python finds holders by looking through all objects that its collector knows, and leaves out those which it was told to
leave alone. As long as that is what is older than the trace (see `OlderObjects`), a step from holder to holder costs
next to nothing, and the graph of the trace is followed to its end. Then one more step, which is slow, finds what is
older and holds any of that.
"""

from __future__ import annotations

import contextvars
import gc
import sys
import types
import weakref
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Any, TypeGuard

import torch

from subclass_aot.base import _torch
from subclass_aot.base.lru_caches import clear_if_cache
from subclass_aot.base.variables import variables_of
from subclass_aot.errors import TraceError
from subclass_aot.meta import MetaTensor

_LEAKED = """A traced tensor is still there when the trace is over: {where}
  The tensor:    {tensor}
  It has no data, and later calls would not put another one there.
  Instead: return it. Or keep it in an object that is an argument or that the function closes over, or in an attribute
  of a module that is compiled or passed: what is put there is put there at each call."""

_DEPTH = 12
"""Holders that are followed, one behind the other."""

_WIDTH = 1000
"""Holders at one distance; more belong to machinery that everything is connected with."""


def find_holders(
    made: Iterable[weakref.ref[torch.Tensor]], own: Sequence[Collection[Any]], kept: Sequence[Any]
) -> Holders | None:
    """Looks for traced tensors that the user still holds. It is called where the collector leaves alone what is older.

    Args:
        made: Every leaf of the trace, and wrappers of it.
        own: Collections of this library that hold some.
        kept: Values that the user gets at each call.

    Returns:
        Who holds them among what is new; `follow` it once the collector sees what is older. None if nobody does.

    Raises:
        TraceError: There is one, and anybody can reach it.
    """
    alive: list[torch.Tensor] = list({id(x): x for x in [ref() for ref in made] if _is_traced(x)}.values())
    known = _known_references([alive, *own])
    counts = _references(alive)
    held = [tensor for tensor, count in zip(alive, counts, strict=True) if count > known[id(tensor)]]
    if not held:
        return None
    holders = Holders(held, [alive, held, *own], kept)
    holders.follow()
    return holders


def _is_traced(tensor: object) -> TypeGuard[torch.Tensor]:
    """Returns whether it is a leaf, or a wrapper that has one inside; real wrappers may be used in a trace, too."""
    if type(_torch.plain_subclasses.leaf_of(tensor)) is MetaTensor:
        return True
    return isinstance(tensor, torch.Tensor) and any(map(_is_traced, vars(tensor).values()))


def _known_references(collections: Sequence[Collection[Any]]) -> Counter[int]:
    """Counts how often collections of this library, and what is in them, refer to each tensor, by its id."""
    once = {id(collection): collection for collection in collections[1:]}  # forks of a recorder share some
    known = Counter(id(x) for collection in once.values() for x in collection)
    for tensor in {id(x): x for collection in collections for x in collection}.values():
        if isinstance(tensor, torch.Tensor) and type(tensor) is not MetaTensor:  # a wrapper; jagged ones have a table
            if _torch.plain_subclasses.is_front(tensor):
                known[id(_torch.plain_subclasses.leaf_of(tensor))] += 1
            for value in vars(tensor).values():
                known.update(map(id, value.values()) if type(value) is dict else (id(value),))
    return known


def _references(tensors: list[torch.Tensor]) -> list[int]:
    """Counts the references that Python has to each, beside those of the list and of autograd."""
    # Two are the list's and that of `map`. A function of our own as it had more of them where Dynamo runs frames.
    counts = list(map(sys.getrefcount, tensors))
    return [counts[i] - 2 - _torch.autograd.is_held_in_cpp(tensors[i]) for i in range(len(tensors))]


class Holders:
    """The holders of traced tensors, and the holders of these.

    Args:
        held: The tensors.
        own: What holds some of them, and is this library's.
        kept: Values that the user gets at each call.

    Attributes:
        held: The tensors.
    """

    def __init__(self, held: list[torch.Tensor], own: list[Any], kept: Sequence[Any]) -> None:
        self.held = held
        self._own = own  # alive as long as their ids are in use
        self._reachable = _running_frames()
        self._reachable.update((id(value), f"in {type(value).__name__}, which is returned") for value in kept)
        self._met: dict[int, Any] = {id(x): x for x in held}
        self._below: dict[int, int] = {}  # by numbers: a pair of objects would itself be a holder of both
        self._seen = {id(x) for x in (*own, *held, own, self._reachable, self._met, kept)}

    def follow(self) -> None:
        """Goes from all that was met to its holders, and on from these, breadth first.

        Raises:
            TraceError: That leads to what anybody can reach.
        """
        level = list(self._met.values())
        for _ in range(_DEPTH):
            level = self._holders_of(level)
            if not level or len(level) > _WIDTH:
                return

    def _holders_of(self, level: list[Any]) -> list[Any]:
        inside = set(map(id, level))
        above: list[Any] = []
        for holder in gc.get_referrers(*level):
            if id(holder) in self._seen or holder is level or holder is above or _is_ours(holder):
                continue
            self._seen.add(id(holder))
            held_by_it = next((id(x) for x in gc.get_referents(holder) if id(x) in inside), None)
            if held_by_it is None:
                continue
            if clear_if_cache(holder):
                continue
            self._met[id(holder)], self._below[id(holder)] = holder, held_by_it
            above.append(holder)
            if isinstance(holder, contextvars.Context):  # of this thread, or one that a task or a program has copied
                name = next(variable.name for variable, value in holder.items() if id(value) in self._met)
                _, leaf = _path(holder, self._met, self._below)
                raise TraceError(_LEAKED.format(where=f"in context variable {name}", tensor=_described(leaf)))
            where = _known_place(holder, self._reachable)
            if where is not None:
                path, leaf = _path(holder, self._met, self._below)
                raise TraceError(_LEAKED.format(where=where + path, tensor=_described(leaf)))
        return above


def _known_place(holder: object, reachable: dict[int, str]) -> str | None:
    """Returns what anybody can reach a holder by."""
    if isinstance(holder, type) and _is_found_by_name(holder):
        return f"in class {holder.__qualname__}, "
    if isinstance(holder, dict):
        name = holder.get("__name__")
        if isinstance(name, str) and getattr(sys.modules.get(name), "__dict__", None) is holder:
            return f"in module {name}, "
    return reachable.get(id(holder))


def _is_found_by_name(cls: type) -> bool:
    """Returns whether a module has a class.

    One that a function makes, or torch for a gradient, is like other objects.
    """
    found: Any = sys.modules.get(cls.__module__)
    for name in cls.__qualname__.split("."):
        found = vars(found).get(name) if hasattr(found, "__dict__") else None
    return found is cls


def _path(holder: object, met: dict[int, object], below: dict[int, int]) -> tuple[str, object]:
    """Returns the way from a holder down to the tensor."""
    text = ""
    while id(holder) in below:
        inside = met[below[id(holder)]]
        text += _step(holder, inside)
        holder = inside
    return text or "itself", holder


def _described(tensor: Any) -> str:
    """Says what a tensor is. One of a class of the user's might compute something for that."""
    return repr(tensor) if isinstance(tensor, MetaTensor) else f"{type(tensor).__name__}({list(tensor.shape)})"


def _step(holder: object, inside: object) -> str:
    if isinstance(holder, dict):
        key = next((k for k, v in holder.items() if v is inside), None)
        return f".{key}" if isinstance(key, str) and key.isidentifier() else f"[{key!r}]"
    if isinstance(holder, list | tuple):
        return f"[{next(i for i, x in enumerate(holder) if x is inside)}]"
    if isinstance(holder, types.FunctionType):
        if inside is holder.__closure__:
            return f" closure of {holder.__qualname__}"
        return f" defaults of {holder.__qualname__}" if inside is holder.__defaults__ else f" {holder.__qualname__}"
    if isinstance(holder, types.CellType):
        return " a variable of a closure"
    return "" if isinstance(holder, type) else f" {type(holder).__name__}"


def _running_frames() -> dict[int, str]:
    """Finds the user's variables in the functions that are running, by the id of what they hold."""
    found: dict[int, str] = {}
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        if not (frame.f_globals.get("__name__") or "").startswith("subclass_aot."):
            for name, value in variables_of(frame).items():
                found.setdefault(id(value), f"in variable `{name}` of {frame.f_code.co_name}, ")
        frame = frame.f_back
    return found


def _is_ours(holder: object) -> bool:
    """Returns whether a holder is part of a trace or of what was compiled, and leads nowhere else."""
    if isinstance(holder, types.FrameType):
        return True
    module = type(holder).__module__ or ""
    return module.startswith(("subclass_aot.engine.trace.", "subclass_aot.engine.runtime.", "torch.fx"))
