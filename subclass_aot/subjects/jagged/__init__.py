"""Torch's jagged tensors."""

from subclass_aot.engine.structures import STRUCTURES
from subclass_aot.subjects.jagged.kind import JaggedStructure

STRUCTURES["torch.nested._internal.nested_tensor.NestedTensor"] = JaggedStructure()
