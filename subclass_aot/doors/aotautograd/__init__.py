"""The functions that authors of compilers know from AOTAutograd, under their names and calling conventions.

They take the calling conventions of torch 2.4 and of torch 2.13, and torch's own metadata in place of ours, too. With
metas of ours the work is done by generated code, made once for each list of metas.
"""

from subclass_aot.doors.aotautograd.creation import create_subclass_meta as create_subclass_meta
from subclass_aot.doors.aotautograd.function_meta import FunctionMeta as FunctionMeta
from subclass_aot.doors.aotautograd.function_meta import (
    compute_inner_mutated_inp_indices_from_subclass_meta as compute_inner_mutated_inp_indices_from_subclass_meta,
)
from subclass_aot.doors.aotautograd.function_meta import create_metadata_for_subclass as create_metadata_for_subclass
from subclass_aot.doors.aotautograd.function_meta import requires_subclass_dispatch as requires_subclass_dispatch
from subclass_aot.doors.aotautograd.parts import compute_symint_placeholders as compute_symint_placeholders
from subclass_aot.doors.aotautograd.parts import enumerate_filter_symints as enumerate_filter_symints
from subclass_aot.doors.aotautograd.parts import get_subclass_typing_container as get_subclass_typing_container
from subclass_aot.doors.aotautograd.unwrap import (
    remap_unwrapped_subclass_arg_indices as remap_unwrapped_subclass_arg_indices,
)
from subclass_aot.doors.aotautograd.unwrap import runtime_unwrap_tensor_subclasses as runtime_unwrap_tensor_subclasses
from subclass_aot.doors.aotautograd.unwrap import unwrap_tensor_subclasses as unwrap_tensor_subclasses
from subclass_aot.doors.aotautograd.unwrap import (
    unwrap_tensor_subclasses_with_indices_to_original as unwrap_tensor_subclasses_with_indices_to_original,
)
from subclass_aot.doors.aotautograd.wrap import wrap_tensor_subclasses as wrap_tensor_subclasses
from subclass_aot.doors.aotautograd.wrap import wrap_tensor_subclasses_maybe_joint as wrap_tensor_subclasses_maybe_joint

__all__ = [
    "FunctionMeta",
    "compute_inner_mutated_inp_indices_from_subclass_meta",
    "compute_symint_placeholders",
    "create_metadata_for_subclass",
    "create_subclass_meta",
    "enumerate_filter_symints",
    "get_subclass_typing_container",
    "remap_unwrapped_subclass_arg_indices",
    "requires_subclass_dispatch",
    "runtime_unwrap_tensor_subclasses",
    "unwrap_tensor_subclasses",
    "unwrap_tensor_subclasses_with_indices_to_original",
    "wrap_tensor_subclasses",
    "wrap_tensor_subclasses_maybe_joint",
]
