"""Reading the outcome of a call off its results and objects, when the function has run on traced tensors."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import optree
import torch

from subclass_aot.base import _torch
from subclass_aot.base.shown_type import builtin_of
from subclass_aot.base.weak import is_weak, referent, weak_kind
from subclass_aot.engine.objects import AccessPath, Entry, Holder, NotStepped, Objects, nodes, same_constant
from subclass_aot.engine.outcome.recipes import (
    Change,
    Given,
    Identity,
    Leaf,
    Literal,
    New,
    NewObject,
    Outcome,
    Recipe,
    Tuple,
    Weak,
)
from subclass_aot.engine.tables import HOOKS, Table, can_be_made, extras_of, has_vars, is_object, object_tables
from subclass_aot.errors import DataDependentError, LastingChangeError, MutationError, TraceError
from subclass_aot.meta.symbols import is_symbolic

_NEW_PARAMETER = """{path}: the function assigns another parameter here.
  Optimizers, and whoever holds the parameter, would go on with the one that was there before.
  Instead: write into it, as in `with torch.no_grad(): {path}.copy_(value)`."""

_NEW_MODULE = """{path}: the function makes a module, and it is still there after the call.
  Its parameters would be made anew at each call, and no later call is compiled for them.
  Instead: make the module before, outside the compiled function."""

_NO_PICTURE = """{path}: an object of class {kind} holds tensors, and how to make another one is not known.
  Instead: return its tensors, in tuples, lists and dicts; or register with torch how the class is flattened, as in
  torch.utils._pytree.register_pytree_node({kind}, ...)."""

_CALLBACK = """{path}: the function puts a weak reference with a callback here, and later calls
  would make one without it.
  Instead: make it without a callback; or, if a WeakSet made it, keep the objects in a WeakKeyDictionary."""

_PASSED_TWICE = """{path}: this list or dict is passed twice, and the function changes {changed}.
  While it is traced, lists and dicts among the arguments are copies, one for each place.
  Instead: pass it once, or keep it in an attribute of an object."""

_IN_ITSELF = """{path}: a {kind} holds itself, and such a structure cannot be rebuilt.
  Instead: return its parts."""

_CAPSULE = """A result is a capsule, which points to the memory of a tensor, and a traced tensor has none.
Return the tensor, and make the capsule outside."""

_BUILTIN = frozenset({list, dict, set, OrderedDict, defaultdict, deque})


class Context(NamedTuple):
    """The attributes of a wrapper beside its inner tensors.

    Attributes:
        access_path: How generated code gets to the wrapper.
        path: Where the user finds it.
        wrapper: The wrapper.
        held: Its attributes, before the function has run.
    """

    access_path: AccessPath
    path: str
    wrapper: torch.Tensor
    held: Mapping[str, Any]

    @property
    def table(self) -> Table:
        """The table of these attributes."""
        return Table("attributes", only=tuple(self.held))


def read_outcome(
    seen: Objects,
    result: object,
    older: Container[Any] = (),
    twice: Mapping[int, str] | None = None,
    contexts: Sequence[Context] = (),
) -> tuple[list[Any], Outcome, Reader]:
    """Reads the flattened results of a call, and how its outcome is made of them. See Note [Outcome of a call].

    Beside them it gives what has read them, which knows the objects.

    Args:
        seen: What the function saw, as it was before.
        result: What it returned.
        older: What is older than that. If nothing depends on tensors in it, it stays the same object.
        twice: Where lists and dicts stand among the arguments that are reached a second time, by their ids.
        contexts: What wrappers held beside inner tensors.

    Raises:
        DataDependentError: A result points to memory.
        MutationError: A list or dict that is passed twice was changed.
        LastingChangeError: A parameter was exchanged, or a module made.
        TraceError: An object that holds tensors cannot be rebuilt.
    """
    reader = Reader(seen, older, contexts)
    recipe = reader.recipe(result, "the result")
    count = len(reader.leaves)
    changes = []
    for holder, change in reader.changes():
        changes.append(change)
        if twice and (id(holder.value) in twice or _is_of_arguments(change)):
            path = twice.get(id(holder.value)) or next(iter(twice.values()))
            raise MutationError(_PASSED_TWICE.format(path=path, changed=change.path))
    changes += reader.context_changes()
    attributes = tuple(reader.attributes())
    paths = tuple(reader.paths[count:])
    new, objects = tuple(reader.new), tuple(reader.objects)
    return reader.leaves, Outcome(recipe, new, objects, tuple(changes), paths, attributes=attributes), reader


def _put_gradient(tensor: torch.Tensor) -> torch.Tensor | None:
    """Returns the `.grad` that a function has put on a tensor which does not require grad."""
    try:
        is_leaf = tensor.is_leaf
    except RuntimeError:  # a view that autograd has given up
        return None
    return tensor.grad if is_leaf and not tensor.requires_grad else None


def _with_inner(value: object, inner: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], torch.Tensor]]:
    """Yields a tensor and those in it, each with the names of inner tensors on the way; nothing for other values."""
    if not isinstance(value, torch.Tensor):
        return
    yield inner, value
    if _torch.wrappers.is_traceable_wrapper_subclass(value):
        for name in value.__tensor_flatten__()[0]:
            yield from _with_inner(getattr(value, name), (*inner, name))


def _is_of_arguments(change: Change) -> bool:
    """Returns whether what changes is reached by an argument."""
    return change.path.startswith(("args", "kwargs"))


class Reader:
    """Says how values are made at a later call.

    Args:
        seen: The objects of the call.
        older: What is older than the run of the function.
        contexts: What wrappers held beside inner tensors before that.

    Attributes:
        leaves: The flattened results.
        paths: What errors call each of them.
        new: Objects that are made anew.
        objects: How to get to objects of the call.
    """

    def __init__(self, seen: Objects, older: Container[Any], contexts: Sequence[Context] = ()) -> None:
        self.seen, self.contexts = seen, contexts
        self.older = older
        self.leaves: list[Any] = []
        self.paths: list[str] = []
        self.new: list[NewObject] = []
        self.objects: list[AccessPath] = []
        self._given: dict[int, int] = {}
        self._made: dict[int, tuple[Any, Recipe | None]] = {}  # with the objects, so that ids stay theirs

    @property
    def made(self) -> list[tuple[Any, Recipe]]:
        """Objects that are none of the call, and how each is made."""
        return [(value, recipe) for value, recipe in self._made.values() if recipe is not None]

    def made_as(self, value: object) -> Recipe | None:
        """Returns how an object is made that is none of the call; None for one that was not met."""
        known, recipe = self._made.get(id(value), (None, None))
        return recipe if known is value else None

    def recipe(self, value: Any, path: str) -> Recipe:
        """Returns how `value` is rebuilt."""
        value = builtin_of(value)  # which a program may keep, as `self.kind = type`
        if is_weak(value):  # before all else: a proxy says that it is a tensor if it leads to one
            return self._weak(value, path)
        # A size may be symbolic: what it is, the trace of results says (`trace/outputs.py`).
        if isinstance(value, torch.Tensor | torch.Size | torch.SymInt) or is_symbolic(value):
            return self.leaf(value, path)
        if type(value) is int and value in self.seen.identities:
            return Identity(self.leaf(self.seen.identities[value], f"what {path} is the id of"))
        if type(value).__name__ == "PyCapsule":  # as `to_dlpack(x)` makes
            raise DataDependentError(_CAPSULE)
        if issubclass(type(value), NotStepped):
            return Literal(value.iterator)
        position = self.seen.position_of(value)
        if position is not None:  # it stays that object, and what changed in it is among the changes
            return Given(self.object_at(position))
        if isinstance(value, tuple) or has_vars(type(value)):
            return self._tuple(value, path)
        if id(value) in self._made:
            known = self._made[id(value)][1]
            if known is None:
                raise TraceError(_IN_ITSELF.format(path=path, kind=type(value).__name__))
            return known
        if isinstance(value, torch.nn.Module):  # one of the call has a position
            raise LastingChangeError(_NEW_MODULE.format(path=path))
        if type(value) not in _BUILTIN and optree.is_namedtuple(value) is False and _is_registered(value):
            return self._registered(value, path)
        tables = object_tables(value)
        return self._object_with(value, tables, path) if tables else Literal(value)

    def attributes(self) -> Iterator[tuple[int, tuple[str, ...], tuple[tuple[str, Recipe], ...]]]:
        """Yields what the function put on tensors that it made, by their positions among the results.

        What stands there may be further tensors, which are results then. What is on tensors of the call is a change.
        """
        met: set[int] = set()
        position = 0
        while position < len(self.leaves):
            for inner, tensor in _with_inner(self.leaves[position]):
                if id(tensor) in met or self.seen.position_of(tensor) is not None:
                    continue
                met.add(id(tensor))
                path = ".".join((self.paths[position], *inner))
                tables = extras_of(tensor)
                names = [name for name in vars(tensor) if any(table.has(name) for table in tables)] if tables else []
                held = {name: vars(tensor)[name] for name in names}
                gradient = _put_gradient(tensor)
                if gradient is not None:
                    held["grad"] = gradient
                if held:
                    entries = tuple((name, self.recipe(value, f"{path}.{name}")) for name, value in held.items())
                    yield position, inner, entries
            position += 1

    def leaf(self, value: object, path: str) -> Leaf:
        """Returns how a value is made that is one of the flattened results from now on."""
        self.leaves.append(value)
        self.paths.append(path)
        return Leaf(len(self.leaves) - 1)

    def _weak(self, value: Any, path: str) -> Recipe:
        target = self.recipe(referent(value), path)
        if isinstance(target, Literal):
            return Literal(value)
        if getattr(value, "__callback__", None) is not None:
            raise TraceError(_CALLBACK.format(path=path))
        return Weak(target, weak_kind(value))

    def _tuple(self, value: Any, path: str) -> Recipe:
        if has_vars(type(value)):
            return self._with_vars(value, path)
        parts = tuple(self.recipe(x, f"{path}[{i}]") for i, x in enumerate(tuple.__iter__(value)))
        return Literal(value) if all(isinstance(p, Literal) for p in parts) else Tuple(type(value), parts)

    def _with_vars(self, value: Any, path: str) -> Recipe:
        """Returns how a tuple, a number or a text with attributes is made. One of the call stays that object."""
        known = self.seen.with_vars.get(id(value))
        if known is not None and known[0] is value:
            return Given(self.at(self._reached(known[1], path)))
        made, recipe = self._made.get(id(value), (None, None))
        if made is value:
            if recipe is None:
                raise TraceError(_IN_ITSELF.format(path=path, kind=type(value).__name__))
            return recipe
        if value in self.older and not isinstance(value, tuple):
            return Literal(value)
        self._made[id(value)] = value, None
        is_tuple = isinstance(value, tuple)
        parts = (
            [self.recipe(x, f"{path}[{i}]") for i, x in enumerate(tuple.__iter__(value))]
            if is_tuple
            else [Literal(nodes.value_of(value))]
        )
        recipe = Tuple(type(value), (*parts, self.recipe(value.__dict__, f"{path}.__dict__")))
        self._made[id(value)] = value, recipe
        return recipe

    def _registered(self, value: Any, path: str) -> Recipe:
        """Returns how an object is made that torch's pytree flattens."""
        self._made[id(value)] = value, None
        children, metadata, entries, _ = optree.tree_flatten_one_level(
            value, none_is_leaf=True, namespace=_torch.modules.PYTREE_NAMESPACE
        )
        parts = tuple(self.recipe(x, f"{path}[{e!r}]") for x, e in zip(children, entries, strict=True))
        self.new.append(NewObject(type(value), True, metadata, parts))
        return self._note(value)

    def _object_with(self, value: object, tables: list[Table], path: str) -> Recipe:
        """Returns how an object is made by what it holds. An older one without tensors stays the same object."""
        made = NewObject(type(value), like=Table.limit_of(value))
        leaves, objects, count = len(self.leaves), len(self.objects), len(self.new)
        self.new.append(made)
        recipe = self._note(value, count)
        made.tables = tuple([(table, self._contents(value, table, path)) for table in tables])
        if (leaves, objects) != (len(self.leaves), len(self.objects)) or not self._stays(value):
            if not can_be_made(type(value)):
                raise TraceError(_NO_PICTURE.format(path=path, kind=type(value).__name__))
            return recipe
        # It is a literal, so what was noted of the objects inside it is taken back.
        for key, (_, other) in list(self._made.items()):
            if isinstance(other, New) and other.position >= count:
                del self._made[key]
        del self.new[count:]
        self._made[id(value)] = value, Literal(value)
        return Literal(value)

    def _contents(self, value: object, table: Table, path: str) -> tuple[tuple[Recipe, Recipe], ...]:
        """Returns how keys of a table and what stands there are made."""
        contents = enumerate(table.read(value))
        return tuple([(self._key(k, path), self.recipe(v, path + table.step(k, i))) for i, (k, v) in contents])

    def _stays(self, value: object) -> bool:
        """Returns whether an object that holds no tensors is the same at each call."""
        return type(value) not in _BUILTIN and (not can_be_made(type(value)) or value in self.older)

    def _note(self, value: object, position: int | None = None) -> New:
        recipe = New(len(self.new) - 1 if position is None else position)
        self._made[id(value)] = value, recipe
        return recipe

    def _key(self, key: object, path: str) -> Recipe:
        made = (
            type(key) in (int, tuple)
            or isinstance(key, torch.Tensor | torch.Size)
            or is_symbolic(key)
            or is_object(key)
        )
        return self.recipe(key, f"a key of {path}") if made else Literal(key)

    def _found(self, key: object, path: str) -> Any:
        """Returns how a later call finds the key at which an object stands: a tensor or an object is another one then.

        Args:
            key: The key, as the traced function sees it.
            path: What errors call the object that has the key.
        """
        if type(key) is str:
            return key
        recipe = self._key(key, path)
        return recipe.value if isinstance(recipe, Literal) else recipe

    def object_at(self, position: int) -> int:
        """Returns the position of an object of the call among those that generated code gets to."""
        known = self._given.get(position)
        if known is None:
            holder = self.seen.holders[position]
            access_path = holder.access_path
            if isinstance(holder.value, torch.nn.Module):  # it is the same at each call, wherever it was met
                paths = [path for path, part in self.seen.named.items() if part is holder.value]
                access_path = self.seen.access_path_to(holder.value, *paths[:1] or [""])
            parent = self.seen.holders[holder.parent].path if holder.parent is not None else holder.path
            access_path = self._reached(access_path, parent)
            known = self._given[position] = len(self.objects)
            self.objects.append(access_path)
        return known

    def _reached(self, access_path: AccessPath, parent: str) -> AccessPath:
        """Returns how generated code gets to an object, by way of those objects that it gets to before."""
        start = access_path.start
        if not isinstance(start, Entry):
            return access_path
        return access_path._replace(
            start=start._replace(holder=self.object_at(start.holder), key=self._found(start.key, parent))
        )

    def changes(self) -> Iterator[tuple[Holder, Change]]:
        """Yields what stands elsewhere in the objects of the call, or is another than before."""
        for position, holder in enumerate(self.seen.holders):
            for table, entries in holder.tables:
                if table.kind in HOOKS or table.kind == "keys":
                    continue
                before, now = self.seen.found(entries), table.read(holder.value)
                if not same_contents(before, now):
                    yield holder, self.change(self.object_at(position), holder.path, table, before, now)

    def context_changes(self) -> Iterator[Change]:
        """Yields what wrappers of the call hold otherwise than before, beside inner tensors."""
        for access_path, path, wrapper, held in self.contexts:
            now = {name: value for name, value in vars(wrapper).items() if name in held}
            told = self._attributes_of(wrapper)  # what a program put on it is among `changes`
            names = [name for name in held if not any(table.has(name) for table in told)]
            changed = [name for name in names if name not in now or not same_constant(now[name], held[name])]
            if changed:
                table = Table("attributes", only=tuple(changed))
                before, after = ([(n, each[n]) for n in changed if n in each] for each in (held, now))
                yield self.change(self.at(access_path), path, table, before, after)

    def _attributes_of(self, value: object) -> list[Table]:
        position = self.seen.position_of(value)
        tables = () if position is None else self.seen.holders[position].tables
        return [table for table, _ in tables if table.kind == "attributes"]

    def at(self, access_path: AccessPath) -> int:
        """Returns the position of what generated code gets to so."""
        if access_path not in self.objects:
            self.objects.append(access_path)
        return self.objects.index(access_path)

    def change(self, of: int, where: str, table: Table, before: list[Any], now: list[Any]) -> Change:
        """Returns how a table is changed.

        Args:
            of: The object, by its position among those that generated code gets to.
            where: Where the user finds it.
            table: The table.
            before: What it held.
            now: What it holds.
        """
        appended = table.kind == "elements" and Table.same(before, now[: len(before)])
        removed: tuple[Recipe, ...] = ()
        if table.kind in ("elements", "members"):
            assigned = now[len(before) :] if appended else now
        else:
            known = {key_id(k): v for k, v in before}
            there = {key_id(k) for k, _ in now}
            gone = [k for k, _ in before if key_id(k) not in there]
            assigned = [(k, v) for k, v in now if key_id(k) not in known or known[key_id(k)] is not v]
            kept = [key_id(k) for k, _ in now if key_id(k) in known]
            if (
                kept != [key_id(k) for k, _ in before if key_id(k) in there]
                or kept != [key_id(k) for k, _ in now][: len(kept)]
            ):
                gone, assigned = [k for k, _ in before], now  # the order is another
            removed = tuple(self._key(k, where) for k in gone)
        recipes = []
        for i, (key, value) in enumerate(assigned):
            path = where + table.step(key, i)
            if table.kind == _torch.modules.PARAMETERS and value is not None:
                raise LastingChangeError(_NEW_PARAMETER.format(path=path))
            recipes.append((self._key(key, where), self.recipe(value, path)))
        return Change(of, where, table, removed, tuple(recipes), appended)


key_id = Table.key_of
"""Returns what stands for a key in comparisons: 1 and True are two keys, and tensors are compared by identity."""


def same_contents(before: list[tuple[Any, Any]], now: list[tuple[Any, Any]]) -> bool:
    """Returns whether a table holds the same. Equal numbers or strings may be other objects: no program can see it."""
    return Table.same(before, now) or _same_values(before, now)


def _same_values(before: list[tuple[Any, Any]], now: list[tuple[Any, Any]]) -> bool:
    return len(before) == len(now) and all(
        key_id(k) == key_id(j) and (v is w or type(v) is type(w) and type(v) in (int, str, bytes, bool) and v == w)
        for (k, v), (j, w) in zip(before, now, strict=True)
    )


def _is_registered(value: Any) -> bool:
    """Returns whether torch's pytree flattens an object."""
    namespace = _torch.modules.PYTREE_NAMESPACE
    return not optree.tree_is_leaf(value, none_is_leaf=True, namespace=namespace)
