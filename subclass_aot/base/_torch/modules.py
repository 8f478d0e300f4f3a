"""Functions and modules of torch that go their own way."""

from __future__ import annotations

import importlib
import operator
import sys
from collections.abc import Callable
from typing import Any, Final, Literal

import torch

importlib.import_module(
    "torch.utils._cxx_pytree"
)  # torch does so in some trace, and dicts are walked unsorted from then
PYTREE_NAMESPACE = "torch"
"""Where optree knows what `torch.utils._pytree.register_pytree_node` was given. Torch's module for it is private."""

map_tree: Callable[..., Any] = torch.utils._pytree.tree_map
"""What torch maps what it takes for a tree with. It has no public name; when it goes: optree, in `PYTREE_NAMESPACE`."""

pad_packed_sequence: Any = torch._VF._pad_packed_sequence
"""What `torch.nn.utils.rnn.pad_packed_sequence` calls: a function in C++ that writes through pointers."""


recurrent_layers: tuple[Any, ...] = (torch._VF.lstm, torch._VF.gru, torch._VF.rnn_tanh, torch._VF.rnn_relu)
"""What recurrent modules call, on packed sequences too: functions in C++ that read the sizes of steps by pointers."""


IS_DISTRIBUTED: Final = "_distribute_module_applied"
"""The attribute that `distribute_module`, and with it tensor parallelism, reads of a module before it cuts anything.
Nothing public is called then. Where another torch reads none: trained fields are refused a step later, or by torch.
"""


def has_flat_parameters(module: torch.nn.Module) -> bool:
    """Returns whether `module` is FSDP's first version, which keeps parameters as views of one.

    Its class is slow to import.
    """
    found = sys.modules.get("torch.distributed.fsdp.fully_sharded_data_parallel")
    return found is not None and isinstance(module, found.FullyShardedDataParallel)


def is_parallel_wrapper(module: torch.nn.Module) -> str | None:
    """Returns the name of what distributes a module, such as `fully_shard`, so that its call talks to other devices.

    None for other modules. What was not imported cannot have been used, and is slow to import.
    """
    if isinstance(module, torch.nn.parallel.DistributedDataParallel):
        return "DistributedDataParallel"
    if isinstance(module, torch.nn.DataParallel) and module.device_ids:
        return "DataParallel"
    composable = sys.modules.get("torch.distributed._composable.replicate")
    if composable is not None and isinstance(module, composable.DDP):
        return "replicate"
    fsdp = sys.modules.get("torch.distributed.fsdp")
    if fsdp is not None and isinstance(module, fsdp.FullyShardedDataParallel):
        return "FullyShardedDataParallel"
    return "fully_shard" if fsdp is not None and isinstance(module, fsdp.FSDPModule) else None


def parallel_forwards() -> list[type[torch.nn.Module]]:
    """Returns the classes whose `forward` talks to other devices itself, also where it is called without hooks."""
    classes: list[type[torch.nn.Module]] = [torch.nn.parallel.DistributedDataParallel, torch.nn.DataParallel]
    fsdp = sys.modules.get("torch.distributed.fsdp")
    return classes if fsdp is None else [*classes, fsdp.FullyShardedDataParallel]


def is_bookkeeping(attribute: str) -> bool:
    """Returns whether `fully_shard` and its kin keep notes of a module in this attribute, which no forward reads.

    They make the names when they are imported, from one root. When it goes: they are attributes like others.
    """
    return attribute.startswith("__composable_api_state_key")


PARAMETERS: Final = "_parameters"
BUFFERS: Final = "_buffers"
SUBMODULES: Final = "_modules"
TensorTable = Literal["_parameters", "_buffers"]
ModuleTable = Literal["_parameters", "_buffers", "_modules"]
HookTable = Literal["_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks"]
MODULE_TABLES: tuple[ModuleTable, ...] = (PARAMETERS, BUFFERS, SUBMODULES)
"""The tables of every module that hold tensors and modules. The public methods make new ones, and leave out None."""

parameters_of: Callable[[torch.nn.Module], dict[str, Any]] = operator.attrgetter(PARAMETERS)
buffers_of: Callable[[torch.nn.Module], dict[str, Any]] = operator.attrgetter(BUFFERS)
names_left_out_of: Callable[[torch.nn.Module], set[str]] = operator.attrgetter("_non_persistent_buffers_set")
"""Of a module, the names of buffers that `state_dict` leaves out. The public way is to make one."""

MODULE_HOOKS: tuple[HookTable, ...] = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
"""The tables of every module that hold functions which run when it is called. Public are only those that register."""

HOW_HOOKS_RUN = (
    "_forward_hooks_with_kwargs", "_forward_hooks_always_called", "_forward_pre_hooks_with_kwargs",
    "_is_full_backward_hook",
)  # fmt: skip
"""What every module notes of its hooks: of the same kind."""

HOOKS_OF_STATE = (
    "_state_dict_hooks", "_state_dict_pre_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks",
)  # fmt: skip
"""The tables of every module that hold functions which run when its state is saved and loaded: of the same kind."""

hooks_of_all: tuple[dict[int, Any], ...] = (
    torch.nn.modules.module._global_forward_pre_hooks, torch.nn.modules.module._global_forward_hooks,
    torch.nn.modules.module._global_backward_pre_hooks, torch.nn.modules.module._global_backward_hooks,
)  # fmt: skip
"""The hooks of every module of the process, by their numbers. Public are only the functions that register one."""

how_hooks_of_all_run: tuple[dict[int, bool], ...] = (
    torch.nn.modules.module._global_forward_hooks_with_kwargs,
    torch.nn.modules.module._global_forward_hooks_always_called,
)
"""What torch notes of these."""

LISTS_OF_WEIGHTS = ("_flat_weights", "_flat_weight_refs")
"""Lists in which recurrent layers of torch have their parameters once more. When a name goes, so does it here."""
