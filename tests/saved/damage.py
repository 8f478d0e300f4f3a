"""Damages a file byte by byte, in a process of its own: each try is refused by name, or does what the file did.

python -m tests.saved.damage FILE FIRST LAST
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import torch

import subclass_aot as sa
from tests.saved.programs import PROGRAMS


def damaged(data: bytes, seed: int) -> bytes:
    """The file with some bits changed, a piece missing, or a piece twice."""
    draw = random.Random(seed)
    at = draw.randrange(len(data))
    match draw.randrange(4):
        case 0:
            return data[:at]
        case 1:
            return data[:at] + data[at : at + draw.randrange(1, 64)] + data[at:]
        case 2:
            return data[:at] + draw.randbytes(draw.randrange(1, 16)) + data[at + draw.randrange(16) :]
    return data[:at] + bytes([data[at] ^ (1 << draw.randrange(8))]) + data[at + 1 :]


def main(path: str, first: int, last: int) -> None:
    """Tries seeds."""
    data = Path(path).read_bytes()
    trial = Path(f"{path}.{first}")
    fn, make, kwargs = PROGRAMS["int8 weight"]
    torch.manual_seed(0)
    args = make()
    expected = fn(*args, **kwargs)
    refused = 0
    for seed in range(first, last):
        now = damaged(data, seed)
        trial.write_bytes(now)
        try:
            result = sa.load(trial, trust=False)(*args, **kwargs)
        except sa.CompiledFileError as error:
            assert error.path == str(trial) and error.what, seed
            refused += 1
        else:
            assert result.equal(expected), seed
            assert now == data, seed
    print(f"{refused} refused of {last - first}")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
