"""Classes on two ranks; the cases are in `two_ranks.py`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long


def test_two_ranks(tmp_path: Path) -> None:
    script = Path(__file__).with_name("two_ranks.py")
    path = os.pathsep.join([str(script.parents[2]), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    outputs = [tmp_path / f"rank {rank}" for rank in range(2)]
    ranks = []
    for rank, output in enumerate(outputs):
        with output.open("w") as file:
            command = [sys.executable, str(script), str(rank), str(tmp_path / "store")]
            ranks.append(subprocess.Popen(command, env=environment, stdout=file, stderr=subprocess.STDOUT))
    try:
        codes = [rank.wait(timeout=120) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    for code, output in zip(codes, outputs, strict=True):
        text = output.read_text()
        assert code == 0, text
        found = dict(json.loads(line) for line in text.splitlines() if line.startswith('["'))
        wrong = {name: why for name, why in found.items() if why}
        assert len(found) == 7 and not wrong, json.dumps(wrong, indent=1).replace("\\n", "\n")
