"""File records for the parts of a signature that hold live objects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from subclass_aot.descriptors import OutputDescriptor
from subclass_aot.graph import Look
from subclass_aot.objects import Entry
from subclass_aot.outcome import Change, Leaf, Recipe
from subclass_aot.outputs import (
    ComputedSymints,
    Constant,
    SameAsInput,
    SameAsOutput,
    Value,
    ViewOfBase,
    ViewOfInput,
)
from subclass_aot.signature import Absent, Beginning, Input, MadeLeaf, Mutations, TangentSpec
from subclass_aot.tables import Table

Recipes = tuple[tuple[Recipe, Recipe], ...]


class SavedSize(NamedTuple):
    """A symbol.

    Attributes:
        where: Where the call has it, such as `args[0].size(1)`.
        hint: The size of the example.
        least: The least value that fits; None where there is none.
        most: The greatest value that fits.
    """

    where: str
    hint: int
    least: int | None
    most: int | None


@dataclass(frozen=True, slots=True)
class SavedSymbols:
    """The symbols of a signature.

    Attributes:
        sizes: The symbols.
        assumed: What was assumed of them, in order, as lists of words.
        places: The sizes and strides of the inputs that are made of symbols, each with its text.
    """

    sizes: tuple[SavedSize, ...]
    assumed: tuple[Any, ...]
    places: dict[str, str]


class NodeAt(NamedTuple):
    """A node of a graph, by its position."""

    position: int


class NamedObject(NamedTuple):
    """An object that is the same at each call of one function: a module, or what the function holds, by its path."""

    path: str


@dataclass(frozen=True, slots=True)
class SavedWay:
    """A path to an object of the call."""

    start: str | NamedObject | Entry
    steps: tuple[int | str, ...]


@dataclass(frozen=True, slots=True)
class SavedNew:
    """A recipe of an object.

    Attributes:
        cls: Its class.
        is_registered: Whether torch's pytree makes it, of `parts`.
        metadata: What the pytree has noted of it.
        parts: The parts.
        tables: What an empty one is filled with.
        like: What a container has beside its contents.
    """

    cls: type
    is_registered: bool
    metadata: Any
    parts: tuple[Recipe, ...]
    tables: tuple[tuple[Table, Recipes], ...]
    like: Any


@dataclass(frozen=True, slots=True)
class SavedOutcome:
    """The outcome of a call."""

    result: Recipe
    new: tuple[SavedNew, ...]
    objects: tuple[SavedWay, ...]
    changes: tuple[Change, ...]
    assigned: tuple[str, ...]
    generator: Leaf | None
    keeps_generator: bool
    default_dtype: torch.dtype | None
    attributes: tuple[tuple[int, tuple[tuple[str, Recipe], ...]], ...]
    kept: tuple[Recipe, ...]


@dataclass(frozen=True, slots=True)
class SavedBackward:
    """The outcome of backward in objects.

    Attributes:
        outputs: What each tensor or number is that it puts somewhere.
        outcome: What it changes.
        expected: What stood there before, as records of an outcome.
        retained: Results whose `.grad` it sets.
    """

    outputs: tuple[Value | SameAsInput | SameAsOutput | ViewOfInput | ViewOfBase | Constant | ComputedSymints, ...]
    outcome: SavedOutcome
    expected: tuple[Any, ...]
    retained: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class SavedSignature:
    """A signature. The index map follows from the inputs; symbols stand beside it."""

    # More than ten attributes: those of `JointSignature`.

    inputs: tuple[Input, ...]
    views: tuple[str, ...]
    mutations: Mutations
    outputs: tuple[Value | SameAsInput | SameAsOutput | ViewOfInput | ViewOfBase | Constant | ComputedSymints, ...]
    intermediate_bases: tuple[Value, ...]
    made_leaves: tuple[MadeLeaf, ...]
    outcome: SavedOutcome
    tangents: tuple[TangentSpec, ...]
    looks: tuple[Look, ...]
    read: tuple[tuple[int, Any], ...]
    beginnings: tuple[Beginning, ...]
    absent: tuple[Absent, ...]
    grad_modes: tuple[bool, bool]
    backward_outcome: SavedBackward | None


@dataclass(frozen=True, slots=True)
class SavedGraphs:
    """Facts about the graphs of a signature, beside themselves.

    Attributes:
        computed: The outputs of forward, each with whether it is an input or another output, and whether it is a view.
        saved: What is saved for backward: the position of the input that it is, and the output that it is.
        num_saved_symints: How many symbolic numbers are saved beside.
    """

    computed: tuple[tuple[OutputDescriptor, bool, bool], ...]
    saved: tuple[tuple[int | None, OutputDescriptor | None], ...]
    num_saved_symints: int
