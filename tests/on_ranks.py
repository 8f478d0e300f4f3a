"""Programs on several ranks, each a process of its own: how a test starts a script, how the script joins the others.

A rank prints `[name, result]` in JSON for each of its programs; what else it prints is shown if it fails.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import distributed


def run(script: Path, folder: Path, ranks: int = 2, seconds: float = 300, *words: str) -> list[dict[str, Any]]:
    """Runs a script on each rank and reads what its programs came to.

    Args:
        script: What each rank runs; it calls `joined`.
        folder: Where the ranks meet, and write.
        ranks: How many there are.
        seconds: After which they are killed.
        words: What else the script is given.

    Returns:
        The result of each program by its name, for each rank.
    """
    path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    outputs = [folder / f"rank {rank}" for rank in range(ranks)]
    processes = []
    for rank, output in enumerate(outputs):  # into files, since a pipe that nobody reads holds its writer up
        with output.open("w") as file:
            command = [sys.executable, str(script), str(rank), str(ranks), str(folder), *words]
            processes.append(subprocess.Popen(command, env=environment, stdout=file, stderr=subprocess.STDOUT))
    try:
        codes = [process.wait(timeout=seconds) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    texts = [output.read_text() for output in outputs]
    assert codes == [0] * ranks, "\n".join(texts)
    return [dict(json.loads(line) for line in text.splitlines() if line.startswith('["')) for text in texts]


def nothing_wrong(found: dict[str, str]) -> None:
    """Asserts that each program came to nothing that is to be said of it."""
    wrong = {name: text for name, text in found.items() if text}
    assert not wrong, json.dumps(wrong, indent=1).replace("\\n", "\n")


@contextlib.contextmanager
def joined() -> Iterator[tuple[int, int, Path]]:
    """Joins the other ranks, in a script that `run` started. The process is over when the block is.

    Nothing is torn down then: what is left of a process group may wait for a thread, or be there when that ends.

    Yields:
        The number of this rank, how many there are, and the folder that they share.
    """
    rank, ranks, folder = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder / 'store'}", rank=rank, world_size=ranks)
    yield rank, ranks, folder
    distributed.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)


def tell(name: str, result: object) -> None:
    """Says what a program came to."""
    print(json.dumps([name, result]), flush=True)


def wrong(program: Callable[[], object]) -> str:
    """Runs a program, and gives the traceback of its error; "" without one."""
    try:
        program()
    except Exception:
        return traceback.format_exc()
    return ""
