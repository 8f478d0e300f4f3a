"""Two child processes, the ranks of one process group: the outcomes for a class come back as text.

Note [A pair of ranks]
~~~~~~~~~~~~~~~~~~~~~~
Both ranks run the same programs in one order. What is broken is seen after the last collective of a program, so both go
on. Where only one raises, the other waits for it; so the first gives up, the pair ends, and another one goes on with
the programs that are left. Each pair settles one program at least.

The ranks have different seeds of hashes (`PYTHONHASHSEED`), as any two processes have.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Sequence
from pathlib import Path

from subclass_aot.base._stack import pass_on_interruption
from subclass_aot.testing.contract.clause import Settled
from subclass_aot.testing.contract.trial import BrokenClause, DoesNotApply, Trial

_LONGEST = 60.0
"""For so many seconds a pair may run."""

_WORST_FIRST = ("broken", "raises", "does not apply", "kept")

_settled: weakref.WeakKeyDictionary[Trial, dict[str, Settled]] = weakref.WeakKeyDictionary()
"""What came of each program, so that the clauses of one trial have their pairs in common."""


class RaisedInChild(Exception):
    """The error that a rank raised, as text."""


def require_in_pair(trial: Trial, module: str, programs: Sequence[str], name: str) -> None:
    """Raises what two ranks find of a program.

    Args:
        trial: Of the class.
        module: The module that has the programs.
        programs: All programs that `rank.py` is to run for this trial.
        name: The one whose outcome is wanted.

    Raises:
        BrokenClause: A rank found it broken, or was ended by a signal.
        DoesNotApply: It does not apply on the ranks, or these cannot import what makes the tensor.
        RaisedInChild: A rank raised something else, or did not come to an end.
    """
    if trial not in _settled:
        _settled[trial] = settled_in_pairs(_payload(trial), module, programs)
    verdict, why = _settled[trial][name]
    if verdict == "broken":
        raise BrokenClause(why)
    if verdict == "does not apply":
        raise DoesNotApply(why)
    if verdict == "raises":
        raise RaisedInChild(why)


def settled_in_pairs(payload: bytes, module: str, programs: Sequence[str]) -> dict[str, Settled]:
    """Runs programs in as many pairs as it takes. See Note [A pair of ranks].

    Args:
        payload: What makes a trial, pickled.
        module: The module that has the programs.
        programs: Their names.

    Returns:
        What came of each.
    """
    found: dict[str, Settled] = {}
    while left := [name for name in programs if name not in found]:
        found.update(_run(payload, module, left))
    return found


def _payload(trial: Trial) -> bytes:
    try:
        return pickle.dumps(trial.source)
    except Exception as error:
        pass_on_interruption(error)
        raise DoesNotApply(
            f"another process cannot import what makes the tensor: give a function of a module as make ({error})"
        ) from None


def _run(payload: bytes, module: str, programs: Sequence[str]) -> dict[str, Settled]:
    """Settles one program at least, and all as long as both ranks come through."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "task").write_bytes(pickle.dumps((payload, module, list(programs))))
        ranks = [_started(folder, rank) for rank in range(2)]
        try:
            end = time.monotonic() + _LONGEST
            while time.monotonic() < end and any(rank.poll() is None for rank in ranks):
                time.sleep(0.02)
            codes = [rank.poll() for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
                rank.wait()
        told = [_read(folder / f"rank {rank}") for rank in range(2)]
    found: dict[str, Settled] = {}
    for program in programs:
        if found and not any(program in each for each in told):
            break
        found[program] = _of_both([told[rank].get(program) or _untold(rank, codes[rank]) for rank in range(2)])
    return found


def _started(folder: Path, rank: int) -> subprocess.Popen[bytes]:
    path = os.pathsep.join(str(Path(entry).absolute()) for entry in sys.path)
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": str(rank + 1), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "subclass_aot.testing.contract.rank", str(rank), str(folder)]
    with (folder / f"errors of rank {rank}").open("wb") as errors:
        return subprocess.Popen(command, env=environment, stdout=errors, stderr=subprocess.STDOUT)


def _read(path: Path) -> dict[str, tuple[float, Settled]]:
    """Returns what a rank has reported: for each program the time and the outcome."""
    lines = path.read_text().splitlines() if path.exists() else []
    return {name: (when, (verdict, why)) for name, when, verdict, why in map(json.loads, lines)}


def _untold(rank: int, code: int | None) -> tuple[float, Settled]:
    """Returns the outcome for a rank that ended, or did not, before it reported anything."""
    if code is not None and code < 0:
        return 0.0, ("broken", f"it ends the process by {signal.Signals(-code).name}")
    what = f"did not end within {_LONGEST:.0f} s" if code is None else f"ended with status {code}, and told nothing"
    return float("inf"), ("raises", f"rank {rank} {what}")


def _of_both(each: Sequence[tuple[float, Settled]]) -> Settled:
    """Returns the worse of two outcomes. Of two errors it is the earlier, which may be the cause of the other."""
    ranked = [
        (_WORST_FIRST.index(settled[0]), when if settled[0] == "raises" else 0.0, rank)
        for rank, (when, settled) in enumerate(each)
    ]
    _, _, rank = min(ranked)
    verdict, why = each[rank][1]
    return verdict, f"on rank {rank} of 2: {why}" if verdict in ("broken", "raises") else why
