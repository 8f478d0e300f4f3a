"""Clauses 43 to 45: sharding, processes, memory."""

from __future__ import annotations

import faulthandler
import gc
import os
import signal
import sys
import time
import warnings
import weakref
from collections.abc import Callable

import torch

from subclass_aot.testing.contract.clause import Clauses
from subclass_aot.testing.contract.trial import BrokenClause, DoesNotApply, Trial, require

CLAUSES = Clauses(are_drawn=False)

_LONGEST = 20.0
"""For so many seconds a child process may run."""


@CLAUSES.add(43, "C", "FSDP hooks", "a class has both hooks that FSDP2 calls around an all-gather, or neither")
def _hooks(trial: Trial) -> None:
    names = ("fsdp_pre_all_gather", "fsdp_post_all_gather")
    found = [name for name in names if hasattr(trial.cls, name)]
    require(len(found) != 1, f"it has {found}, and not the other")


@CLAUSES.add(43, "S", "FSDP shards", "what FSDP2 does to a parameter: chunk, new_zeros, copy_ of a shard, view(-1)")
def _shards(trial: Trial) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        shard = x.chunk(2)[0]
        padded = x.new_zeros(shard.shape)
        padded[: shard.shape[0]].copy_(shard)
        return padded.view(-1)

    with torch.no_grad():
        trial.commutes("the padded shard", program)


@CLAUSES.add(44, "C", "repr", "it can be printed, also where it requires grad")
def _repr(trial: Trial) -> None:
    require(repr(trial.make()), "its repr is empty")
    require(repr(trial.parameter()), "its repr is empty where it requires grad")


_DEADLY: dict[str, Callable[[torch.Tensor], object]] = {
    "share_memory_": lambda x: x.share_memory_(),
    "data_ptr": lambda x: x.data_ptr(),
    "numpy": lambda x: x.detach().numpy(),
    "tolist": lambda x: x.tolist(),
    "storage": lambda x: bytes(x.untyped_storage())[:1],
}
"""What reads or moves the memory of the outer tensor, which has none."""


def _deadly(name: str, program: Callable[[torch.Tensor], object]) -> None:
    @CLAUSES.add(44, "C", f"{name} in a child process", "no operator ends the process; to raise is well")
    def _(trial: Trial) -> None:
        tensor = trial.make()
        status = _status_of_child(lambda: program(tensor))
        if status < 0:
            raise BrokenClause(f"it ends the process by {signal.Signals(-status).name}")


for _name, _program in _DEADLY.items():
    _deadly(_name, _program)


@CLAUSES.add(45, "P", "no cycle", "it is freed when nobody refers to it, without the garbage collector")
def _no_cycle(trial: Trial) -> None:
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        tensor = trial.make()
        reference = weakref.ref(tensor)
        view = tensor.detach()
        del tensor, view
        require(reference() is None, "it keeps itself alive until the garbage collector runs")
    finally:
        if was_enabled:
            gc.enable()


def _status_of_child(program: Callable[[], object]) -> int:
    """Runs a program in a copy of this process.

    The copy has no threads but this one, so it may wait for one that is not there; and nothing that Python does at its
    end may happen twice.

    Returns:
        0 if the program came to its end, or raised; else the signal that ended the process, as a negative number.

    Raises:
        DoesNotApply: This system has no copies of processes, or the copy does not come to an end.
    """
    if sys.platform == "win32":
        raise DoesNotApply("this system has no fork")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of the threads that the copy has not
        child = os.fork()
    if child == 0:
        try:
            faulthandler.disable()
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            program()
        finally:
            os._exit(0)
    end = time.monotonic() + _LONGEST
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    raise DoesNotApply(f"the child process did not end within {_LONGEST:.0f} s, which may be since it is a copy")
