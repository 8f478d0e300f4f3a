"""Partitioners as AOTAutograd has them: they read fake tensors, and may run what forward runs again in backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import fx

from subclass_aot.backends.once import RemovedOnce
from subclass_aot.base import _torch
from subclass_aot.engine.compilers import Fakes, of_partitioner


@of_partitioner.put
def as_partition(partition_fn: Callable[..., Any]) -> Callable[..., tuple[fx.GraphModule, fx.GraphModule]]:
    """Returns a partitioner that runs with fake tensors in `meta["val"]`. See Note [What runs once], too.

    Args:
        partition_fn: The partitioner of the user.
    """

    def partition(joint: fx.GraphModule, _: object, num_fwd_outputs: int) -> tuple[fx.GraphModule, fx.GraphModule]:
        removed = RemovedOnce(joint, num_fwd_outputs)
        fakes = Fakes(removed.given)
        with _torch.switches.as_recorded(), _torch.aotautograd.within_tracing(fakes.mode):
            graphs = partition_fn(removed.given, fakes.inputs, num_fwd_outputs=removed.num_fwd_outputs)
        for graph in (removed.given, *graphs):
            fakes.put_back(graph)
        removed.put_back(*graphs)
        return graphs  # type: ignore[no-any-return]

    return partition
