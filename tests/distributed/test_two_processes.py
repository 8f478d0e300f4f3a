"""What is distributed over two processes is as in eager, or refused by name. The programs are in `two_processes.py`."""

from __future__ import annotations

from pathlib import Path

import torch

from tests import on_ranks

REFUSALS = {
    "DDP": "was given to DistributedDataParallel",
    "DDP, its forward": "was given to DistributedDataParallel",
    "DDP, its forward called inside": "was given to DistributedDataParallel",
    "FSDP1, its forward": "was given to FullyShardedDataParallel",
    "DDP, int8": "was given to DistributedDataParallel",
    "DDP as an argument": "was given to DistributedDataParallel",
    "FSDP2": "was given to fully_shard",
    "FSDP2 as an argument": "was given to fully_shard",
    "FSDP2 inside": "was given to fully_shard",
    "FSDP1": "was given to FullyShardedDataParallel",
    "replicate": "was given to replicate",
    "reduce": "`torch.distributed.reduce` cannot be part of a graph",
    "barrier": "`torch.distributed.barrier` cannot be part of a graph",
    "send": "`torch.distributed.send` cannot be part of a graph",
    "scatter": "`torch.distributed.scatter` cannot be part of a graph",
}


def test_two_processes(tmp_path: Path) -> None:
    assert torch.distributed.is_gloo_available()
    for found in on_ranks.run(Path(__file__).with_name("two_processes.py"), tmp_path):
        assert len(found) > 25 and found.keys() >= REFUSALS.keys()
        for name, text in REFUSALS.items():
            assert text in found.pop(name)
        on_ranks.nothing_wrong(found)
