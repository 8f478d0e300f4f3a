"""What a call leaves behind beside the writes into tensors: its results, and what objects hold afterwards.

Note [Outcome of a call]
~~~~~~~~~~~~~~~~~~~~~~~~
Tensors that are results, and those that the function put into objects, are one list, the flattened results. Around it
stands how results and objects are made of it, as data: new objects, objects of the call, literals. Generated code does
that at each call.
"""

from __future__ import annotations

import functools
import gc
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import optree
import torch

from subclass_aot import _torch
from subclass_aot.call.data_access import refuse_capsule
from subclass_aot.call.objects import Holder, Objects, Pinned
from subclass_aot.call.tables import HOOKS, Table, can_be_made, is_object, limit_of, object_tables, same_contents
from subclass_aot.call.untracked_state import NotStepped, refuse_changed
from subclass_aot.errors import MutationError, TraceError
from subclass_aot.symbols import is_symbolic

_NEW_PARAMETER = """{path}: the function assigns another parameter here.
  Optimizers, and whoever holds the parameter, would go on with the one that was there before.
  Instead: write into it, as in `with torch.no_grad(): {path}.copy_(value)`."""

_NEW_MODULE = """{path}: the function makes a module, and it is still there after the call.
  Its parameters were made while tracing, and have no values.
  Instead: make the module before, outside the compiled function."""

_NO_PICTURE = """{path}: an object of class {kind} holds tensors, and how to make another one is not known.
  Instead: return its tensors, in tuples, lists and dicts; or tell torch how the class is taken apart, as in
  torch.utils._pytree.register_pytree_node({kind}, ...)."""

_PASSED_TWICE = """{path}: this list or dict is passed twice, and the function changes {changed}.
  While it is traced, lists and dicts among the arguments are copies, one for each place.
  Instead: pass it once, or keep it in an attribute of an object."""

_IN_ITSELF = """{path}: a {kind} holds itself, and such a structure cannot be made again.
  Instead: return its parts."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """The flattened result at a position."""

    position: int


@dataclass(frozen=True, slots=True)
class Given:
    """An object of the call itself, by its position among `Outcome.objects`."""

    position: int


@dataclass(frozen=True, slots=True, eq=False)
class Tuple:
    """A tuple of any class."""

    cls: type
    parts: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class New:
    """An object that is made anew, by its position among `Outcome.new`."""

    position: int


@dataclass(frozen=True, slots=True)
class Weak:
    """A weak reference to an object."""

    target: Any


@dataclass(frozen=True, slots=True, eq=False)
class Literal:
    """A Python value that is the same at each call."""

    value: Any


Recipe = Leaf | Given | Tuple | New | Weak | Literal


@dataclass(slots=True, eq=False)
class NewObject:
    """How an object is made: by `unflatten` from its parts, or empty, and then filled table by table."""

    cls: type
    unflatten: Callable[[Sequence[Any]], Any] | None = None
    parts: tuple[Recipe, ...] = ()
    tables: tuple[tuple[Table, tuple[tuple[Recipe, Recipe], ...]], ...] = ()
    like: Any = None
    """A `defaultdict`'s factory, or a `deque`'s greatest length."""


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """What one table of an object of the call holds afterwards.

    Attributes:
        object: The object, by its position among `Outcome.objects`.
        path: Where the user finds it.
        table: Which of its tables.
        removed: Keys that are gone. If everything is put in anew, all.
        assigned: Keys and what stands there, those that are new or another; all elements of a list.
        appended: Whether the elements in `assigned` come after those of before.
    """

    object: int
    path: str
    table: Table
    removed: tuple[Any, ...]
    assigned: tuple[tuple[Recipe, Recipe], ...]
    appended: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """The results of a function and what it changed, around its flattened results. See Note [Outcome of a call].

    Attributes:
        result: What the function returns.
        new: Objects that are made at each call.
        objects: Objects of the call that results hold, or that change: for each the position of the one it is reached
            from, or None, and the steps from there.
        changes: What is put into them.
        assigned: Where flattened results after those of the user go, for errors and for `explain()`.
    """

    result: Recipe
    new: tuple[NewObject, ...]
    objects: tuple[tuple[int | None, tuple[Any, ...]], ...]
    changes: tuple[Change, ...]
    assigned: tuple[str, ...]

    @property
    def literals(self) -> list[Any]:
        """Python values in the results, and among what is put into objects, that are the same at each call."""
        found: list[Any] = []
        parts: list[Any] = [self.result, *(v for c in self.changes for pair in c.assigned for v in pair)]
        parts += [part for new in self.new for part in new.parts]
        parts += [v for new in self.new for _, entries in new.tables for pair in entries for v in pair]
        while parts:
            part = parts.pop()
            if isinstance(part, Literal):
                found.append(part.value)
            elif isinstance(part, Tuple):
                parts += part.parts
        return found

    @property
    def is_plain(self) -> bool:
        """Whether there is nothing to it but to give results their structure."""
        return not self.objects


class Existed:
    """Which objects are older than a block, asked in it.

    Python's collector is told to leave them alone until the end of the block, and so lists those alone that are new. A
    list of all would cost more the more the program has. Where the user told it so already, there is no other way.
    """

    def __init__(self) -> None:
        self._leaves_alone = False
        self._before: list[Any] = []
        self._new: set[int] | None = None

    def __enter__(self) -> Existed:
        self._leaves_alone = gc.get_freeze_count() == 0
        if self._leaves_alone:
            gc.freeze()
        else:  # kept alive, since a new one might get the id of one that is gone
            self._before = gc.get_objects()
        return self

    def __exit__(self, *error: object) -> None:
        if self._leaves_alone:
            gc.unfreeze()
        self._before, self._new = [], None

    def __contains__(self, value: Any) -> bool:
        if self._new is None:
            self._new = set(map(id, gc.get_objects())) - set(map(id, self._before))
        return id(value) not in self._new


def read_outcome(
    seen: Objects, result: Any, existed: Container[Any] = (), twice: Mapping[int, str] | None = None
) -> tuple[list[Any], Outcome]:
    """The flattened results of a call, and how its outcome is made of them.

    Args:
        seen: What the function saw, as it was before.
        result: What it returned.
        existed: What is older than that. If nothing depends on tensors in it, it stays the same object.
        twice: Where lists and dicts stand among the arguments that are reached a second time, by their ids.

    Raises:
        MutationError: A parameter was exchanged, or an array that is no tensor was written.
        TraceError: An object that holds tensors cannot be made again, or Python's random numbers were drawn.
    """
    refuse_changed(seen.watched)
    reader = _Reader(seen, existed)
    recipe = reader.recipe(result, "the result")
    count = len(reader.leaves)
    changes = []
    for holder, change in reader.changes():
        changes.append(change)
        if twice and (id(holder.value) in twice or is_of_arguments(change)):
            path = twice.get(id(holder.value)) or next(iter(twice.values()))
            raise MutationError(_PASSED_TWICE.format(path=path, changed=change.path))
    paths = tuple(reader.paths[count:])
    return reader.leaves, Outcome(recipe, tuple(reader.new), tuple(reader.objects), tuple(changes), paths)


def is_of_arguments(change: Change) -> bool:
    """Whether what changes is reached by an argument."""
    return change.path.startswith(("args", "kwargs"))


class _Reader:
    def __init__(self, seen: Objects, existed: Container[Any]) -> None:
        self.seen = seen
        self.existed = existed
        self.leaves: list[Any] = []
        self.paths: list[str] = []
        self.new: list[NewObject] = []
        self.objects: list[tuple[int | None, tuple[Any, ...]]] = []
        self._given: dict[int, int] = {}
        self._made: dict[int, tuple[Any, Recipe | None]] = {}

    def recipe(self, value: Any, path: str) -> Recipe:
        """How `value` is made again."""
        if isinstance(value, torch.Tensor | torch.Size | torch.SymInt) or is_symbolic(value):
            return self._leaf(value, path)
        refuse_capsule(value)
        if type(value) is NotStepped:
            return Literal(value.iterator)
        position = self.seen.position_of(value)
        if position is not None:
            return Given(self._object(position))
        if isinstance(value, tuple):
            return self._tuple(value, path)
        if type(value) is weakref.ref:
            target = self.recipe(value(), path)
            return Literal(value) if isinstance(target, Literal) else Weak(target)
        if id(value) in self._made:
            known = self._made[id(value)][1]
            if known is None:
                raise TraceError(_IN_ITSELF.format(path=path, kind=type(value).__name__))
            return known
        if isinstance(value, torch.nn.Module):
            raise MutationError(_NEW_MODULE.format(path=path))
        if type(value) not in _BUILTIN and optree.is_namedtuple(value) is False and _is_registered(value):
            return self._registered(value, path)
        tables = object_tables(value)
        return self._object_with(value, tables, path) if tables else Literal(value)

    def _leaf(self, value: Any, path: str) -> Leaf:
        self.leaves.append(value)
        self.paths.append(path)
        return Leaf(len(self.leaves) - 1)

    def _tuple(self, value: tuple[Any, ...], path: str) -> Recipe:
        parts = tuple(self.recipe(x, f"{path}[{i}]") for i, x in enumerate(value))
        return Literal(value) if all(isinstance(p, Literal) for p in parts) else Tuple(type(value), parts)

    def _registered(self, value: Any, path: str) -> Recipe:
        """An object that torch's pytree takes apart."""
        self._made[id(value)] = value, None
        children, metadata, entries, unflatten = optree.tree_flatten_one_level(
            value, none_is_leaf=True, namespace=_torch.PYTREE_NAMESPACE
        )
        parts = tuple(self.recipe(x, f"{path}[{e!r}]") for x, e in zip(children, entries, strict=True))
        self.new.append(NewObject(type(value), functools.partial(unflatten, metadata), parts))
        return self._note(value)

    def _object_with(self, value: Any, tables: list[Table], path: str) -> Recipe:
        """A container, or an object by its attributes. An older one without tensors stays the same object."""
        made = NewObject(type(value), like=limit_of(value))
        leaves, objects, count = len(self.leaves), len(self.objects), len(self.new)
        self.new.append(made)
        recipe = self._note(value, count)
        made.tables = tuple(
            (t, tuple((self._key(k, path), self.recipe(v, path + t.step(k))) for k, v in t.read(value))) for t in tables
        )
        if (leaves, objects) != (len(self.leaves), len(self.objects)) or not self._stays(value):
            if not can_be_made(type(value)):
                raise TraceError(_NO_PICTURE.format(path=path, kind=type(value).__name__))
            return recipe
        for key, (_, other) in list(self._made.items()):
            if isinstance(other, New) and other.position >= count:
                del self._made[key]
        del self.new[count:]
        self._made[id(value)] = value, Literal(value)
        return Literal(value)

    def _stays(self, value: Any) -> bool:
        """Whether an object that holds no tensors is the same at each call."""
        return type(value) not in _BUILTIN and (not can_be_made(type(value)) or value in self.existed)

    def _note(self, value: Any, position: int | None = None) -> New:
        recipe = New(len(self.new) - 1 if position is None else position)
        self._made[id(value)] = value, recipe
        return recipe

    def _key(self, key: Any, path: str) -> Recipe:
        made = isinstance(key, torch.Tensor) or is_object(key)
        return self.recipe(key, f"a key of {path}") if made else Literal(key)

    def _object(self, position: int) -> int:
        """An object of the call, and how it is reached."""
        known = self._given.get(position)
        if known is None:
            holder = self.seen.holders[position]
            parent, steps = holder.parent, holder.steps
            if isinstance(holder.value, torch.nn.Module):
                parent, steps = None, (Pinned(holder.value),)
            above = None if parent is None else self._object(parent)
            known = self._given[position] = len(self.objects)
            self.objects.append((above, steps))
        return known

    def changes(self) -> Iterator[tuple[Holder, Change]]:
        """What stands elsewhere in the objects of the call, or is another than before."""
        for position, holder in enumerate(self.seen.holders):
            for table, entries in holder.tables:
                if table.kind in HOOKS or table.kind == "keys":
                    continue
                before = [(self._seen(k), self._seen(node)) for k, node in entries]
                now = table.read(holder.value)
                if not same_contents(before, now) and not _same_values(before, now):
                    yield holder, self._change(position, table, before, now)

    def _seen(self, node: Any) -> Any:
        return self.seen.value_of(node)

    def _change(self, position: int, table: Table, before: list[Any], now: list[Any]) -> Change:
        holder = self.seen.holders[position]
        appended = table.kind == "elements" and same_contents(before, now[: len(before)])
        removed: tuple[Any, ...] = ()
        if table.kind in ("elements", "members"):
            assigned = now[len(before) :] if appended else now
        else:
            known = {_id(k): v for k, v in before}
            there = {_id(k) for k, _ in now}
            gone = [k for k, _ in before if _id(k) not in there]
            assigned = [(k, v) for k, v in now if _id(k) not in known or known[_id(k)] is not v]
            kept = [_id(k) for k, _ in now if _id(k) in known]
            if kept != [_id(k) for k, _ in before if _id(k) in there] or kept != [_id(k) for k, _ in now][: len(kept)]:
                gone, assigned = [k for k, _ in before], now  # the order is another
            removed = tuple(self._key(k, holder.path) for k in gone)
        recipes = []
        for key, value in assigned:
            path = holder.path + table.step(key)
            if table.kind == "_parameters" and value is not None:
                raise MutationError(_NEW_PARAMETER.format(path=path))
            recipes.append((self._key(key, holder.path), self.recipe(value, path)))
        return Change(self._object(position), holder.path, table, removed, tuple(recipes), appended)


def _id(key: Any) -> Any:
    return id(key) if isinstance(key, torch.Tensor) else (type(key), key)


def _same_values(before: list[tuple[Any, Any]], now: list[tuple[Any, Any]]) -> bool:
    """Whether what differs are equal numbers or strings: other objects, but nobody can tell."""
    return len(before) == len(now) and all(
        _id(k) == _id(j) and (v is w or type(v) is type(w) and type(v) in (int, str, bytes, bool) and v == w)
        for (k, v), (j, w) in zip(before, now, strict=True)
    )


def _is_registered(value: Any) -> bool:
    namespace = _torch.PYTREE_NAMESPACE
    return not optree.tree_is_leaf(value, none_is_leaf=True, namespace=namespace)


_BUILTIN = frozenset({list, dict, set, OrderedDict, defaultdict, deque})
