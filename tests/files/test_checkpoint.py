"""Checkpoints of `torch.distributed.checkpoint`, in one process and in two. The programs are in `two_ranks.py`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor as ForeignTwoTensor

from subclass_aot import Int8Weight
from subclass_aot.files import unwrap_state_dict


@pytest.mark.parametrize("ranks", [1, 2])
def test_ranks(ranks: int, tmp_path: Path) -> None:
    script = Path(__file__).with_name("two_ranks.py")
    path = os.pathsep.join([str(script.parents[2]), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    outputs = [tmp_path / f"rank {rank}" for rank in range(ranks)]
    processes = []
    for rank, output in enumerate(outputs):  # into files, since a pipe that nobody reads holds its writer up
        with output.open("w") as file:
            command = [sys.executable, str(script), str(rank), str(ranks), str(tmp_path)]
            processes.append(subprocess.Popen(command, env=environment, stdout=file, stderr=subprocess.STDOUT))
    try:
        codes = [process.wait(timeout=200) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    for code, output in zip(codes, outputs, strict=True):
        lines = output.read_text().splitlines()
        assert code == 0, "\n".join(lines)
        found = dict(json.loads(line) for line in lines if line.startswith('["'))
        assert found == {"in_place": True, "with_text": True, "other_ranks": True, "refused": True}


def model(weight: torch.Tensor) -> nn.Linear:
    layer = nn.Linear(3, 4)
    layer.weight = nn.Parameter(weight, requires_grad=False)
    return layer


@pytest.mark.filterwarnings("ignore")  # torch's, of checkpoints in one process
def test_without_a_process_group_into_classes_of_others(tmp_path: Path) -> None:
    """Which `dcp.load` refuses to read when they are saved as they are."""
    saved, other = (model(ForeignTwoTensor(torch.randn(4, 3), torch.randn(4, 3))) for _ in range(2))
    dcp.save(unwrap_state_dict(saved)[0], checkpoint_id=tmp_path, no_dist=True)
    dcp.load(unwrap_state_dict(other)[0], checkpoint_id=tmp_path, no_dist=True)
    for name, tensor in unwrap_state_dict(saved)[0].items():
        assert unwrap_state_dict(other)[0][name].equal(tensor)


@pytest.mark.filterwarnings("ignore")
def test_as_safetensors(tmp_path: Path) -> None:
    saved, other = (model(Int8Weight.from_float(torch.randn(4, 3))) for _ in range(2))
    writer = dcp.HuggingFaceStorageWriter(str(tmp_path))
    dcp.save(unwrap_state_dict(saved)[0], storage_writer=writer, no_dist=True)
    reader = dcp.HuggingFaceStorageReader(str(tmp_path))
    dcp.load(unwrap_state_dict(other)[0], storage_reader=reader, no_dist=True)
    assert other.weight.codes.equal(saved.weight.codes) and other.weight.scale.equal(saved.weight.scale)
    assert other.bias.equal(saved.bias)
