"""Files of which a part says something else: what is wrong in them is a `StateDictError`, whatever it is."""

from __future__ import annotations

import contextlib
import copy
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file as save_dense

import subclass_aot as sa
from subclass_aot.errors import StateDictError
from subclass_aot.files.unwrap import KEY
from tests.files.classes import everything
from tests.files.compiled.mutants import NASTY, places

OTHERS = [*NASTY, [-1, 1], [1 << 70, 1], [0, 0], [True, True], ["1"], {"size": []}, "float32", "cuda"]


def deep(depth: int, of: Any = 0) -> Any:
    for _ in range(depth):
        of = {"size": [], "dtype": "float32", "class": "x:X", "stride": [], "fields": {}, "inner": {"a": of}}
    return of


def state() -> dict[str, Any]:
    torch.manual_seed(0)
    w = torch.randn(64, 128)
    shared = torch.rand(3)
    return {
        "int8": sa.tensors.Int8Weight.from_float(w),
        "nf4": sa.tensors.NF4Weight.from_float(w),
        "tiles": sa.tensors.Int4Tiles.from_float(w),
        "lora": sa.tensors.LoraWeight.beside(sa.tensors.Int8Weight.from_float(w), 2),
        "sparse": sa.tensors.Sparse24Weight.from_float(w),
        "jagged": sa.tensors.Jagged.of(w[0], w[1, :3]),
        "all": everything(bits=4),
        "columns": sa.TwoTensor(w[:1].t(), w[:1].t()),
        "a": shared,
        "b": shared,
    }


def mutated(said: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for number, other in itertools.product(range(len(places(said, []))), OTHERS):
        found = copy.deepcopy(said)
        holder, key = places(found, [])[number]
        holder[key] = other
        yield found
    for number in range(len(places(said, []))):
        found = copy.deepcopy(said)
        holder, key = places(found, [])[number]
        del holder[key]
        yield found


def read(tensors: dict[str, torch.Tensor], said: object) -> None:
    """Reads it, or finds a `StateDictError`; what was read can be used, or its class refuses it."""
    text = said if isinstance(said, str) else json.dumps(said)
    with contextlib.suppress(StateDictError):
        sa.files.wrap_state_dict(tensors, {KEY: text})


@pytest.mark.parametrize("name", [name for name in state() if name not in "ab"])
def test_metadata(name: str) -> None:
    tensors, metadata = sa.files.unwrap_state_dict({key: state()[key] for key in (name, "a", "b")})
    for said in mutated(json.loads(metadata[KEY])):
        read(tensors, said)


@pytest.mark.parametrize(
    "text",
    [
        "{", "[]", "null", "1", "[" * 100_000, '{"version": ' + "9" * 5000 + "}", '{"version": 1e999}', "\\ud800", "",
        json.dumps({"version": 1, "tied": {}, "wrappers": {"w": deep(45)}}),
        json.dumps({"version": 1, "tied": {}, "wrappers": {"w": deep(150)}}),
    ],
    ids=lambda text: text[:20],
)  # fmt: skip
def test_texts(text: str) -> None:
    tensors = {"w" + ".a" * depth: torch.ones(1) for depth in (0, 45, 150)}
    with pytest.raises(StateDictError):
        sa.files.wrap_state_dict(tensors, {KEY: text})


@pytest.mark.parametrize("name", [name for name in state() if name not in "ab"])
def test_tensors_of_other_sizes(name: str) -> None:
    """Metadata that says what is there: the class refuses it, or it is a tensor."""
    tensors, metadata = sa.files.unwrap_state_dict({name: state()[name]})
    for key, dim in [(key, dim) for key, tensor in tensors.items() for dim in range(tensor.dim())]:
        field = tensors[key]
        for other in (field.narrow(dim, 0, 0), field.repeat_interleave(2, dim), field.unsqueeze(0)):
            said = json.loads(metadata[KEY])
            entry = said["wrappers"][name]
            for part in key.removeprefix(name + ".").split("."):
                entry = entry["inner"][part]
            entry["size"] = list(other.shape)
            entry.pop("stride", None)
            read({**tensors, key: other.contiguous()}, said)
            with contextlib.suppress(StateDictError):
                sa.files.wrap_state_dict({**tensors, key: other.contiguous()}, {}, like=state())


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    sa.files.save_file(state(), path)
    data = path.read_bytes()
    assert sa.files.load_file(path).keys() == state().keys()
    size = int.from_bytes(data[:8], "little")
    for at in [*range(0, 200, 3), *range(8, size, 97), size + 8, len(data) - 1]:
        for changed in (data[:at], data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :], data[:at] + b"[" + data[at:]):
            path.write_bytes(changed)
            with contextlib.suppress(StateDictError):
                sa.files.load_file(path)
    with pytest.raises(FileNotFoundError):
        sa.files.load_file(tmp_path / "none")
    save_dense({"w": torch.ones(1)}, path, {KEY: "{"})
    with pytest.raises(StateDictError, match="cannot be read"):
        sa.files.load_file(path)
