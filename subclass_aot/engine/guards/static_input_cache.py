"""Tensors that are read once and not at each call: those of modules, and what was marked as static.

Note [What is kept]
~~~~~~~~~~~~~~~~~~~
A module that is called again mostly holds the same tensors, and a wrapper the same inner tensors. So a guard keeps what
it read, with the contents of every dict that it found it in: the tables of modules and the `__dict__` of wrappers. A
later call compares these with what they hold now, by identity, in one call of a C function. Where anything is another
object, everything is read and checked anew: after an assignment to an attribute, a new state dict, `.data = ...` on a
wrapper of this library, a move to another device, a hook. A write *into* a tensor needs no reading, since the leaf is
the same object. The metadata of each tensor, and whether it requires grad, is not a matter of identity: that is
compared at each call, for all tensors together. So are gradients: a step of training has others than the one before,
and a guard that kept them would keep their memory while new ones are computed. Numbers that are symbols are read at
each call, too, out of the dicts in which they stand.
"""

from __future__ import annotations

import types
from collections import deque
from collections.abc import Callable, MutableSet, Sequence
from typing import Any, NamedTuple

import torch

from subclass_aot.base import exact
from subclass_aot.engine.call import ArgumentPlace, Arguments, HeldPlace, ModulePlace, static_values
from subclass_aot.engine.guards.contexts import is_constant
from subclass_aot.kit.flatten import AbsentMeta, InnerMeta, PlainTensorMeta, SubclassCreationMeta, ValueMeta, walk
from subclass_aot.kit.wrapper import WrapperTensor


class Found(NamedTuple):
    """The values that were read.

    Attributes:
        values: The tensors.
        leaves: Their leaves.
        wrappers: The wrappers among them and inside them.
        tables: Tables of other objects, as `same_items` compares them.
        alike: Objects from which arguments must differ.
        owners: Tensors whose `.grad` is read at each call.
        numbers: Dicts of which numbers are read at each call.
    """

    values: tuple[Any, ...]
    leaves: tuple[Any, ...]
    wrappers: tuple[Any, ...]
    tables: tuple[Any, ...]
    alike: tuple[Any, ...]
    owners: tuple[Any, ...]
    numbers: tuple[Any, ...]


Read = Callable[[list[Any]], Found | None]
"""From the flattened arguments to what is kept; None if it does not fit."""

_NOTHING: tuple[tuple[Any, ...], Found] = (({}, ("anything",)), Found((), (), (), (), (), (), ()))
"""Equal to nothing that `same_items` finds, so that everything is read."""


class StaticInputCache:
    """Values that one guard keeps from call to call.

    Attributes:
        state: What `same_items` compares, and what was read: one tuple, since threads may share it.
    """

    def __init__(self, read: Read, tables: list[dict[str, Any]], together: MutableSet[StaticInputCache]) -> None:
        """Keeps nothing at first.

        Args:
            read: Reads and checks the tensors.
            tables: The tables of modules.
            together: Where one finds something changed, all of these forget, so that none keeps old weights alive.
        """
        self.state = _NOTHING
        self._read = read
        self._tables = tables
        self._together = together
        together.add(self)

    def read(self, leaves: list[Any]) -> Found | None:
        """Reads the tensors anew; None if they do not fit."""
        if self.state is not _NOTHING:
            for kept in tuple(self._together):  # a copy, since another thread may compile
                kept.state = _NOTHING
        found = self._read(leaves)
        if found is None:
            return None
        holders = {id(holder): holder for holder in (*self._tables, *found.wrappers, *found.tables)}.values()
        if all(map(_is_comparable, holders)):
            self.state = tuple([x for holder in holders for x in (holder, exact.items_of(holder))]), found
        return found


def _is_comparable(holder: object) -> bool:
    """Returns whether what an object holds can be compared without running code of its class."""
    return (
        type(holder) is set
        or isinstance(holder, (dict, list, tuple, types.CellType))
        or (not isinstance(holder, set | deque) and hasattr(holder, "__dict__"))
    )


def positions_to_keep(arguments: Arguments, metas: Sequence[ValueMeta]) -> set[int]:
    """Finds the values of a call that are read once: those that only modules hold, or that are marked."""
    in_arguments: set[int] = set()
    in_objects: set[int] = set()  # of arguments, and states of generators: those are read at each call
    in_modules: set[int] = set()
    gradients, extras = arguments.objects.gradients, arguments.extras
    apart: set[int] | None = None
    for number, (place, position) in enumerate(arguments.placed):
        match place:
            case ArgumentPlace():
                in_arguments.add(position)
            case HeldPlace(pinned=False):
                in_objects.add(position)
            case HeldPlace() if arguments.objects.tensors[place.number].of_generator:
                in_objects.add(position)
            case HeldPlace() if arguments.objects.tensors[place.number].is_number:
                apart = arguments.objects.numbers_apart if apart is None else apart
                (in_objects if place.number in apart else in_modules).add(position)
            case HeldPlace() if place.number in gradients:  # read at each call; it may stand elsewhere, too
                if number in extras:
                    in_objects.add(position)
            case HeldPlace() | ModulePlace():
                in_modules.add(position)
    # What an argument brings may be another tensor at each call; a mark says that it mostly is not.
    marked = in_arguments & static_values(arguments)
    mixed = in_arguments & in_modules | in_objects
    return {i for i in (in_modules | marked) - mixed if i < len(metas) and can_be_kept(arguments.values[i], metas[i])}


def can_be_kept(value: object, meta: InnerMeta) -> bool:
    """Returns whether a tensor has the same leaves as long as the same objects stand in its `__dict__`, and below."""
    return all(_can_be_compared(part, inner) for _, part, inner in walk(value, meta))


def _can_be_compared(value: object, meta: InnerMeta) -> bool:
    if isinstance(meta, PlainTensorMeta | AbsentMeta):
        return True
    if not isinstance(meta, SubclassCreationMeta):
        return False
    if isinstance(value, WrapperTensor):  # its context is immutable by contract
        return True
    # Slots stand in no dict that could be compared. The context of the class follows from what the `__dict__` holds.
    has_slots = any("__slots__" in vars(cls) for cls in type(value).__mro__[: type(value).__mro__.index(torch.Tensor)])
    return not has_slots and all(isinstance(x, torch.Tensor) or is_constant(x) for x in vars(value).values())
