"""Writing and reading files: what is refused, by name and place."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import subclass_aot as sa
from subclass_aot.files.compiled import file as files
from subclass_aot.files.compiled.container import pack, unpack
from tests.files.compiled.programs import PROGRAMS, Gray

ROOT = Path(__file__).resolve().parents[3]


def written(path: Path, name: str = "int8 weight", **options: Any) -> tuple[Any, ...]:
    """Writes a file, and gives the arguments that it is for."""
    fn, make, kwargs = PROGRAMS[name]
    torch.manual_seed(0)
    args = make()
    compiled = sa.aot_compile(fn, **options)
    compiled(*args, **kwargs)
    compiled.save(path)
    return args


def changed(path: Path, change: Callable[[Any], None]) -> None:
    """Rewrites the text of a file, with a right checksum."""
    document, blobs = unpack(path.read_bytes())
    change(document)
    path.write_bytes(pack(document, blobs))


@pytest.mark.parametrize("name", ["torch", "library", "python"])
def test_other_versions_are_refused(name: str, tmp_path: Path) -> None:
    written(tmp_path / "x.sa")
    changed(tmp_path / "x.sa", lambda document: document.update({name: "1.0"}))
    with pytest.raises(sa.CompiledFileError, match=f"written with {name} 1.0, and here is .*Write it again"):
        sa.load_compiled(tmp_path / "x.sa", trust=True)


def test_another_function_is_refused(tmp_path: Path) -> None:
    written(tmp_path / "x.sa")
    with pytest.raises(sa.CompiledFileError, match="is another function than the one that was compiled"):
        sa.load_compiled(tmp_path / "x.sa", lambda weight, x: weight, trust=True)


def test_other_code_of_a_class_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path / "x.sa", "own class")
    monkeypatch.setattr(Gray, "to_plain", lambda self: self.codes)
    with pytest.raises(sa.CompiledFileError, match="programs:Gray has other code than when the file was written"):
        sa.load_compiled(tmp_path / "x.sa", trust=True)


def test_an_error_says_where(tmp_path: Path) -> None:
    args = written(tmp_path / "x.sa")

    def change(document: Any) -> None:
        nodes = document["specializations"][0]["forward"][2]
        next(node for node in nodes if node[0] == "call_function")[2] = "aten.__class__"

    changed(tmp_path / "x.sa", change)
    with pytest.raises(sa.CompiledFileError) as caught:
        sa.load_compiled(tmp_path / "x.sa", trust=True)(*args)
    assert caught.value.path == str(tmp_path / "x.sa")
    assert caught.value.where.startswith("specialization 1, forward graph, node ")
    assert caught.value.what == "'aten.__class__' is no operator that is known here"


@pytest.mark.parametrize("part", ["specs", "options", "specializations", "classes", "torch"])
def test_a_file_with_a_part_missing_is_refused(part: str, tmp_path: Path) -> None:
    written(tmp_path / "x.sa")
    changed(tmp_path / "x.sa", lambda document: document.pop(part))
    with pytest.raises(sa.CompiledFileError, match=files.NO_PART):
        sa.load_compiled(tmp_path / "x.sa", trust=True)


def test_nothing_is_written_of_nothing(tmp_path: Path) -> None:
    with pytest.raises(sa.CompiledFileError, match="nothing was compiled yet"):
        sa.aot_compile(torch.sin).save(tmp_path / "x.sa")
    assert not (tmp_path / "x.sa").exists()


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"double_backward": True}, "double_backward=True needs the trace"),
        ({"fw_compiler": lambda graph, inputs: graph.forward}, "fw_compiler: .*defined inside a function"),
        ({"decompositions": {torch.ops.aten.t.default: torch.t}}, "decompositions are functions"),
    ],
)
def test_what_cannot_be_written_is_refused(options: dict[str, Any], what: str, tmp_path: Path) -> None:
    with pytest.raises(sa.CompiledFileError, match=what):
        written(tmp_path / "x.sa", "dense, training", **options)
    assert not (tmp_path / "x.sa").exists()


def test_an_object_without_a_name_is_refused(tmp_path: Path) -> None:
    compiled = sa.aot_compile(lambda x: (x, lambda: 1))
    compiled(torch.ones(2))
    with pytest.raises(sa.CompiledFileError, match="signature.outcome.result.*is defined inside a function"):
        compiled.save(tmp_path / "x.sa")


def by_name(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
    """A compiler that a file can name."""
    return graph.forward


def test_compilers_are_named(tmp_path: Path) -> None:
    args = written(tmp_path / "x.sa", fw_compiler=by_name)
    expected = PROGRAMS["int8 weight"][0](*args)
    assert sa.load_compiled(tmp_path / "x.sa", trust=True)(*args).equal(expected)
    assert sa.load_compiled(tmp_path / "x.sa", trust=True, fw_compiler="eager")(*args).equal(expected)


def _mutants(folder: Path, count: int) -> dict[str, int]:
    """Counts what happens to attacks on files, and to mutants of them."""
    written(folder / "x.sa")
    written(folder / "views.sa", "views, training")
    written(folder / "objects.sa", "objects")
    written(folder / "sized.sa", "dense, training", dynamic=True)
    command = [sys.executable, "-W", "ignore", "-m", "tests.files.compiled.mutants", str(folder), "0", str(count)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1800)
    assert ran.returncode == 0, ran.stderr
    found: dict[str, int] = ast.literal_eval(ran.stdout)
    return found


def test_a_file_that_is_not_trusted_is_data(tmp_path: Path) -> None:
    """Nothing is imported, run or opened, whatever is in it; and what is damaged is refused."""
    found = _mutants(tmp_path, 60)
    assert found["rewritten shown"] > found["rewritten refused"] > 0
    assert found["repeated shown"] == 60 and found["attack shown"] > 0 and found["damaged refused"] > 200


@pytest.mark.long
def test_many_files_that_are_not_trusted(tmp_path: Path) -> None:
    assert sum(_mutants(tmp_path, 2_000).values()) > 15_000


@pytest.mark.parametrize("given", [{}, {"trust": False}, {"trust": 1}, {"fw_compiler": "eager"}])
def test_files_are_loaded_by_those_who_trust_them(given: dict[str, Any], tmp_path: Path) -> None:
    written(tmp_path / "x.sa")
    with pytest.raises(sa.CompiledFileError, match="is a program: .*\n  Instead: sa.load_compiled.path, trust=True."):
        sa.load_compiled(tmp_path / "x.sa", **given)
