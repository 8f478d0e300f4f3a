"""Ready-made wrapper classes, each a small model of how to write one."""

from subclass_aot.tensors.float8_weight import Float8Weight as Float8Weight
from subclass_aot.tensors.int4_tiles import Int4Tiles as Int4Tiles
from subclass_aot.tensors.int4_weight import Int4Weight as Int4Weight
from subclass_aot.tensors.int8_dynamic_weight import Int8DynamicWeight as Int8DynamicWeight
from subclass_aot.tensors.int8_weight import Int8Weight as Int8Weight
from subclass_aot.tensors.jagged import Jagged as Jagged
from subclass_aot.tensors.lora_weight import LoraWeight as LoraWeight
from subclass_aot.tensors.masked_tensor import MaskedTensor as MaskedTensor
from subclass_aot.tensors.nf4_weight import NF4Weight as NF4Weight
from subclass_aot.tensors.quant_aware import QuantAwareWeight as QuantAwareWeight
from subclass_aot.tensors.quantizing.quantize import quantize_ as quantize_
from subclass_aot.tensors.quantizing.weights import Weights as Weights
from subclass_aot.tensors.quantizing.weights import weights_of as weights_of
from subclass_aot.tensors.sparse24_weight import Sparse24Weight as Sparse24Weight
from subclass_aot.tensors.two_tensor import TwoTensor as TwoTensor

# isort: split
import subclass_aot.tensors.quantizing.by_rows  # noqa: F401  # which declares products with the codes as they are
import subclass_aot.tensors.quantizing.experts  # noqa: F401  # those with experts
import subclass_aot.tensors.quantizing.moved_rows  # noqa: F401  # rows that are written or moved
import subclass_aot.tensors.quantizing.rows  # noqa: F401  # and reads of rows
