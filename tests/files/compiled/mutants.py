"""Files that are damaged, rewritten or made to attack: what `inspect` and `load` do with them, in a process of its own.

python -m tests.files.compiled.mutants FOLDER FIRST LAST

An audit hook of Python sees what the process does: imports, code that is made, processes that start, files that are
opened. While a file is read that is not trusted, there is one such event: that file is opened.
"""

from __future__ import annotations

import collections
import copy
import random
import sys
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import subclass_aot as sa
from subclass_aot.files.compiled.container import pack, unpack
from subclass_aot.testing.inspection import describe_file

NASTY: list[Any] = [
    None, True, -1, 0, 3, 1 << 47, (1 << 63) - 1, -(1 << 63), 1 << 200, 1.5, "", "x", "__class__", "os", "a b",
    "a;import os", "os:system", "subprocess:Popen", "builtins:eval", "builtins:exec", "antigravity:x", "this:x",
    "aten.__class__", "aten.from_file.default", "aten.add", "debugprims.load.default", {"named": "antigravity:x"},
    {"named": "subprocess:Popen"}, {"named": "os:system"}, {"operator": "aten.mul.Tensor"}, {"NodeAt": [0]},
    {"NodeAt": [10**9]}, {"NodeAt": [-1]}, {"list": 0}, {"dict": []}, {"spec": 0}, {"spec": -1},
    {"class": "subprocess:Popen", "fields": {"args": "touch"}}, {"enum": "os:system", "member": "x"}, {"float": "nan"},
    {"float": "1e99999"}, {"symint": "s0"}, {"symint": ["Pow", "s0", 16]}, "s0", ["Add", "s0", 1], [], {}, [[]], [{}],
    "\x1b]0;title\x07\x1b[2J", "\ud800", "s0) or open('pwned', 'w') or (s0", {"symbolic spec": [["s0"], [1], [0]]},
    {"bytes": "zz"}, "%s%n{0.__class__}",
]  # fmt: skip


def places(value: Any, found: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Lists every place in a text."""
    keys = value if isinstance(value, dict) else range(len(value))
    for key in keys:
        found.append((value, key))
        if isinstance(value[key], dict | list):
            places(value[key], found)
    return found


def damaged(data: bytes, seed: int) -> bytes:
    """Gives the file with some bits changed, a piece missing, or a piece twice."""
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


def rewritten(data: bytes, seed: int) -> bytes:
    """Gives the file with other things in its text, and a right checksum."""
    document, blobs = unpack(data)
    draw, found = random.Random(seed), copy.deepcopy(document)
    everything = places(found, [])
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        holder, key = draw.choice(everything)
        if type(key) is str and key not in holder or type(key) is int and key >= len(holder):
            continue
        match draw.randrange(5):
            case 0:
                del holder[key]
            case 1 if isinstance(holder, list):
                holder.insert(key, copy.deepcopy(draw.choice(NASTY)))
            case 2:
                other, there = draw.choice(everything)
                if type(there) is int and there < len(other):
                    holder[key] = copy.deepcopy(other[there])
            case _:
                holder[key] = copy.deepcopy(draw.choice(NASTY))
    return pack(found, blobs)


def replaced(value: Any, word: str, by: Any) -> Any:
    """Gives a text with something else in place of each record of a name."""
    if isinstance(value, dict):
        return by if [*value] == [word] else {key: replaced(x, word, by) for key, x in value.items()}
    return [replaced(x, word, by) for x in value] if isinstance(value, list) else value


def attacks(data: bytes) -> Iterator[bytes]:
    """Yields files that would start a process, import a module, or read memory that is not theirs."""
    document, blobs = unpack(data)
    recipe = [{"Literal": ["touch"]}, {"Literal": ["pwned"]}]
    for cls, metadata in (
        ({"named": "optree.typing:StructSequence"}, {"named": "subprocess:Popen"}),
        ({"named": "functools:partial"}, {"named": "os:system"}),
        ({"named": "collections:defaultdict"}, [{"named": "os:getcwd"}, []]),
        ({"named": "antigravity:geohash"}, None),
    ):
        new = {"NewObject": [cls, True, metadata, recipe, [], None]}
        yield pack(replaced(document, "NewObject", new), blobs)
        popen = {"class": "subprocess:Popen", "fields": {"args": {"list": ["touch", "pwned"]}}}
        yield pack(replaced(document, "Value", popen), blobs)
    for operator, size in (("aten._reshape_alias.default", 1 << 20), ("aten.as_strided.default", 64)):
        changed = copy.deepcopy(document)
        for each in changed["specializations"]:
            for node in each["forward"][2]:
                if node[0] == "call_function":
                    node[2:4] = [operator, [{"NodeAt": [0]}, {"list": [size]}, {"list": [1]}]]
        yield pack(changed, blobs)
    for deep in (2_000, 200_000):
        yield pack({**document, "specs": "deep"}, blobs).replace(b'"deep"', b"[" * deep + b"]" * deep)
    yield pack({**document, "fw_compiler": ["os:system"]}, blobs)
    yield pack({**document, "artifacts": {"inductor": {"artifacts": 0, "x": -1}}}, blobs)
    yield pack({**document, "function": "\x1b[31mred\x1b]52;c;cm0=\x07"}, blobs)
    yield data[:13] + (3).to_bytes(4, "little") + data[17:49] + (1 << 63).to_bytes(8, "little") + data[57:]


def repeated(data: bytes, seed: int) -> bytes:
    """Gives the file with one long part that others refer to, many times: a name, or a spec."""
    document, blobs = unpack(data)
    draw, found = random.Random(seed), copy.deepcopy(document)
    nodes = draw.choice(found["specializations"])["forward"][2]
    position = draw.randrange(len(nodes))
    long = draw.choice((1_000, 30_000))
    spec = {"spec": len(found["specs"])}
    match draw.randrange(3):
        case 0:
            nodes[position][1] = "n" * long
            nodes[-1][3] = [{"NodeAt": [position]}] * (long // 10)
        case 1:
            found["specs"].append([[*range(long)], [], 0, {"dtype": "float32"}])
            nodes[-1:-1] = [[*nodes[position][:5], spec] for _ in range(long // 30)]
        case _:
            found["specs"].append([[2], [1], 0, {"dtype": "float32"}, *range(long)])
            nodes[position][5] = [spec] * (long // 10)
    return pack(found, blobs)


EVENTS: list[tuple[str, Any]] = []
_is_watching = False


def _watch(event: str, args: tuple[Any, ...]) -> None:
    if _is_watching and event != "object.__getattr__":  # a frame of a traceback is asked for its code
        EVENTS.append((event, args))


@contextmanager
def watching(path: Path) -> Iterator[None]:
    """Asserts that within the block nothing happens but that a file is opened to be read."""
    global _is_watching
    EVENTS.clear()
    _is_watching = True
    try:
        yield
    finally:
        _is_watching = False
        others = [e for e in EVENTS if e[0] != "open" or e[1][0] != str(path) or e[1][1] not in ("r", "rb")]
        assert not others, f"{others[:3]}"[:400]


def attempt(path: Path, most: int = 0) -> str:
    """Inspects a file and loads it without trust; gives what the text or the error is.

    Args:
        path: The file.
        most: So many bytes may be used at a time; 0 for any number.
    """
    found = ""
    with watching(path):
        for fn in (None, len):
            try:
                sa.load_compiled(path, fn)
            except sa.CompiledFileError as error:
                assert "trust=True" in error.what
            else:
                raise AssertionError("it was loaded")
        if most:
            tracemalloc.start()
        try:
            text = describe_file(path)
        except sa.CompiledFileError as error:
            assert error.path == str(path) and error.what
            text, found = str(error), "refused"
        if most:
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert peak < most + 2**20, f"{peak} bytes for a file of {path.stat().st_size}"
    assert all(c.isprintable() for line in text.split("\n") for c in line), text
    return found or "shown"


def main(folder: str, first: int, last: int) -> None:
    """Tries all attacks, and so many mutants of each kind, on each file of a folder."""
    sys.addaudithook(_watch)
    kinds: collections.Counter[str] = collections.Counter()
    files = sorted(Path(folder).glob("*.sa"))
    for file in files:
        describe_file(file)  # what is imported when it is used first is imported here
        data, trial = file.read_bytes(), Path(f"{file}.{first}")
        for attack in attacks(data):
            trial.write_bytes(attack)
            kinds[f"attack {attempt(trial)}"] += 1
        for seed in range(first, last):
            trial.write_bytes(rewritten(data, seed))
            kinds[f"rewritten {attempt(trial)}"] += 1
            if seed % 4 == 0:
                trial.write_bytes(now := repeated(data, seed))
                kinds[f"repeated {attempt(trial, most=40 * len(now))}"] += 1
            now = damaged(data, seed)
            if now == data:
                continue
            trial.write_bytes(now)
            assert attempt(trial) == "refused"
            try:
                sa.load_compiled(trial, trust=True)
            except sa.CompiledFileError as error:
                kinds["damaged refused"] += 1
                assert error.path == str(trial) and error.what
            else:
                raise AssertionError("a damaged file was loaded")
        trial.unlink()
    assert not Path("pwned").exists()
    print(dict(kinds))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
