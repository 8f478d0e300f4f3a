"""Wrapper tensors and their leaves: what a value is made of, where each part goes, and the code that takes it there."""

from subclass_aot.kit.flatten.contexts import Repeated as Repeated
from subclass_aot.kit.flatten.creation import create_subclass_meta as create_subclass_meta
from subclass_aot.kit.flatten.emit import emit_unwrap as emit_unwrap
from subclass_aot.kit.flatten.emit import emit_wrap as emit_wrap
from subclass_aot.kit.flatten.index_map import IndexMap as IndexMap
from subclass_aot.kit.flatten.index_map import Slot as Slot
from subclass_aot.kit.flatten.metas import AbsentMeta as AbsentMeta
from subclass_aot.kit.flatten.metas import ContainerMeta as ContainerMeta
from subclass_aot.kit.flatten.metas import InnerMeta as InnerMeta
from subclass_aot.kit.flatten.metas import OpaqueMeta as OpaqueMeta
from subclass_aot.kit.flatten.metas import PlainTensorMeta as PlainTensorMeta
from subclass_aot.kit.flatten.metas import SubclassCreationMeta as SubclassCreationMeta
from subclass_aot.kit.flatten.metas import ValueMeta as ValueMeta
from subclass_aot.kit.flatten.plan import FlattenPlan as FlattenPlan
from subclass_aot.kit.flatten.walk import walk as walk
