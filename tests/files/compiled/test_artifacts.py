"""What inductor has made of graphs is in a file, and spares another process to compile the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, fx

import subclass_aot as sa
from subclass_aot.base import _torch
from subclass_aot.engine.compilers import BACKENDS, Artifacts, Backend
from subclass_aot.engine.options import Options
from subclass_aot.files.compiled import read_file
from subclass_aot.testing.inspection import describe_file

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("sizes", ["static", pytest.param("dynamic", marks=pytest.mark.long)])
def test_another_process_compiles_nothing(sizes: str, tmp_path: Path) -> None:
    """Each has a cache of its own. Inductor does not ask which vector instructions there are: that builds, too."""
    printed = []
    for what in ("save", "load"):
        command = [sys.executable, "-m", "tests.files.compiled.with_inductor", what, str(tmp_path), sizes]
        switches = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / what), "TORCHINDUCTOR_VEC_ISA_OK": "0"}
        ran = subprocess.run(command, cwd=ROOT, env=os.environ | switches, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr
        printed.append(ran.stdout)
    assert printed == ["3 compiled\n", "equal\n0 compiled, 3 found, 0 libraries built\n"]


class _Recorder:
    """A compiler that counts, and keeps texts as artifacts."""

    def __init__(self) -> None:
        self.compiled = 0
        self.loaded: list[dict[str, bytes]] = []
        self.backend = Backend(
            self.compile, artifacts=Artifacts(self.record, lambda made: self.loaded.append({**made}))
        )

    def compile(self, graph: fx.GraphModule, inputs: list[Any], is_backward: bool) -> Any:
        self.compiled += 1
        return lambda given: graph(*given)

    def record(self, compile: Any) -> dict[str, bytes]:
        before = self.compiled
        compile()
        return {"graphs": str(self.compiled - before).encode(), "other": b"\0" * 3}


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> _Recorder:
    made = _Recorder()
    monkeypatch.setitem(BACKENDS, "recorder", made.backend)
    return made


def squares(x: Tensor) -> Tensor:
    return (x * x).sum()


def _write(path: Path, **options: Any) -> None:
    compiled = sa.aot_compile(squares, **options)
    compiled(torch.ones(3, requires_grad=True))
    compiled(torch.ones(3))
    compiled.save(path)


def test_artifacts_are_loaded(tmp_path: Path, recorder: _Recorder) -> None:
    _write(tmp_path / "f.sa", fw_compiler="recorder")
    sa.load_compiled(tmp_path / "f.sa", squares, trust=True)(torch.ones(3))
    assert recorder.loaded == [{"graphs": b"3", "other": b"\0" * 3}]


def test_only_graphs_of_the_compiler_are_recorded(tmp_path: Path, recorder: _Recorder) -> None:
    _write(tmp_path / "f.sa", bw_compiler="recorder")
    assert read_file(tmp_path / "f.sa").artifacts == {"recorder": {"graphs": b"1", "other": b"\0" * 3}}


def test_artifacts_of_another_compiler_are_left_alone(tmp_path: Path, recorder: _Recorder) -> None:
    _write(tmp_path / "f.sa", fw_compiler="recorder")
    sa.load_compiled(tmp_path / "f.sa", squares, fw_compiler="eager", trust=True)(torch.ones(3))
    assert recorder.loaded == []


def test_eager_has_none(tmp_path: Path) -> None:
    _write(tmp_path / "f.sa")
    assert read_file(tmp_path / "f.sa").artifacts == {}


def test_they_are_named(tmp_path: Path, recorder: _Recorder) -> None:
    _write(tmp_path / "f.sa", fw_compiler="recorder")
    said = describe_file(tmp_path / "f.sa")
    assert "compiled by recorder\n  graphs: 1 bytes\n  other: 3 bytes\n" in said


def test_artifacts_that_inductor_cannot_read_are_refused(tmp_path: Path, recorder: _Recorder) -> None:
    with pytest.raises(RuntimeError, match="cannot read"):
        _torch.inductor.load_artifacts({"artifacts": b"nothing of the kind"})

    def cannot(made: object) -> None:
        raise RuntimeError("not mine")

    _write(tmp_path / "f.sa", fw_compiler="recorder")
    BACKENDS["recorder"] = Backend(recorder.compile, artifacts=Artifacts(recorder.record, cannot))
    with pytest.raises(sa.CompiledFileError, match="artifacts: recorder cannot read what it has compiled: not mine"):
        sa.load_compiled(tmp_path / "f.sa", squares, trust=True)


def test_which_compilers_have_artifacts() -> None:
    assert list(Options(fw_compiler="inductor").artifacts) == ["inductor"]
    assert list(Options(bw_compiler="inductor").artifacts) == ["inductor"]
    assert not Options().artifacts
