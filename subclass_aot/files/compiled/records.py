"""The records that a file may hold, each with its word."""

from __future__ import annotations

from typing import Any, NamedTuple

from subclass_aot.engine import descriptors, outputs
from subclass_aot.engine.aliasing import Base
from subclass_aot.engine.graph import Look
from subclass_aot.engine.objects import AccessPath, Entry, Named
from subclass_aot.engine.outcome import RECIPES, BackwardOutcome
from subclass_aot.engine.signature import (
    Absent,
    Assumptions,
    Beginning,
    Input,
    InputMutation,
    MadeLeaf,
    MetadataMutation,
    Mutations,
    Part,
    TangentSpec,
)
from subclass_aot.engine.tables import Table
from subclass_aot.files.compiled.sizes import SavedSize, SavedSymbols
from subclass_aot.kit import views
from subclass_aot.kit.flatten import (
    AbsentMeta,
    ContainerMeta,
    OpaqueMeta,
    PlainTensorMeta,
    Repeated,
    SubclassCreationMeta,
)


class NodeAt(NamedTuple):
    """A node of a graph, by its position."""

    position: int


_DESCRIPTORS = [
    cls
    for cls in vars(descriptors).values()
    if isinstance(cls, type) and issubclass(cls, descriptors.Descriptor) and not cls.__name__.startswith("_")
    and hasattr(cls, "__dataclass_fields__")
]  # fmt: skip

RECORDS: dict[str, Any] = {
    cls.__name__: cls
    for cls in (
        *_DESCRIPTORS,
        *(AbsentMeta, ContainerMeta, OpaqueMeta, PlainTensorMeta, Repeated, SubclassCreationMeta),
        *(outputs.InputLeaf, outputs.AliasOfLeaf, outputs.Value, outputs.SameAsInput, outputs.SameAsOutput),
        *(outputs.ViewOfInput, outputs.ViewOfBase, outputs.Constant, outputs.ComputedSymints),
        *(views.Chain, views.Step, views.SymintAt, views.JaggedStep, views.RaggedSize, views.Strided),
        *(Base, Absent, Assumptions, Beginning, Input, InputMutation, MadeLeaf),
        *(MetadataMutation, Mutations, Part, TangentSpec),
        *(SavedSymbols, SavedSize, NodeAt, Look),
        *(*RECIPES, BackwardOutcome, AccessPath, Named, Entry, Table),
    )
}
"""By the word that files have for them."""

WORDS: dict[type, str] = {cls: word for word, cls in RECORDS.items()}
"""By class."""
