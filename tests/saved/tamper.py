"""Rewrites the text in a file, with a right checksum: each try is refused by name, or runs a program of operators.

python -m tests.saved.tamper FILE PROGRAM FIRST LAST [PART]
"""

from __future__ import annotations

import collections
import copy
import os
import random
import sys
from pathlib import Path
from typing import Any

import torch

import subclass_aot as sa
from subclass_aot.saved.container import pack, unpack
from tests.saved.programs import PROGRAMS

NASTY: list[Any] = [
    None, True, -1, 0, 3, 1 << 47, (1 << 63) - 1, -(1 << 63), 1.5, "", "x", "__class__", "os", "a b", "a;import os",
    "os:system", "subprocess:Popen", "builtins:eval", "builtins:exec", "aten.__class__", "aten.add.__class__",
    "aten.from_file.default", "aten.add", "prims.x.y", "debugprims.load_tensor.default", ["class", "subprocess:Popen"],
    ["function", "os:system"], ["operator", "aten.mul.Tensor"], ["NodeAt", 0], ["NodeAt", 10**9], ["NodeAt", -1],
    ["tuple"], ["dict"], ["spec", 0], ["spec", -1], ["object", "subprocess:Popen"], ["enum", "os:system", "x"],
    ["float", "nan"], ["int", "0x" + "f" * 40], [], {}, ["InputLeaf", 0], ["InputLeaf", -5], ["dtype", "__name__"],
    ["symint", "s0"], ["symint", ["Pow", "s0", 16]], ["symint", ["FloorDiv", "s0", 0]], "s0", "s9", ["Add", "s0", 1],
    ["Equality", "s0", 3], ["Not", ["Equality", "s0", 3]], ["Max", "s0", "s0"], ["Number", "s0", 0, 0],
    ["symbolic spec", ["s0"], [1], [0], ["dtype", "float32"], ["device", "cpu"], ["layout", "strided"]],
    "s0) or open('pwned', 'w') or (s0", ["ViewOfInput", 0, ["ViewChain", ["tuple"], False], ["tuple", "s0"], False],
    ["device", "cuda:99"], ["device", "meta"], ["dtype", "complex64"], ["bytes", "zz"],
]  # fmt: skip


def places(value: Any, found: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Every place in a text."""
    keys = value if isinstance(value, dict) else range(len(value))
    for key in keys:
        found.append((value, key))
        if isinstance(value[key], dict | list):
            places(value[key], found)
    return found


def tampered(document: Any, seed: int, part: str | None = None) -> Any:
    """Another text, in one part of each specialization or in all."""
    draw = random.Random(seed)
    found = copy.deepcopy(document)
    for name in ("call", "function"):  # which would only not fit the call
        for each in found["specializations"]:
            each[name] = {}
    everything = places(found["specializations"], places(found["specs"], []))
    if part is not None:
        everything = [place for each in found["specializations"] for place in places(each[part], [])]
    kept = copy.deepcopy(document["specializations"][0])
    for each in found["specializations"]:
        each |= {name: kept[name] for name in ("call", "function")}
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        holder, key = draw.choice(everything)
        if type(key) is str and key not in holder or type(key) is int and key >= len(holder):
            continue
        match draw.randrange(5):
            case 0 if isinstance(holder, list):
                del holder[key]
            case 1 if isinstance(holder, list):
                holder.insert(key, copy.deepcopy(draw.choice(NASTY)))
            case 2:
                other, there = draw.choice(everything)
                if type(there) is int and there < len(other):
                    holder[key] = copy.deepcopy(other[there])
            case _:
                holder[key] = copy.deepcopy(draw.choice(NASTY))
    return found


def main(path: str, name: str, first: int, last: int, part: str | None = None) -> None:
    """Tries seeds."""
    document, blobs = unpack(Path(path).read_bytes())
    trial = Path(f"{path}.{first}")
    fn, make, kwargs = PROGRAMS[name]
    kinds: collections.Counter[str] = collections.Counter()
    for seed in range(first, last):
        trial.write_bytes(pack(tampered(document, seed, part), blobs))
        torch.manual_seed(0)
        args = make()
        try:
            loaded = sa.load(trial, trust=False)
            loaded(*args, **kwargs)
            kinds["ran"] += 1
        except sa.CompiledFileError:
            kinds["refused"] += 1
        except Exception as error:
            kinds[f"{type(error).__name__}: {str(error)[:70]}"] += 1
            if "-v" in sys.argv:
                import traceback

                traceback.print_exc()
                print("seed", seed)
    print(dict(kinds))
    assert not Path("pwned").exists() and os.getpid()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), *sys.argv[5:6])
