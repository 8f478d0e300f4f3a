"""The outcome of backward in objects, as data: hooks and the like run when gradients are computed.

Note [Outcome of backward]
~~~~~~~~~~~~~~~~~~~~~~~~~~
Hooks may put gradients, and anything else, into objects. A trace runs them once; what they put somewhere is put there
again at each backward, by recipes like those of the outcome of a call. It is found by comparing what objects hold when
backward is over with what they hold when forward is. The objects are those of the call that backward belongs to. So a
call keeps them, in one list, for as long as autograd keeps the call, and the recipes of backward count in that list.

What a hook puts somewhere may depend on what stands there: a counter, a running mean. It is what forward left there, if
nobody has changed it since, as another backward may. So a backward first compares what it is about to replace with
what the trace found there. Where that differs, the hooks are traced once more, on what is there now: see
`runtime/unexpected_tangents.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Container, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from subclass_aot.base import _torch
from subclass_aot.base.put_back import PutBack
from subclass_aot.base.weak import is_weak
from subclass_aot.engine.aliasing import retains_grad
from subclass_aot.engine.objects import AccessPath
from subclass_aot.engine.outcome.older_objects import OlderObjects
from subclass_aot.engine.outcome.reader import Reader, key_id, same_contents
from subclass_aot.engine.outcome.recipes import (
    FOR_BACKWARD,
    Change,
    Expected,
    Given,
    Leaf,
    Literal,
    New,
    Outcome,
    Recipe,
    Stood,
    Weak,
)
from subclass_aot.engine.outputs import Output, Value
from subclass_aot.engine.tables import HOOKS, Table, object_tables, tables_of_this_thread
from subclass_aot.kit.flatten import FlattenPlan
from subclass_aot.meta import MetaTensor, Storage

_PLAIN = (type(None), bool, int, float, complex, str, bytes)

_NOT_KEPT = "what hooks put there goes into an object that the call has not kept"


@dataclass(frozen=True, slots=True, eq=False)
class BackwardOutcome:
    """The outcome of backward in objects. See Note [Outcome of backward].

    Attributes:
        outputs: What each tensor or number is that it puts somewhere.
        outcome: What it changes. Its objects are elements of `FOR_BACKWARD`.
        expected: What stood there before.
        retained: Results of the call whose `.grad` it sets: their positions among what the call has kept, weakly, and
            those of the gradients among `outputs`. See `torch.Tensor.retain_grad`.
    """

    outputs: tuple[Output, ...]
    outcome: Outcome
    expected: tuple[Expected, ...]
    retained: tuple[tuple[int, int], ...] = ()

    @property
    def puts_tensors(self) -> bool:
        """Whether it puts a tensor somewhere that it has computed."""
        return any(isinstance(output, Value) for output in self.outputs)

    def present(self, kept: Sequence[Any], numbers: Sequence[int]) -> tuple[Present, ...] | None:
        """Compares what backward is about to replace with what it expects there.

        Args:
            kept: What the call has kept.
            numbers: For each of `outputs` that is a number, which; for others any.

        Returns:
            What is there now, of all that is expected; None if it is that.
        """
        now = [_contents(each, kept[each.object]) for each in self.expected]
        pairs = list(zip(self.expected, now, strict=True))
        if all(_fits(each, entries, kept, numbers) for each, entries in pairs):
            return None
        return tuple(Present(each.place, tuple(entries), each.is_whole) for each, entries in pairs)


class Present(NamedTuple):
    """The contents of a table now, where they are not what was expected.

    Attributes:
        place: The table, as `Expected.place`.
        entries: Keys and what stands there, None for the key of one that is gone.
        is_whole: Whether that is all that the table holds.
    """

    place: int
    entries: tuple[tuple[object, Any], ...]
    is_whole: bool

    @property
    def described(self) -> tuple[object, ...] | None:
        """What tells whether the table of another call holds the same, as far as hooks can know; None if nothing does.

        Of tensors it has the metadata: whether hooks read their values, the trace knows.
        """
        found: list[object] = []
        for key, value in self.entries:
            if isinstance(value, torch.Tensor):
                found.append((key, type(value), tuple(value.shape), value.dtype, value.device, value.requires_grad))
            elif type(value) in _PLAIN or value is ABSENT:
                found.append((key, type(value), repr(value)))
            else:
                return None
        return self.place, self.is_whole, *found

    @property
    def tensors(self) -> list[torch.Tensor]:
        """The tensors in it."""
        return [value for _, value in self.entries if isinstance(value, torch.Tensor)]


ABSENT: Any = object()
"""Stands where nothing is."""


class _Place(NamedTuple):
    """A table of an object, with what it held when forward was over.

    Attributes:
        owner: How generated code gets to the object: what the call keeps, an access path, or the position of a holder.
        value: The object.
        path: Where the user finds it.
        table: The table.
        contents: What it held.
    """

    owner: Recipe | AccessPath | int
    value: object
    path: str
    table: Table
    contents: list[tuple[Any, Any]]


class AfterForward:
    """The objects of a traced call as the function leaves them: hooks are run on these.

    Args:
        reader: What has read the outcome of the function.
        inputs: The traced inputs.
        modules: The modules of the call.

    Attributes:
        kept: What the call keeps.
    """

    def __init__(self, reader: Reader, inputs: Sequence[Any], modules: Sequence[torch.nn.Module]) -> None:
        self.kept: list[Recipe] = []
        self._reader, self._modules = reader, modules
        self._input_at = {id(x): i for i, x in enumerate(inputs)}
        self._inputs = inputs
        self._result_at = {id(x): i for i, x in reversed([*enumerate(reader.leaves)]) if isinstance(x, torch.Tensor)}
        self._is_fixed = False
        self._places = list(self._all_places())
        self._before = [place.contents for place in self._places]
        self._retaining = [(i, x) for i, x in enumerate(reader.leaves) if self._is_first(i) and retains_grad(x)]

    def _is_first(self, i: int) -> bool:
        """Returns whether a flattened result is a tensor that the function has made, met for the first time."""
        result = self._reader.leaves[i]
        is_new = isinstance(result, torch.Tensor) and id(result) not in self._input_at
        return is_new and self._result_at[id(result)] == i

    def _all_places(self) -> Iterator[_Place]:
        for position, holder in enumerate(self._reader.seen.holders):
            for table, _ in holder.tables:
                if table.kind not in HOOKS and table.kind not in ("keys", "state"):
                    yield _Place(position, holder.value, holder.path, table, table.read(holder.value))
        for value, recipe in self._reader.made:
            if isinstance(recipe, New | Literal) and not isinstance(value, tuple | torch.Tensor):
                path = f"what the function makes ({type(value).__name__})"
                for table in object_tables(value):
                    yield _Place(recipe, value, path, table, table.read(value))
        for context in self._reader.contexts:
            contents = context.table.read(context.wrapper)
            yield _Place(context.access_path, context.wrapper, context.path, context.table, contents)
        for i, result in enumerate(self._reader.leaves):
            if self._is_first(i):
                table = _table_of_new(result)
                yield _Place(Leaf(i), result, self._reader.paths[i], table, table.read(result))

    @property
    def results(self) -> list[Any]:
        """The flattened results of the function."""
        return self._reader.leaves

    def extended(self, outcome: Outcome) -> tuple[tuple[AccessPath, ...], tuple[Recipe, ...]]:
        """Returns the objects of an outcome, with those that are kept, and what is kept."""
        added = self._reader.objects[len(outcome.objects) :]
        return (*outcome.objects, *added), tuple(self.kept)

    def fix(self) -> None:
        """Keeps nothing more from now on: calls have begun."""
        self._is_fixed = True

    def put_back(self, present: Sequence[Present] = ()) -> None:
        """Gives every object what it held when forward was over.

        Args:
            present: What is to stand somewhere in place of that.
        """
        self._before = [place.contents for place in self._places]
        for place, entries, is_whole in present:
            kept = [] if is_whole else self._before[place]
            changed = {key_id(key): value for key, value in entries}
            there = {key_id(key) for key, _ in kept}
            merged = [(k, changed.get(key_id(k), v)) for k, v in kept]
            merged += [(k, v) for k, v in entries if key_id(k) not in there]
            self._before[place] = [(k, v) for k, v in merged if v is not ABSENT]
        for _, result in self._retaining:
            result.grad = None
        for each, contents in zip(self._places, self._before, strict=True):
            if not Table.same(each.table.read(each.value), contents):
                each.table.write(each.value, contents)

    @contextmanager
    def again(self, present: Sequence[Present]) -> Iterator[None]:
        """Runs the block with what objects held when forward was over; then they get their own back.

        Args:
            present: As for `put_back`.
        """
        with tables_of_this_thread(self._modules), self._reader.seen.restored():
            self.put_back(present)
            yield

    def read(
        self,
        older: OlderObjects,
        is_read: Callable[[torch.Tensor], bool],
        names: Collection[str] = (),
        elsewhere: Sequence[str] = (),
    ) -> tuple[list[Any], list[str], BackwardOutcome]:
        """Reads what backward has changed.

        Args:
            older: What is older than the trace, or than this backward.
            is_read: Tells whether backward reads the values of a tensor.
            names: The names that the code of hooks has, of attributes, variables and keys.
            elsewhere: Of which generators of the process beside torch's it has drawn.

        Returns:
            The tensors and numbers that it puts somewhere, and where; and what it does with them. What these are is
            not said yet.

        Raises:
            NotImplementedError: It changes what calls have not kept.
        """
        with PutBack(self._reader.seen.put_back_generators):
            self._reader.seen.refuse_changed(elsewhere)
        older.forget()
        reader = _BackwardReader(self, older)
        stood_as = functools.partial(self._stood, reader, is_read)
        changes: list[Change] = []
        expected: list[Expected] = []
        for at, (place, before) in enumerate(zip(self._places, self._before, strict=True)):
            now = place.table.read(place.value)
            if Table.same(before, now):  # as in nearly all
                continue
            now = _without_recomputed(before, now)
            if same_contents(before, now):
                continue
            of = self._kept_owner(place)
            change = reader.change(of, place.path, place.table, before, now)
            changes.append(change)
            expected += self._expected(at, change, before, now, stood_as)
        retained = []
        for i, result in self._retaining:
            if result.grad is not None:
                path = f"the .grad of {self._reader.paths[i]}"
                retained.append((self.keep(Weak(Leaf(i), "ref")), reader.leaf(result.grad, path).position))
                result.grad = None
        if changes or retained:
            expected += self._only_read(names, {(e.place, s.key) for e in expected for s in e.stood}, stood_as)
        attributes = tuple(reader.attributes())
        new, objects = tuple(reader.new), tuple(AccessPath(FOR_BACKWARD, (i,)) for i in range(len(self.kept)))
        paths = tuple(reader.paths)
        outcome = Outcome(Literal(None), new, objects, tuple(changes), paths, attributes=attributes)
        return reader.leaves, reader.paths, BackwardOutcome((), outcome, tuple(expected), tuple(retained))

    def _kept_owner(self, place: _Place) -> int:
        """Returns the position of the object of a table among what the call keeps."""
        owner = place.owner
        if isinstance(owner, int):
            owner = Given(self._reader.object_at(owner))
        return self.keep(Given(self._reader.at(owner)) if isinstance(owner, AccessPath) else owner)

    def _only_read(
        self, names: Collection[str], changed: set[tuple[int, object]], stood_as: Callable[[object, Any], Stood]
    ) -> Iterator[Expected]:
        """Yields the plain values that hooks may have read, by the names in their code, and have not changed."""
        for at, (place, before) in enumerate(zip(self._places, self._before, strict=True)):
            found = [
                stood_as(key, value)
                for key, value in before
                if type(key) is str and key in names and (type(value) in _PLAIN or isinstance(value, torch.SymInt))
                if (at, key) not in changed
            ]
            if found:
                yield Expected(at, self._kept_owner(place), place.table, tuple(found), False)

    def _expected(
        self, at: int, change: Change, before: list[Any], now: list[Any], stood_as: Callable[[object, Any], Stood]
    ) -> Iterator[Expected]:
        """Yields what stood where something is replaced, unless it is only added to."""
        if change.appended:
            return
        if change.table.kind in ("elements", "members"):
            stood = tuple(stood_as(key, value) for key, value in before)
            yield Expected(at, change.object, change.table, stood, True)
            return
        was, is_now = ({key_id(k): v for k, v in each} for each in (before, now))
        plain = [k for k, _ in (*before, *now) if type(k) in _PLAIN]
        changed = {key_id(k): k for k in plain if was.get(key_id(k), ABSENT) is not is_now.get(key_id(k), ABSENT)}
        stood = tuple(stood_as(k, was.get(i, ABSENT)) for i, k in changed.items())
        yield Expected(at, change.object, change.table, stood, False)

    def _stood(
        self, reader: _BackwardReader, is_read: Callable[[torch.Tensor], bool], key: object, value: Any
    ) -> Stood:
        if value is ABSENT:
            return Stood(key, None, "absent")
        if type(value) in _PLAIN:
            return Stood(key, Literal(value), "plain")
        if isinstance(value, torch.SymInt):
            return Stood(key, reader.recipe(value, "a number"), "plain")
        if not isinstance(value, torch.Tensor):
            return Stood(key, None, "object")
        known = self.known(value) if is_read(value) else None
        return Stood(key, None if known is None else Given(self.keep(known)), "tensor")

    def known(self, value: object) -> Recipe | None:
        """Returns how a call gets to what is there when its forward is over; None for what is new."""
        if isinstance(value, torch.Tensor):
            at = self._input_at.get(id(value))
            if at is not None and self._inputs[at] is value:
                return self._given_input(at)
            at = self._result_at.get(id(value))
            return None if at is None or self._reader.leaves[at] is not value else Leaf(at)
        position = self._reader.seen.position_of(value)
        if position is not None:
            return Given(self._reader.object_at(position))
        made = self._reader.made_as(value)
        return made if isinstance(made, New) else None

    def _given_input(self, at: int) -> Given:
        return Given(self._reader.at(AccessPath("values", (at,))))

    def keep(self, recipe: Recipe) -> int:
        """Returns the position of something among what the call keeps.

        Raises:
            NotImplementedError: Calls have not kept it.
        """
        if recipe not in self.kept:
            if self._is_fixed:
                raise NotImplementedError(_NOT_KEPT)
            self.kept.append(recipe)
        return self.kept.index(recipe)


class _BackwardReader(Reader):
    """Says how backward makes what it puts somewhere: of its own tensors, and of what the call has kept."""

    def __init__(self, after: AfterForward, older: Container[Any]) -> None:
        super().__init__(after._reader.seen, older)
        self._after = after

    def recipe(self, value: Any, path: str) -> Recipe:
        known = None if is_weak(value) else self._after.known(value)
        return super().recipe(value, path) if known is None else Given(self._after.keep(known))

    def object_at(self, position: int) -> int:
        return self._after.keep(Given(self._after._reader.object_at(position)))


def _table_of_new(tensor: torch.Tensor) -> Table:
    """Returns the table of what a program puts on a tensor that it has made."""
    is_wrapper = _torch.wrappers.is_traceable_wrapper_subclass(tensor)
    own = frozenset(name for name in vars(tensor) if is_wrapper or _torch.autograd.is_mark(name))
    return Table("attributes", but=own, public=is_wrapper)


def _without_recomputed(before: list[tuple[Any, Any]], now: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Returns what a table holds now. A view that a checkpoint has regenerated counts as the one that was there."""
    there = {key_id(k): v for k, v in before}
    found = []
    for key, value in now:
        known = there.get(key_id(key))
        if value is not known and isinstance(value, torch.Tensor) and isinstance(known, torch.Tensor):
            value = known if _memory(value) == _memory(known) else value
        found.append((key, value))
    return found


def _memory(tensor: torch.Tensor) -> object:
    """Returns what is the same of two traced tensors that are one piece of memory, seen in one way."""
    leaves = FlattenPlan.leaves_of(tensor)
    seen = [(Storage.of(x), x.meta_spec) if isinstance(x, MetaTensor) else id(x) for x in leaves]
    return type(tensor), tensor.requires_grad, seen


def _contents(expected: Expected, holder: object) -> list[tuple[object, Any]]:
    entries = expected.table.read(holder)
    if expected.is_whole:
        return entries
    there = {key_id(k): v for k, v in entries}
    return [(stood.key, there.get(key_id(stood.key), ABSENT)) for stood in expected.stood]


def _fits(
    expected: Expected, entries: Sequence[tuple[object, Any]], kept: Sequence[Any], numbers: Sequence[int]
) -> bool:
    return len(entries) == len(expected.stood) and all(
        _is_as_it_stood(value, stood, kept, numbers) for (_, value), stood in zip(entries, expected.stood, strict=True)
    )


def _is_as_it_stood(value: Any, stood: Stood, kept: Sequence[Any], numbers: Sequence[int]) -> bool:
    if value is ABSENT or stood.kind == "absent":
        return value is ABSENT and stood.kind == "absent"
    if isinstance(stood.value, Literal):
        return type(value) is type(stood.value.value) and bool(value == stood.value.value)
    if isinstance(stood.value, Leaf):
        return type(value) is int and value == numbers[stood.value.position]
    if isinstance(stood.value, Given):
        return value is kept[stood.value.position]
    if stood.kind == "tensor":
        return isinstance(value, torch.Tensor)
    return type(value) not in _PLAIN and not isinstance(value, torch.Tensor)
