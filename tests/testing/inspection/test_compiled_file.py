"""A file of compiled functions as text."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest
import torch

import subclass_aot as sa
from subclass_aot.__main__ import main
from subclass_aot.files.compiled.container import pack, unpack
from subclass_aot.testing.inspection import describe_file
from tests.files.compiled.programs import PROGRAMS


def written(path: Path, name: str) -> Path:
    fn, make, kwargs = PROGRAMS[name]
    compiled = sa.aot_compile(fn)
    compiled(*make(), **kwargs)
    compiled.save(path)
    return path


def test_a_file_is_described(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(written(tmp_path / "x.sa", "int8 weight"))]) == 0
    shown = capsys.readouterr().out
    for expected in (
        "tests.files.compiled.programs:product, compiled: 1 signature,",
        f"torch {torch.__version__}", "fw_compiler = 'eager'",
        "subclass_aot.tensors.int8_weight:Int8Weight, source ", "args[1]: Tensor float32[2, 4] on cpu requires_grad",
        "forward graph: ", "int8[4, 4]  # Inner(PlainInput(args[0], 0), codes)", "aten.mm.default(", "return ",
    ):  # fmt: skip
        assert expected in shown


def test_symbols_are_described(tmp_path: Path) -> None:
    def halves(x: torch.Tensor) -> torch.Tensor:
        return x.view(2, x.shape[0] // 2) * x.shape[0] if x.shape[0] % 2 == 0 else x

    compiled = sa.aot_compile(halves, dynamic=True)
    compiled(torch.rand(4))
    compiled.save(tmp_path / "x.sa")
    text = describe_file(tmp_path / "x.sa")
    assert "s0 is args[0].size(0), 4 when it was compiled, at least " in text
    assert "assumed: Equality(Mod(s0, 2), 0)" in text
    assert ": s0 = aten.sym_size.int(" in text and "float32[2, FloorDiv(s0, 2)] = aten.mul.Tensor(" in text


def test_a_damaged_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path / "x.sa", "dense")
    path.write_bytes(path.read_bytes()[:-1])
    assert main(["inspect", str(path)]) == 2
    assert "the file is damaged" in capsys.readouterr().err


def test_what_many_refer_to_is_written_once(tmp_path: Path) -> None:
    """A long name that is given thousands of times, or a long spec, took the memory of their product."""
    path = written(tmp_path / "x.sa", "dense")
    document, blobs = unpack(path.read_bytes())
    nodes = document["specializations"][0]["forward"][2]
    nodes[0][1] = "n" * 200_000
    nodes[-1][3] = [{"NodeAt": [0]}] * 2_000
    document["specs"][0][0] = [*range(50_000)]
    nodes[-1:-1] = [[*nodes[0][:1], "short", *nodes[0][2:5], {"spec": 0}] for _ in range(2_000)]
    path.write_bytes(pack(document, blobs))
    tracemalloc.start()
    text = describe_file(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 * path.stat().st_size and len(text) < path.stat().st_size
    assert "float32[0, 1, 2, " in text and f"({'n' * 121}" not in text
