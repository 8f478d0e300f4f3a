"""What is distributed over two processes is as in eager, or refused by name. The programs are in `two_processes.py`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import torch

REFUSALS = {
    "DDP": "was given to DistributedDataParallel",
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
    script = Path(__file__).with_name("two_processes.py")
    path = os.pathsep.join([str(script.parents[2]), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen(
            [sys.executable, str(script), str(rank), str(tmp_path / "store")],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    try:
        ended = [rank.communicate(timeout=300) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    for rank, (out, err) in zip(ranks, ended, strict=True):
        found = dict(json.loads(line) for line in out.splitlines() if line.startswith("["))
        wrong = {name: text for name, text in found.items() if REFUSALS.get(name, "") not in text or
                 name not in REFUSALS and text}  # fmt: skip
        assert not wrong, json.dumps(wrong, indent=1).replace("\\n", "\n")
        assert rank.returncode == 0, err
        assert len(found) > 25 and found.keys() >= REFUSALS.keys()
