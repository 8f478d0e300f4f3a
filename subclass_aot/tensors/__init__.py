"""Ready-made wrapper classes, each a small model of how to write one."""

from subclass_aot.tensors.int8_weight import Int8Weight as Int8Weight
from subclass_aot.tensors.quant_aware import QuantAwareWeight as QuantAwareWeight
from subclass_aot.tensors.two_tensor import TwoTensor as TwoTensor

__all__ = ["Int8Weight", "QuantAwareWeight", "TwoTensor"]
