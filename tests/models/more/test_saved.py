"""A model with weights of `torchao` that is compiled in one process and loaded in another."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("name", ["LlamaForCausalLM", "BertForSequenceClassification"])
def test_another_process_does_the_same(name: str, tmp_path: Path) -> None:
    for what in ("save", "load"):
        command = [sys.executable, "-m", "tests.models.saved_model", what, str(tmp_path), name, "torchao"]
        ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr
    assert ran.stdout.endswith("tensors are the same\n")
