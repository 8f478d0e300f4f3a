"""What operators send to other processes."""

from __future__ import annotations

from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.meta import Operation


def bytes_sent(operation: Operation) -> tuple[int, int]:
    """Returns how many bytes this process sends in a collective, and how many processes take part; 0, 0 for others.

    The figures are those of ring algorithms: of n parts of a tensor, each process sends n - 1 once; in an all-reduce,
    which is a reduce-scatter and an all-gather, twice.

    Args:
        operation: Any operator that has run.
    """
    func = operation.func
    if func.namespace not in _torch.collectives.COLLECTIVES:
        return 0, 0
    name = func.overloadpacket.__name__.strip("_")
    whole, passes = next((found for key, found in _KINDS.items() if key in name), (None, 0))
    group = _group_of(operation)
    if whole is None or group < 1:
        return 0, 0
    given, made = _nbytes(operation.args), _nbytes((operation.result,))
    if func.namespace == "c10d":  # whose first argument is what is written
        made = _nbytes(operation.args[:1])
        given = _nbytes(operation.args[1:2]) or made
    size = given if whole == "given" else max(made, given)
    if name.startswith(("broadcast", "send")):
        return size, group
    return passes * size * (group - 1) // group, group


def communicated(operation: Operation) -> tuple[Any, ...]:
    """Returns the arguments of an operator that are memory for communication, where they are nothing else.

    They are what is gathered into, scattered from and copied to and from that. What is reduced as it stands, and what
    a collective returns, is the program's own.

    Args:
        operation: Any operator that has run.
    """
    func = operation.func
    if func.namespace == "fsdp":
        return (*operation.args, *operation.kwargs.values())
    if func.namespace == "c10d" and any(part in func.overloadpacket.__name__ for part in ("gather", "scatter")):
        return operation.args[:2]
    return ()


_KINDS = {
    "all_reduce": ("given", 2),
    "allreduce": ("given", 2),
    "all_gather": ("larger", 1),
    "allgather": ("larger", 1),
    "reduce_scatter": ("larger", 1),
    "all_to_all": ("given", 1),
    "alltoall": ("given", 1),
    "broadcast": ("given", 1),
    "send": ("given", 1),
}


def _group_of(operation: Operation) -> int:
    """Returns the number of processes; 0 for what waits only."""
    names = {x for x in (*operation.args, *operation.kwargs.values()) if isinstance(x, str)}
    for value in (*operation.args, *operation.kwargs.values()):
        if isinstance(value, torch.ScriptObject):
            try:
                return _torch.collectives.group_size_of(value)
            except (RuntimeError, TypeError):  # an operation of reduction is such an object, too
                continue
    for name in names:
        try:
            return _torch.collectives.size_of_named_group(name)
        except (RuntimeError, KeyError, ValueError):  # "sum" and its kin are no groups
            continue
    return 0


def _nbytes(values: tuple[Any, ...]) -> int:
    found = 0
    for value in values:
        if isinstance(value, torch.Tensor):
            found += value.nbytes
        elif isinstance(value, list | tuple):
            found += _nbytes(tuple(value))
    return found
