"""Checkpoints of `torch.distributed.checkpoint`, in one process and in two. The programs are in `two_ranks.py`."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor as ForeignTwoTensor

from subclass_aot import Int8Weight
from subclass_aot.files import unwrap_state_dict
from tests import on_ranks
from tests.files import four_ranks


@pytest.mark.parametrize("count", [1, 2])
def test_ranks(count: int, tmp_path: Path) -> None:
    for found in on_ranks.run(Path(__file__).with_name("two_ranks.py"), tmp_path, count):
        assert found == {"in_place": True, "with_text": True, "other_ranks": True, "refused": True}


def test_other_numbers_of_ranks_read_it(tmp_path: Path) -> None:
    """Two write what four read, the other way round, and what either wrote one process reads without a group."""
    for found in on_ranks.run(Path(__file__).with_name("four_ranks.py"), tmp_path, 4):
        assert found.keys() == {"two to four", "four to two"}
        on_ranks.nothing_wrong(found)
    for name in found:
        mine, theirs = four_ranks.model(2), four_ranks.model(1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's, of checkpoints in one process
            dcp.load({"model": unwrap_state_dict(mine)[0]}, checkpoint_id=tmp_path / name, no_dist=True)
        for place, tensor in unwrap_state_dict(theirs)[0].items():
            assert unwrap_state_dict(mine)[0][place].equal(tensor)


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
