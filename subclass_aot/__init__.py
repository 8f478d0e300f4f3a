"""Ahead-of-time compilation in which PyTorch tensor subclasses are first-class citizens."""

import importlib
from typing import TYPE_CHECKING, Any

# First, so that an unsupported torch is reported as such, and not as a missing name somewhere below.
import subclass_aot._version_check  # noqa: F401

# isort: split
import subclass_aot._native  # noqa: F401  # which puts native code into its places before any room reads them

# isort: split
import subclass_aot.graph  # noqa: F401  # whose operators are in files that torch loads
from subclass_aot import descriptors, files, ops
from subclass_aot._native import show_config
from subclass_aot.errors import CompiledFileError, SubclassAotError, UnsupportedTorchError
from subclass_aot.flatten import FlattenPlan
from subclass_aot.load import load
from subclass_aot.meta import MetaTensor, Spec, missing_meta, register_meta, to_meta
from subclass_aot.tensors import (
    Float8Weight,
    Int4Tiles,
    Int4Weight,
    Int8DynamicWeight,
    Int8Weight,
    Jagged,
    LoraWeight,
    MaskedTensor,
    NF4Weight,
    QuantAwareWeight,
    Sparse24Weight,
    TwoTensor,
    quantize_,
)
from subclass_aot.wrapper import Outer, ViewOf, WrapperTensor, structure, train_fields

if TYPE_CHECKING:
    from subclass_aot.backends import inductor
    from subclass_aot.blocks import compile_blocks
    from subclass_aot.call import mark_static_address
    from subclass_aot.compile import aot_compile
    from subclass_aot.export import export_forward
    from subclass_aot.joint import compile_joint, trace_joint
    from subclass_aot.meta import meta as meta  # is the room of that name, which can be called: see there
    from subclass_aot.profiling import profile
    from subclass_aot.sizes import mark_dynamic

_WHEN_USED = {
    "aot_compile": "compile",
    "compile_blocks": "blocks",
    "compile_joint": "joint",
    "export_forward": "export",
    "inductor": "backends",
    "mark_dynamic": "sizes",
    "mark_static_address": "call",
    "profile": "profiling",
    "trace_joint": "joint",
}
"""The rooms of names that are imported when they are used: the compiler takes as long to import as all else."""


def __getattr__(name: str) -> Any:
    if name not in _WHEN_USED:
        raise AttributeError(f"module 'subclass_aot' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f"subclass_aot.{_WHEN_USED[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__version__ = "0.1.0"

__all__ = [
    "CompiledFileError",
    "FlattenPlan",
    "Float8Weight",
    "Int4Tiles",
    "Int4Weight",
    "Int8DynamicWeight",
    "Int8Weight",
    "Jagged",
    "LoraWeight",
    "MaskedTensor",
    "MetaTensor",
    "NF4Weight",
    "Outer",
    "QuantAwareWeight",
    "Sparse24Weight",
    "Spec",
    "SubclassAotError",
    "TwoTensor",
    "UnsupportedTorchError",
    "ViewOf",
    "WrapperTensor",
    "aot_compile",
    "compile_blocks",
    "compile_joint",
    "descriptors",
    "export_forward",
    "files",
    "inductor",
    "load",
    "mark_dynamic",
    "mark_static_address",
    "meta",
    "missing_meta",
    "profile",
    "ops",
    "quantize_",
    "register_meta",
    "show_config",
    "structure",
    "to_meta",
    "trace_joint",
    "train_fields",
]
