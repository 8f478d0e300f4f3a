"""The records that a file may hold, and what holds of their fields beyond their types.

Generated code has some of the words of a signature in it: names of attributes, and ways to objects. Those are compared
with what such words look like, so that no file writes code.
"""

from __future__ import annotations

import keyword
import re
from typing import Any

from subclass_aot import _torch, descriptors, outputs
from subclass_aot.aliasing import Base
from subclass_aot.flatten import (
    AbsentMeta,
    ContainerMeta,
    OpaqueMeta,
    PlainTensorMeta,
    Repeated,
    SubclassCreationMeta,
)
from subclass_aot.graph import Look, RegeneratedView
from subclass_aot.objects import Entry
from subclass_aot.outcome import Change, Given, Identity, Leaf, Literal, New, Tuple, Weak
from subclass_aot.saved.stand_ins import (
    NamedObject,
    NodeAt,
    SavedGraphs,
    SavedNew,
    SavedOutcome,
    SavedSignature,
    SavedSize,
    SavedSymbols,
    SavedWay,
)
from subclass_aot.signature import (
    AutogradMutation,
    Beginning,
    Input,
    MadeLeaf,
    MetadataMutation,
    Mutations,
    TangentSpec,
    VersionBump,
)
from subclass_aot.tables import Table
from subclass_aot.weak import REFERENT

_DESCRIPTORS = [
    cls
    for cls in vars(descriptors).values()
    if isinstance(cls, type) and issubclass(cls, descriptors.Descriptor) and not cls.__name__.startswith("_")
    and hasattr(cls, "__dataclass_fields__") and cls is not descriptors.AutogradMutation
]  # fmt: skip

RECORDS: dict[str, Any] = {
    cls.__name__: cls
    for cls in (
        *_DESCRIPTORS,
        *(AbsentMeta, ContainerMeta, OpaqueMeta, PlainTensorMeta, Repeated, SubclassCreationMeta),
        *(outputs.InputLeaf, outputs.AliasOfLeaf, outputs.Value, outputs.SameAsInput, outputs.SameAsOutput),
        *(outputs.ViewOfInput, outputs.ViewOfBase, outputs.Constant, outputs.ViewChain, outputs.ViewStep),
        *(outputs.ComputedSymints, outputs.NumberAt),
        *(outputs.StridedView, RegeneratedView),
        *(Base, Beginning, Input, MadeLeaf, MetadataMutation, AutogradMutation, VersionBump, Mutations, TangentSpec),
        *(SavedSignature, SavedGraphs, SavedSymbols, SavedSize, NodeAt, Look),
        *(Change, Leaf, Given, Tuple, New, Weak, Identity, Literal, Entry, Table),
        *(SavedOutcome, SavedNew, SavedWay, NamedObject),
    )
}
"""By the word that files have for them."""
RECORDS["WriteSeenByAutograd"] = descriptors.AutogradMutation  # there are two classes of that name

WORDS: dict[type, str] = {cls: word for word, cls in RECORDS.items()}
"""By class."""

_REPLAYS = (outputs.ViewChain, outputs.StridedView, RegeneratedView)
_STEPS = re.compile(r"(\.\w+|\[\d+\]|\['\w*'\])*")
_STARTS = ("args", "kwargs", "leaves", "values")
_STEPS_OF_OTHERS = ("__self__", "__func__", REFERENT)
_COMPARED = frozenset(
    {SubclassCreationMeta, SavedWay, Entry, Change, SavedNew, VersionBump, Beginning, MetadataMutation, Tuple}
    | {outputs.ViewStep, outputs.ViewOfInput, outputs.ViewOfBase}
)
"""Records of which more is asked than the types of their fields."""


class Limits:
    """What a file may say at the most.

    Attributes:
        number: Whole numbers are below this.
        size: Sizes in elements, and in bytes, are below this.
    """

    number = 1 << 63
    size = 1 << 48

    def problem(self, record: object) -> str:
        """What is wrong with a record beyond its types; "" if nothing is."""
        if type(record) not in _COMPARED:
            return ""
        words = [word for word in _words(record) if not _is_plain(word)]
        if words:
            return f"{words[0]!r:.80} is no name of an attribute"
        if isinstance(record, SubclassCreationMeta):
            rank = len(record.outer_size)
            if not all(x.dim is None or 0 <= x.dim < rank for x in record.repeated):
                return "its context repeats the size of a dimension that it does not have"
        if isinstance(record, VersionBump | Beginning) and not _STEPS.fullmatch(record.path):
            return f"{record.path!r:.80} is no path"
        if isinstance(record, SavedWay) and isinstance(record.start, str) and record.start not in _STARTS:
            return f"{record.start!r:.80} is no place where a call has objects"
        if isinstance(record, MetadataMutation | outputs.ViewStep) and not _torch.is_overload(record.operator):
            return f"{record.operator!r:.80} is no operator"
        if isinstance(record, outputs.ViewOfInput | outputs.ViewOfBase) and type(record.replay) not in _REPLAYS:
            return "a view is made again by a function of Python, and not by operators alone"
        if isinstance(record, Tuple) and not issubclass(record.cls, tuple):
            return f"{record.cls.__qualname__} is no class of tuples"
        return ""


LIMITS = Limits()


def _words(record: object) -> list[str]:
    """The words of a record that generated code has in it as they are."""
    match record:
        case SubclassCreationMeta():
            return [*record.attrs, *([record.symbols_from] if record.symbols_from is not None else [])]
        case SavedWay():
            return [step for step in record.steps if isinstance(step, str) and step not in _STEPS_OF_OTHERS]
        case Entry():
            is_word = record.table.kind in ("slots", "partial", "cells")
            return [record.key if type(record.key) is str else ""] if is_word else []
        case Change() if record.table.kind in ("slots", "cells", "partial"):
            keys = [*record.removed, *(key for key, _ in record.assigned)]
            return [key.value if isinstance(key, Literal) and type(key.value) is str else "" for key in keys]
        case SavedNew():
            keys = [key for table, entries in record.tables if table.kind in ("slots", "cells", "partial")
                    for key, _ in entries]  # fmt: skip
            return [key.value if isinstance(key, Literal) and type(key.value) is str else "" for key in keys]
    return []


def _is_plain(word: object) -> bool:
    return isinstance(word, str) and word.isidentifier() and not keyword.iskeyword(word) and word[-2:] != "__"
