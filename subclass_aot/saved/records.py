"""The records that a file may hold, each with its word."""

from __future__ import annotations

from typing import Any

from subclass_aot import descriptors, outputs, views
from subclass_aot.aliasing import Base
from subclass_aot.flatten import (
    AbsentMeta,
    ContainerMeta,
    OpaqueMeta,
    PlainTensorMeta,
    Repeated,
    SubclassCreationMeta,
)
from subclass_aot.graph import Look
from subclass_aot.objects import Entry
from subclass_aot.outcome import RECIPES
from subclass_aot.saved.stand_ins import (
    NamedObject,
    NodeAt,
    SavedBackward,
    SavedGraphs,
    SavedNew,
    SavedOutcome,
    SavedSignature,
    SavedSize,
    SavedSymbols,
    SavedWay,
)
from subclass_aot.signature import (
    Absent,
    Beginning,
    Input,
    InputMutation,
    MadeLeaf,
    MetadataMutation,
    Mutations,
    TangentSpec,
)
from subclass_aot.tables import Table

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
        *(views.Chain, views.Step, views.SymintAt, views.Strided),
        *(
            Base,
            Absent,
            Beginning,
            Input,
            InputMutation,
            MadeLeaf,
            MetadataMutation,
            Mutations,
            TangentSpec,
        ),
        *(SavedSignature, SavedGraphs, SavedSymbols, SavedSize, NodeAt, Look),
        *(*RECIPES, Entry, Table),
        *(SavedOutcome, SavedBackward, SavedNew, SavedWay, NamedObject),
    )
}
"""By the word that files have for them."""

WORDS: dict[type, str] = {cls: word for word, cls in RECORDS.items()}
"""By class."""
