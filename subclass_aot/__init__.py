"""Ahead-of-time compilation in which PyTorch tensor subclasses are first-class citizens."""

import importlib
from typing import TYPE_CHECKING, Any

import subclass_aot.command_line  # noqa: F401  # who asks `python -m subclass_aot` for help waits for nothing below

# isort: split
# First of all else, so that an unsupported torch is reported as such, and not as a missing name somewhere below.
import subclass_aot.base._version_check  # noqa: F401

# isort: split
import subclass_aot.base.moved  # noqa: F401  # for who imports by an earlier name
import subclass_aot.native  # noqa: F401  # which puts native code into its places before any room reads them

# isort: split
import subclass_aot.engine.graph  # noqa: F401  # whose operators are in files that torch loads
import subclass_aot.satellites  # noqa: F401  # which says what is imported when it is used
import subclass_aot.subjects.recurrent  # noqa: F401  # its operators are in such files, too
from subclass_aot import errors, files, tensors
from subclass_aot.base import ops
from subclass_aot.engine import descriptors
from subclass_aot.errors import CompiledFileError, SubclassAotError, UnsupportedTorchError
from subclass_aot.files.compiled.load import load_compiled
from subclass_aot.kit.flatten import FlattenPlan
from subclass_aot.kit.wrapper import Outer, ViewOf, WrapperTensor, structure, train_fields
from subclass_aot.meta import MetaTensor, Spec, register_meta
from subclass_aot.native import show_config
from subclass_aot.tensors import Int8Weight, TwoTensor, quantize_

if TYPE_CHECKING:
    from subclass_aot import testing
    from subclass_aot.backends import Backend, inductor
    from subclass_aot.cost import devices, profiling
    from subclass_aot.cost.profiling import profile
    from subclass_aot.cost.without_data import meta as meta  # is the room of that name, which can be called: see there
    from subclass_aot.cost.without_data import missing_meta, to_meta
    from subclass_aot.doors import joint
    from subclass_aot.doors.blocks import compile_blocks
    from subclass_aot.doors.export import export_forward
    from subclass_aot.doors.joint import CompiledJoint, Joint, compile_joint, trace_joint
    from subclass_aot.engine.call import mark_static_address
    from subclass_aot.engine.compile import CompiledFunction, aot_compile
    from subclass_aot.engine.sizes import mark_dynamic
    from subclass_aot.tensors import Float8Weight as Float8Weight
    from subclass_aot.tensors import Int4Tiles as Int4Tiles
    from subclass_aot.tensors import Int4Weight as Int4Weight
    from subclass_aot.tensors import Int8DynamicWeight as Int8DynamicWeight
    from subclass_aot.tensors import Jagged as Jagged
    from subclass_aot.tensors import LoraWeight as LoraWeight
    from subclass_aot.tensors import MaskedTensor as MaskedTensor
    from subclass_aot.tensors import NF4Weight as NF4Weight
    from subclass_aot.tensors import QuantAwareWeight as QuantAwareWeight
    from subclass_aot.tensors import Sparse24Weight as Sparse24Weight

_WHEN_USED = {
    "Backend": "backends",
    "CompiledFunction": "engine.compile",
    "CompiledJoint": "doors.joint",
    "Joint": "doors.joint",
    "aot_compile": "engine.compile",
    "compile_blocks": "doors.blocks",
    "compile_joint": "doors.joint",
    "export_forward": "doors.export",
    "inductor": "backends",
    "mark_dynamic": "engine.sizes",
    "mark_static_address": "engine.call",
    "missing_meta": "cost.without_data",
    "profile": "cost.profiling",
    "to_meta": "cost.without_data",
    "trace_joint": "doors.joint",
}
"""The rooms of names that are imported when they are used: the compiler takes as long to import as all else."""

_ROOMS_WHEN_USED = {
    "devices": "cost.devices",
    "joint": "doors.joint",
    "profiling": "cost.profiling",
    "testing": "testing",
}

_EARLIER_NAMES = {
    "Float8Weight", "Int4Tiles", "Int4Weight", "Int8DynamicWeight", "Jagged", "LoraWeight", "MaskedTensor", "NF4Weight",
    "QuantAwareWeight", "Sparse24Weight",
}  # fmt: skip
"""Ready-made classes that were listed here before they were in `tensors` alone."""

load = load_compiled  # its earlier name


def _when_used(name: str) -> Any:
    if name in _EARLIER_NAMES:
        return getattr(tensors, name)
    if name in _ROOMS_WHEN_USED:
        value = importlib.import_module(f"subclass_aot.{_ROOMS_WHEN_USED[name]}")
    elif name in _WHEN_USED:
        value = getattr(importlib.import_module(f"subclass_aot.{_WHEN_USED[name]}"), name)
    else:
        raise AttributeError(f"module 'subclass_aot' has no attribute {name!r}")
    globals()[name] = value
    return value


if not TYPE_CHECKING:  # a type checker would take any name then, misspelt ones too
    __getattr__ = _when_used


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])


__version__ = "0.2.0"

__all__ = [
    "Backend",
    "CompiledFileError",
    "CompiledFunction",
    "CompiledJoint",
    "FlattenPlan",
    "Int8Weight",
    "Joint",
    "MetaTensor",
    "Outer",
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
    "devices",
    "errors",
    "export_forward",
    "files",
    "inductor",
    "joint",
    "load_compiled",
    "mark_dynamic",
    "mark_static_address",
    "meta",
    "missing_meta",
    "ops",
    "profile",
    "profiling",
    "quantize_",
    "register_meta",
    "show_config",
    "structure",
    "tensors",
    "testing",
    "to_meta",
    "trace_joint",
    "train_fields",
]
