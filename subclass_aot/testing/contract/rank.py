"""One of two processes that try a class: `python -m subclass_aot.testing.contract.rank RANK FOLDER`. See `pair.py`.

The task in the folder names the module that has the programs, which imports `pair.py`, which starts this file.
"""

from __future__ import annotations

import datetime
import functools
import importlib
import json
import os
import pickle
import sys
import time
import warnings
from pathlib import Path

import torch
from torch import distributed

from subclass_aot.base._stack import pass_on_interruption
from subclass_aot.testing.contract.clause import Settled, settled
from subclass_aot.testing.contract.trial import Trial, first_line

_LONGEST_COLLECTIVE = datetime.timedelta(seconds=20)


def main(number: int, folder: Path) -> None:
    """Runs the programs that the folder names, and writes into it what came of them.

    Args:
        number: Of this rank, 0 or 1.
        folder: Where the task is, and the file by which the ranks find each other.
    """
    payload, module, programs = pickle.loads((folder / "task").read_bytes())
    processes = importlib.import_module(module)
    with (folder / f"rank {number}").open("w") as told:

        def tell(name: str, came: Settled) -> None:
            print(json.dumps([name, time.time(), *came]), file=told, flush=True)

        try:
            trial = Trial(*pickle.loads(payload))
        except Exception as error:
            pass_on_interruption(error)
            why = f"give a function of a module as make ({first_line(error)})"
            for name in programs:
                tell(name, ("does not apply", f"another process cannot make the tensor: {why}"))
            return
        store = distributed.FileStore(str(folder / "store"), 2)  # type: ignore[attr-defined]
        distributed.init_process_group("gloo", store=store, rank=number, world_size=2, timeout=_LONGEST_COLLECTIVE)
        rank = processes.Rank(number, store)
        for name in programs:
            came = settled(functools.partial(processes.PROGRAMS[name], trial, rank))
            tell(name, came)
            if not rank.go_on(name, came[0] == "raises"):
                break


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    main(int(sys.argv[1]), Path(sys.argv[2]))
    os._exit(0)  # a process group that is left in the middle of a collective is not taken down
