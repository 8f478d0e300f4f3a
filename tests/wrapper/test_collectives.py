"""Collectives on wrappers, in two processes. The programs are in `two_ranks.py`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

REFUSALS = {
    "dense and wrapper": "it has dense tensors, too",
    "other inner tensors": "do not have the same inner tensors and context",
    "without meaning": "without to_plain and from_plain nobody knows",
    "other rows": r"offsets[5] does not have the rows of a tensor of [8]",
}


def test_two_ranks(tmp_path: Path) -> None:
    script = Path(__file__).with_name("two_ranks.py")
    path = os.pathsep.join([str(script.parents[2]), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    outputs = [tmp_path / f"rank {rank}" for rank in range(2)]
    ranks = []
    for rank, output in enumerate(outputs):  # into files, since a pipe that nobody reads holds its writer up
        with output.open("w") as file:
            command = [sys.executable, str(script), str(rank), str(tmp_path / "store")]
            ranks.append(subprocess.Popen(command, env=environment, stdout=file, stderr=subprocess.STDOUT))
    try:
        codes = [rank.wait(timeout=200) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    for code, output in zip(codes, outputs, strict=True):
        lines = output.read_text().splitlines()
        assert code == 0, "\n".join(lines)
        found = dict(json.loads(line) for line in lines if line.startswith('["'))
        for name, text in REFUSALS.items():
            assert text in found.pop(name)
        wrong = {name: text for name, text in found.items() if text}
        assert not wrong, json.dumps(wrong, indent=1).replace("\\n", "\n")
        assert len(found) == 18 * 4 + 6 * 4
