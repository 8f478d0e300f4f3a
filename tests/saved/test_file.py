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
from subclass_aot.saved import file as files
from subclass_aot.saved.container import pack, unpack
from tests.saved.programs import PROGRAMS, Gray

ROOT = Path(__file__).resolve().parents[2]


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
        sa.load(tmp_path / "x.sa")


def test_another_function_is_refused(tmp_path: Path) -> None:
    written(tmp_path / "x.sa")
    with pytest.raises(sa.CompiledFileError, match="is another function than the one that was compiled"):
        sa.load(tmp_path / "x.sa", lambda weight, x: weight)


def test_other_code_of_a_class_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path / "x.sa", "own class")
    monkeypatch.setattr(Gray, "to_plain", lambda self: self.codes)
    with pytest.raises(sa.CompiledFileError, match="programs:Gray has other code than when the file was written"):
        sa.load(tmp_path / "x.sa")


def test_an_error_says_where(tmp_path: Path) -> None:
    args = written(tmp_path / "x.sa")

    def change(document: Any) -> None:
        nodes = document["specializations"][0]["forward"][2]
        next(node for node in nodes if node[0] == "call_function")[2] = "aten.__class__"

    changed(tmp_path / "x.sa", change)
    with pytest.raises(sa.CompiledFileError) as caught:
        sa.load(tmp_path / "x.sa", trust=False)(*args)
    assert caught.value.path == str(tmp_path / "x.sa")
    assert caught.value.where.startswith("specialization 1, forward graph, node ")
    assert caught.value.what == "'aten.__class__' is no operator that is known here"


def test_graphs_are_compared_with_what_their_operators_give(tmp_path: Path) -> None:
    args = written(tmp_path / "x.sa")

    def change(document: Any) -> None:
        for node in document["specializations"][0]["forward"][2]:
            if node[2] == "aten.mul.Tensor":
                node[2] = "aten.eq.Tensor"

    changed(tmp_path / "x.sa", change)
    with pytest.raises(sa.CompiledFileError, match="aten.eq.Tensor is written down as .*, and the operator gives"):
        sa.load(tmp_path / "x.sa", trust=False)(*args)


@pytest.mark.parametrize("trust", [True, False])
def test_numbers_of_views_are_numbers(trust: bool, tmp_path: Path) -> None:
    """They stand in generated code."""

    def change(value: Any) -> None:
        if isinstance(value, list) and value[:1] == ["ViewOfInput"]:
            value[3] = ["tuple", "open('pwned', 'w')"]
        for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            change(part)

    args = written(tmp_path / "x.sa", "views")
    changed(tmp_path / "x.sa", change)
    with pytest.raises(sa.CompiledFileError, match="signature.*ViewOfInput.symints: .*pwned.* stands where there is"):
        sa.load(tmp_path / "x.sa", trust=trust)(*args)


@pytest.mark.parametrize("part", ["specs", "options", "specializations", "classes", "torch"])
def test_a_file_with_a_part_missing_is_refused(part: str, tmp_path: Path) -> None:
    written(tmp_path / "x.sa")
    changed(tmp_path / "x.sa", lambda document: document.pop(part))
    with pytest.raises(sa.CompiledFileError, match=files.NO_PART):
        sa.load(tmp_path / "x.sa")


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
    assert sa.load(tmp_path / "x.sa")(*args).equal(expected)
    with pytest.raises(sa.CompiledFileError, match="compiled by .*by_name, and with trust=False no function is taken"):
        sa.load(tmp_path / "x.sa", trust=False)
    assert sa.load(tmp_path / "x.sa", trust=False, fw_compiler="eager")(*args).equal(expected)


def _child(*lines: str) -> list[str]:
    """What a process of its own prints that runs these lines."""
    program = "\n".join(["from tests.saved import damage, tamper", *lines])
    command = [sys.executable, "-W", "ignore", "-c", program]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1800)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


def _safe(tmp_path: Path, damaged: int, rewritten: int) -> None:
    written(tmp_path / "x.sa")
    lines = [f"damage.main({str(tmp_path / 'x.sa')!r}, 0, {damaged})"]
    for i, name in enumerate(("views, training", "objects")):
        written(tmp_path / f"{i}.sa", name)
        lines.append(f"tamper.main({str(tmp_path / f'{i}.sa')!r}, {name!r}, 0, {rewritten})")
    written(tmp_path / "sized.sa", "dense, training", dynamic=True)
    lines.append(f"tamper.main({str(tmp_path / 'sized.sa')!r}, 'dense, training', 0, {3 * rewritten})")
    lines.append(f"tamper.main({str(tmp_path / 'sized.sa')!r}, 'dense, training', 0, {rewritten}, 'symbols')")
    written(tmp_path / "numbers.sa", "int8 weight", dynamic=True)
    lines.append(f"tamper.main({str(tmp_path / 'numbers.sa')!r}, 'int8 weight', 0, {rewritten})")
    lines.insert(1, f"damage.main({str(tmp_path / 'numbers.sa')!r}, 0, {damaged})")
    first, second, *rest = _child(*lines)
    assert first == second == f"{damaged} refused of {damaged}"
    for line in rest:
        found: dict[str, int] = ast.literal_eval(line)
        assert found.keys() <= {"refused", "ran"} and found["refused"] > rewritten // 2


def test_a_file_runs_no_code_of_its_own(tmp_path: Path) -> None:
    """Bits, pieces and ends of whole files are refused; a rewritten text is, or it is a program of operators."""
    _safe(tmp_path, 300, 60)


@pytest.mark.long
def test_a_file_runs_no_code_of_its_own_in_many_tries(tmp_path: Path) -> None:
    _safe(tmp_path, 10_000, 4_000)
