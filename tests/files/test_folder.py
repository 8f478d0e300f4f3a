"""Folders with safetensors files, and others."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch import nn

import subclass_aot as sa
from subclass_aot.files import load_calibrated
from tests.files.checkpoints import Small, small, write_tensors, written


def test_folders_that_are_refused(tmp_path: Path) -> None:
    with pytest.raises(sa.errors.StateDictError, match=r"config.json cannot be read"):
        load_calibrated(Small(), tmp_path)
    small(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "gptq_model-4bit-32g.safetensors")
    load_calibrated(Small(), tmp_path)  # as the writers of such checkpoints name it
    (tmp_path / "other.safetensors").write_bytes(b"")
    with pytest.raises(sa.errors.StateDictError, match=r"has gptq_model-4bit-32g.safetensors, other.safetensors; one"):
        load_calibrated(Small(), tmp_path)
    (tmp_path / "gptq_model-4bit-32g.safetensors").unlink()
    with pytest.raises(sa.errors.StateDictError, match=r"other.safetensors is no safetensors file that can be read"):
        load_calibrated(Small(), tmp_path)
    write_tensors(Small().state_dict(), tmp_path)
    with pytest.raises(sa.errors.StateDictError, match=r"has no tensor of a name that ends in .qweight"):
        load_calibrated(Small(), tmp_path)
    written(nn.Sequential(nn.Linear(32, 8)), tmp_path / "other", "awq", match="")
    with pytest.raises(
        sa.errors.StateDictError, match=r"safetensors: 0.qweight is of a Embedding in the model, and no linear layer"
    ):
        load_calibrated(nn.Sequential(nn.Embedding(8, 32)), tmp_path / "other")
