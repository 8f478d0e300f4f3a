"""Wrapper tensors and their leaves: what a value is made of, where each part goes, and the code that takes it there."""

from subclass_aot.flatten.creation import create_subclass_meta as create_subclass_meta
from subclass_aot.flatten.emit import emit_unwrap as emit_unwrap
from subclass_aot.flatten.emit import emit_wrap as emit_wrap
from subclass_aot.flatten.index_map import IndexMap as IndexMap
from subclass_aot.flatten.index_map import Slot as Slot
from subclass_aot.flatten.index_map import (
    compute_inner_mutated_inp_indices_from_subclass_meta as compute_inner_mutated_inp_indices_from_subclass_meta,
)
from subclass_aot.flatten.metas import NESTED_INT as NESTED_INT
from subclass_aot.flatten.metas import SYMBOLIC as SYMBOLIC
from subclass_aot.flatten.metas import AbsentMeta as AbsentMeta
from subclass_aot.flatten.metas import ContainerMeta as ContainerMeta
from subclass_aot.flatten.metas import InnerMeta as InnerMeta
from subclass_aot.flatten.metas import OpaqueMeta as OpaqueMeta
from subclass_aot.flatten.metas import PlainTensorMeta as PlainTensorMeta
from subclass_aot.flatten.metas import SubclassCreationMeta as SubclassCreationMeta
from subclass_aot.flatten.metas import ValueMeta as ValueMeta
from subclass_aot.flatten.metas import attribute as attribute
from subclass_aot.flatten.metas import element as element
from subclass_aot.flatten.plan import FlattenPlan as FlattenPlan
from subclass_aot.flatten.tensors import FunctionMeta as FunctionMeta
from subclass_aot.flatten.tensors import create_metadata_for_subclass as create_metadata_for_subclass
from subclass_aot.flatten.tensors import requires_subclass_dispatch as requires_subclass_dispatch
from subclass_aot.flatten.tensors import unwrap_tensor_subclasses as unwrap_tensor_subclasses
from subclass_aot.flatten.tensors import wrap_tensor_subclasses as wrap_tensor_subclasses
from subclass_aot.flatten.tensors import wrap_tensor_subclasses_maybe_joint as wrap_tensor_subclasses_maybe_joint
