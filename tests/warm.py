"""Runs programs one by one, each in a fork of a process that has imported torch: docs have many, and most are short.

Reads the path of a program from each line of stdin, and answers with its exit status; what it printed is in files
beside it.
"""

from __future__ import annotations

import os
import runpy
import sys
import traceback
import warnings
from pathlib import Path

import torch
from transformers import LlamaForCausalLM  # noqa: F401

import subclass_aot


def run(path: Path) -> int:
    """Runs a program in a child process, in the folder of the program, and gives its exit status."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    status = 1
    os.chdir(path.parent)
    for stream, suffix in ((1, ".out"), (2, ".err")):
        os.dup2(os.open(path.with_suffix(suffix), os.O_CREAT | os.O_WRONLY), stream)
    try:
        torch.manual_seed(0)
        warnings.simplefilter("error")
        # What the program has made is not torn down: a `DistributedDataParallel` that goes after its process group
        # waits for a thread of that, with the interpreter's lock, which the thread may want.
        kept = runpy.run_path(str(path), run_name="__main__")  # noqa: F841
        status = 0
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    torch.set_num_threads(1)
    subclass_aot.aot_compile(torch.sin)(torch.ones(2, requires_grad=True)).sum().backward()  # imports what it needs
    for line in sys.stdin:
        answer = str(run(Path(line.strip())))
        sys.stdout.write(answer + "\n")
        sys.stdout.flush()
