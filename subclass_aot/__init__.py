"""Ahead-of-time compilation in which PyTorch tensor subclasses are first-class citizens."""

from typing import TYPE_CHECKING

# First, so that an unsupported torch is reported as such, and not as a missing name somewhere below.
import subclass_aot._version_check  # noqa: F401

# isort: split
from subclass_aot import descriptors, files, ops
from subclass_aot._native import show_config
from subclass_aot.backends import inductor
from subclass_aot.blocks import compile_blocks
from subclass_aot.call import mark_static_address
from subclass_aot.compile import aot_compile
from subclass_aot.errors import CompiledFileError, SubclassAotError, UnsupportedTorchError
from subclass_aot.export import export_forward
from subclass_aot.flatten import FlattenPlan
from subclass_aot.joint import compile_joint, trace_joint
from subclass_aot.load import load
from subclass_aot.meta import MetaTensor, Spec, register_meta, to_meta
from subclass_aot.sizes import mark_dynamic
from subclass_aot.tensors import (
    Float8Weight,
    Int4Weight,
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

if TYPE_CHECKING:  # else it is the room of that name, which can be called: see there
    from subclass_aot.meta import meta as meta

__version__ = "0.1.0"

__all__ = [
    "CompiledFileError",
    "FlattenPlan",
    "Float8Weight",
    "Int4Weight",
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
    "ops",
    "quantize_",
    "register_meta",
    "show_config",
    "structure",
    "to_meta",
    "trace_joint",
    "train_fields",
]
