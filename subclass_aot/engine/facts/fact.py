"""A fact: one thing that a signature depends on, by value and without tensors.

Note [Facts]
~~~~~~~~~~~~
What was compiled for a call serves another one if the facts of the two are equal. `facts_of` is the one place that
lists them. All else is a rendering: the lines of a guard (`guards/`), the reason of a recompile (`words.py`), the text
by which a file finds its calls (`files/compiled/key.py`). Each rendering is a `match` over `Kind` that names every
member, so mypy finds a kind that one of them has forgotten, and a property test compares their answers
(`tests/engine/facts/`).

Two facts say the same if they have the same place, kind and value. Values are compared by what they are. An object that
a guard compares by identity is `Itself`, which differs from an equal one; no file can hold that, so it has no text
there.
"""

from __future__ import annotations

import enum
import hashlib
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from subclass_aot.base import _torch
from subclass_aot.engine.facts.code import Members, members_of
from subclass_aot.engine.objects import same_kept


class Kind(enum.Enum):
    """The subject of a fact. The value is its name in a file and in the reason of a recompile."""

    STRUCTURE = "structure"
    MODE = "mode"
    CLASS = "class"
    """The class of an object, or the code of a function."""
    IDENTITY = "the object itself"
    VALUE = "value"
    """A Python value."""
    CODE = "code"
    """A function or class that is not walked."""
    METHOD = "method"
    """What a class has by a name: a function, a property or the like, or a class."""
    STANDS = "stands there"
    """What stands at a place and is no value: a tensor, a tuple of some class, a weak reference."""
    OBJECT = "object"
    """Which object of the call stands at a place."""
    LENGTH = "length"
    KEYS = "keys"
    LIMIT = "limit"
    """What a container has beside its contents."""
    NAMES = "names of parameters and buffers"
    CHILDREN = "submodules"
    HOOKS = "hooks"
    TENSOR = "tensor"
    SAME = "same tensor"
    """At which other place the same tensor stands."""
    NUMBER = "number"
    """A number that the function changes itself, and that is a symbol."""
    SIZE = "size"
    """Whether a size is what follows from symbols that stand for others."""
    ASSUMED = "assumed"
    """Whether what was assumed of symbols holds."""
    LEAF = "leaf of autograd"
    """Whether a tensor is a leaf of autograd's graph: an in-place write means another thing on one."""
    VIEW = "view"
    """How autograd lets a view be written."""
    STORAGE = "storage"
    """Which leaves share memory."""
    BEGINNING = "storage offset"
    """Where a tensor begins in its storage: a wrapper, a leaf that shares memory, any of which the program reads it."""
    DATA = "values"
    """The values of a tensor, if they were read while tracing."""
    BYTES = "bytes"
    HISTORY = "history"
    """Whether two tensors have one history."""
    ADDRESS = "address"
    """The id by which an object knows a tensor."""
    TWICE = "twice"
    """Lists and dicts that are passed twice."""
    GRADIENTS = "gradients"
    """That the function reads or changes the gradients of its inputs."""


HASH = "the hash of the object"
"""The digest of a number that is the hash of the object that holds it: of texts, each process draws others."""


@dataclass(frozen=True, slots=True, eq=False)
class Constant:
    """A Python value, a copy of it where it may change.

    Attributes:
        value: The value.
        digest: What a file says of it, where that must be known before it changes; else None.
    """

    value: object
    digest: str | None = None

    def __eq__(self, other: object) -> bool:
        return type(other) is Constant and (self.value is other.value or same_kept(self.value, other.value))

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, slots=True, eq=False)
class Code:
    """A function or a class, with what it is made of now. Another one is another fact, whatever its code is."""

    thing: Any
    members: Members

    @staticmethod
    def of(thing: object) -> Code:
        """Reads it."""
        return Code(thing, members_of(thing))

    def __eq__(self, other: object) -> bool:
        return type(other) is Code and self.thing is other.thing

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, slots=True, eq=False)
class Itself:
    """An object, or a set of objects by their ids, that is equal to nothing but itself."""

    thing: object

    def __eq__(self, other: object) -> bool:
        return type(other) is Itself and self.thing is other.thing

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, slots=True)
class Told:
    """Any of these as text, for who keeps nothing of a call.

    Attributes:
        text: For people.
        exact: What is compared.
    """

    text: str = field(compare=False)
    exact: str

    @property
    def digest(self) -> str:
        """What tells it from another one that reads the same."""
        return hashlib.sha256(self.exact.encode()).hexdigest()[:8]


class Linked(NamedTuple):
    """An object of the call.

    Attributes:
        path: Where it was met first.
        label: What a file calls it.
    """

    path: str
    label: str


class Names(NamedTuple):
    """The names in one table of a module.

    Attributes:
        table: The table.
        entries: Each name, with the path of a submodule, "there" for a tensor, or None for nothing.
    """

    table: str
    entries: tuple[tuple[str, str | None], ...]


HOLDS = "so"
"""An assumption that holds, in words."""


@dataclass(frozen=True, slots=True)
class Assumed:
    """Says of an assumption whether it holds.

    Attributes:
        holds: Whether it does.
        where: For people, the numbers for which symbols stand.
    """

    holds: bool
    where: str = field(compare=False)

    def __str__(self) -> str:
        """Says it in words."""
        return HOLDS if self.holds else f"not so, where {self.where}"


FLOAT = "float"
"""The fact of a floating-point number that is a symbol, which nothing is assumed of before the graph runs."""

LEAF = "Python value"
"""The place of a flattened argument that is no tensor, before its number."""

OF_ALL = "hooks of all modules"
"""The place of hooks that every module of the process has."""


class Hooks(NamedTuple):
    """The hooks of one kind of a module.

    Attributes:
        numbers: The numbers that torch gave to them, which no other hook of the process has.
        functions: What runs.
        how: How each runs: with keyword arguments, after an exception, ...
    """

    numbers: tuple[int, ...]
    functions: tuple[Code, ...]
    how: tuple[str, ...]

    @staticmethod
    def of(module: torch.nn.Module, table: str) -> Hooks:
        """Reads those in one table of a module."""
        hooks, notes = getattr(module, table), {name: vars(module)[name] for name in _torch.modules.HOW_HOOKS_RUN}
        how = [[name for name, note in notes.items() if note is True or note and number in note] for number in hooks]
        return Hooks(tuple(hooks), tuple(map(Code.of, hooks.values())), tuple(map(" ".join, how)))

    @staticmethod
    def of_all() -> Hooks:
        """Reads those that every module of the process has, but for those that this library sets while it traces."""
        tables, notes = _torch.modules.hooks_of_all, _torch.modules.how_hooks_of_all_run
        found = [
            (number, Code.of(hook), f"{kind} {[number in note for note in notes]}")
            for kind, table in enumerate(tables)
            for number, hook in table.copy().items()
            if not getattr(hook, "__module__", "").startswith("subclass_aot.")
        ]
        return Hooks(*zip(*found, strict=True)) if found else Hooks((), (), ())


class Storages(NamedTuple):
    """The leaves that share memory, and those that do not.

    Attributes:
        together: Those that do, by their numbers.
        apart: Leaves whose storages are all different; one of each group is among them.
    """

    together: tuple[tuple[int, ...], ...]
    apart: tuple[int, ...]


class History(NamedTuple):
    """A fact: with which of the tensors that are written a tensor has one history.

    Attributes:
        position: Of the tensor, among those of the call.
        first: The position of the first that has this history; None if none has it.
        path: Where that is.
    """

    position: int
    first: int | None
    path: str


@dataclass(frozen=True, slots=True, eq=False)
class Context:
    """The context of a wrapper whose class has a way of its own to compare it, or is not declared."""

    cls: type
    value: Constant

    def __eq__(self, other: object) -> bool:
        if type(other) is not Context or self.cls is not other.cls:
            return False
        guard = getattr(self.cls, "__metadata_guard__", None)
        if guard is not None:
            return bool(guard(self.value.value, other.value.value))
        return self.value == other.value

    __hash__ = None  # type: ignore[assignment]


Number = int | str
"""A size or stride; where it is a symbol, its text."""

RAGGED = "ragged"
"""The size of a ragged dimension, which is no number."""


@dataclass(frozen=True, slots=True)
class Metadata:
    """All of a tensor but its data and its memory.

    Attributes:
        cls: Its class.
        size: Its size.
        stride: Its strides; empty where it has none.
        dtype: Its dtype.
        device: Its device.
        layout: Its layout.
        requires_grad: Whether autograd wants a gradient.
        dispatch_keys: What else torch knows of it, such as whether it was made in inference mode.
        is_inference: Whether it was.
        inner: What a wrapper is made of, by name.
        context: The context of a wrapper; of a declared class the attributes that tell it.
    """

    # More than ten attributes: what `__torch_dispatch__` and a dispatcher know of a tensor, in one record.
    cls: Code
    size: tuple[Number, ...]
    stride: tuple[Number, ...]
    dtype: torch.dtype
    device: torch.device
    layout: torch.layout
    requires_grad: bool
    dispatch_keys: str
    is_inference: bool
    inner: tuple[tuple[str, Inner], ...] = ()
    context: Context | tuple[tuple[str, Constant], ...] = ()


class Parts(NamedTuple):
    """A list, tuple or dict of inner tensors."""

    cls: type
    items: tuple[tuple[object, Inner], ...]


Inner = Metadata | Parts | Constant

Value = (
    Told
    | Constant
    | Code
    | Itself
    | Linked
    | Names
    | Assumed
    | Hooks
    | Storages
    | History
    | Metadata
    | str
    | int
    | tuple[Any, ...]
    | None
)  # a tuple of names, positions or paths


class Fact(NamedTuple):
    """One thing that a signature depends on. See Note [Facts].

    Attributes:
        place: Where, in words of the user, such as `args[0]` or `grad mode`.
        kind: What it is about.
        value: What is so.
        of_call: Whether the arguments of a call bring it, and not the function.
        within: What tells it from another one of that place and kind: two objects may be called by one name. Of a
            tensor of the call its position, and of what is in one the path from there; of values and bytes the number
            of the leaf.
    """

    place: str
    kind: Kind
    value: Value
    of_call: bool = True
    within: str = ""


Facts = tuple[Fact, ...]
