"""The outcome of a call beside the writes into tensors, as data: its results, and what objects hold afterwards.

Note [Outcome of a call]
~~~~~~~~~~~~~~~~~~~~~~~~
Tensors that are results, and those that the function put into objects, are one list, the flattened results. Around it
stands how results and objects are made of it, as data: new objects, objects of the call, literals. Generated code does
that at each call.

Here the flattened results are `output_0`, the input and `output_2`:

>>> import torch
>>> import subclass_aot as sa
>>> def f(x, seen):
...     seen.append(x + 1)
...     return {"twice": x * 2, "same": (x, 3)}
>>> compiled = sa.aot_compile(f, fw_compiler="eager")
>>> y = compiled(torch.ones(3), [])
>>> print(compiled.source)
def call(...):
    ...
        (output_0, output_2, ) = outputs
    ...
    object_1 = args[1]
    dict_1 = {}
    set_item(dict_1, 'twice', output_0)
    set_item(dict_1, 'same', (..., 3, ))
    extend(object_1, [output_2])
    ...
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import optree
import torch

from subclass_aot.base import _torch
from subclass_aot.base.weak import WeakKind
from subclass_aot.engine.objects import AccessPath
from subclass_aot.engine.tables import Table
from subclass_aot.errors import JointGraphError


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
    parts: tuple[Recipe, ...]


@dataclass(frozen=True, slots=True)
class New:
    """An object that is made anew, by its position among `Outcome.new`."""

    position: int


@dataclass(frozen=True, slots=True)
class Weak:
    """A weak reference to an object, of a kind."""

    target: Recipe
    kind: WeakKind


@dataclass(frozen=True, slots=True)
class Identity:
    """The `id` of an object."""

    of: Recipe


@dataclass(frozen=True, slots=True, eq=False)
class Literal:
    """A Python value that is the same at each call."""

    value: Any


Recipe = Leaf | Given | Tuple | New | Weak | Identity | Literal
"""How something is made of flattened results and of what the call brings."""


Recipes = tuple[tuple[Recipe, Recipe], ...]
"""What a table holds: keys, and what stands there."""


FOR_BACKWARD = "for_backward"
"""The local of generated code that has what a call keeps for backward."""

UNREGISTERED = "torch's pytree makes no {name} here: register it before, as where it was traced"


@dataclass(slots=True, eq=False)
class NewObject:
    """A recipe of an object: by torch's pytree from its parts, or empty, and then filled table by table.

    It holds no function of the pytree, which pickle could not take along.

    Attributes:
        cls: Its class.
        is_registered: Whether torch's pytree makes one, of its parts.
        metadata: What the pytree knows of it beside its parts.
        parts: These.
        tables: What an empty one is filled with. It is set last, since an object may hold itself.
        like: What a container has beside its contents. See `limit_of`.
    """

    cls: type
    is_registered: bool = False
    metadata: Any = None
    parts: tuple[Recipe, ...] = ()
    tables: tuple[tuple[Table, Recipes], ...] = ()
    like: Any = None

    def unflatten(self) -> Callable[[Sequence[Any]], Any]:
        """Returns what torch's pytree makes one with, of its parts.

        Raises:
            JointGraphError: It makes none.
        """
        kinds = optree.register_pytree_node.get(self.cls, namespace=_torch.modules.PYTREE_NAMESPACE)
        if kinds is None:
            raise JointGraphError(UNREGISTERED.format(name=self.cls.__qualname__))
        return functools.partial(kinds.unflatten_func, self.metadata)


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """The contents of one table of an object of the call afterwards.

    Attributes:
        object: The object, by its position among `Outcome.objects`.
        path: Where the user finds it.
        table: Which of its tables.
        removed: Keys that are gone. If everything is put in anew, all.
        assigned: Keys and what stands there, those that are new or another; all elements of a list, or the new ones.
        appended: Whether the elements in `assigned` come after those of before.
    """

    object: int
    path: str
    table: Table
    removed: tuple[Recipe, ...]
    assigned: Recipes
    appended: bool = False

    @staticmethod
    def of_memory(tensor: int, path: str, result: Leaf) -> Change:
        """Returns how a tensor of the call gets the memory of a result."""
        return Change(tensor, path, Table("data"), (), ((Literal("data"), result),))


@dataclass(frozen=True, slots=True, eq=False)
class Stood:
    """The value at a key when forward was over.

    Attributes:
        key: The key; None for an element, which is known by its position.
        value: A plain value, the `Leaf` of a number of the call, the kept object that it was; None for anything else.
        kind: What it was: "absent", "plain", "tensor" or "object".
    """

    key: object
    value: Recipe | None
    kind: str


@dataclass(frozen=True, slots=True, eq=False)
class Expected:
    """The contents that backward finds in a table that it changes, if they did not change since forward.

    Attributes:
        place: The table, by its position among those that the trace has read.
        object: The object, by its position among what the call keeps.
        table: Which of its tables.
        stood: What stood there.
        is_whole: Whether that is all that the table held.
    """

    place: int
    object: int
    table: Table
    stood: tuple[Stood, ...]
    is_whole: bool


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """The results of a function and what it changed, around its flattened results. See Note [Outcome of a call].

    Attributes:
        result: What the function returns.
        new: Objects that are made at each call.
        objects: Objects of the call that results hold, or that change: how to get to each. Entries are of those before.
        changes: What is put into them.
        assigned: Where flattened results after those of the user go, for errors and for `explain()`.
        generator: The state that the function leaves torch's generator of random numbers in, if it sets it.
        keeps_generator: Whether it puts back the state that there was before.
        default_dtype: The default dtype that it leaves, if it sets it.
        attributes: What stands on new tensors, their `.grad` too: their positions among the flattened results, the
            names of inner tensors on the way, and names and values.
        kept: What the call keeps for what backward leaves behind. See Note [Outcome of backward].
    """

    result: Recipe
    new: tuple[NewObject, ...]
    objects: tuple[AccessPath, ...]
    changes: tuple[Change, ...]
    assigned: tuple[str, ...]
    generator: Leaf | None = None
    keeps_generator: bool = False
    default_dtype: torch.dtype | None = None
    attributes: tuple[tuple[int, tuple[str, ...], tuple[tuple[str, Recipe], ...]], ...] = ()
    kept: tuple[Recipe, ...] = ()

    @property
    def literals(self) -> list[Any]:
        """Python values in the results, and among what is put into objects, that are the same at each call."""
        pairs = [pair for change in self.changes for pair in change.assigned]
        pairs += [pair for new in self.new for _, entries in new.tables for pair in entries]
        todo = [
            self.result,
            *(part for pair in pairs for part in pair),
            *(part for new in self.new for part in new.parts),
            *(value for _, _, entries in self.attributes for _, value in entries),
        ]
        found: list[Any] = []
        while todo:
            part = todo.pop()
            if isinstance(part, Literal):
                found.append(part.value)
            elif isinstance(part, Tuple):
                todo += part.parts
        return found

    @property
    def assigned_paths(self) -> set[str]:
        """Where the user finds what is put into objects at keys that are the same at each call."""
        pairs = [(change, key) for change in self.changes for key, _ in change.assigned]
        return {change.path + change.table.step(key.value) for change, key in pairs if isinstance(key, Literal)}

    @property
    def is_plain(self) -> bool:
        """True if there is nothing to it but to give results their structure."""
        return not self.objects

    @property
    def changes_process(self) -> bool:
        """True if it changes more than results and objects: the generator of random numbers, or the default dtype."""
        return self.generator is not None or self.keeps_generator or self.default_dtype is not None

    def leaving(self, generator: Leaf | None, keeps_generator: bool, default_dtype: torch.dtype | None) -> Outcome:
        """Returns the same, with what the function leaves behind in the process: see the attributes."""
        assigned = self.assigned if generator is None else (*self.assigned, "torch.default_generator")
        return dataclasses.replace(
            self, assigned=assigned, generator=generator, keeps_generator=keeps_generator, default_dtype=default_dtype
        )


RECIPES = (Leaf, Given, Tuple, New, Weak, Identity, Literal, Change, Expected, Stood, NewObject, Outcome)
"""The classes of which an outcome is made."""
