"""The command line."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from subclass_aot.__main__ import main


def test_inspect_shows_fields_layout_rules_and_source(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "subclass_aot.tensors:Int8Weight"]) == 0
    shown = capsys.readouterr().out
    for expected in ("Fields", "codes", "Flat layout", "Operators", "aten.mm.default", "def __tensor_flatten__(self):"):
        assert expected in shown


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("subclass_aot.tensors", "not of the form MODULE:CLASS"),
        (":TwoTensor", "not of the form MODULE:CLASS"),
        ("no_such.sa", "there is no file 'no_such.sa', and 'no_such.sa' is not of the form MODULE:CLASS"),
        ("tests", "'tests' is a folder, and 'tests' is not of the form MODULE:CLASS"),
        ("no_such_module:A", "cannot import the module of 'no_such_module:A'"),
        (
            "subclass_aot.tensors:NoSuch",
            "subclass_aot.tensors has no NoSuch; WrapperTensor classes there: Float8Weight",
        ),
        ("torch:Tensor", "no class that derives from WrapperTensor"),
        ("subclass_aot:aot_compile", "no class that derives from WrapperTensor"),
    ],
)
def test_inspect_says_what_is_wrong(target: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", target]) == 2
    shown = capsys.readouterr()
    assert message in shown.err and not shown.out


MAKERS = """
import torch
from subclass_aot import TwoTensor

class Copying(TwoTensor):
    pass

@Copying.implements(torch.ops.aten.t.default)
def _(x):
    return Copying(x.a.t().clone(), x.b.t().clone())

def right():
    return TwoTensor(torch.randn(4, 6), torch.randn(4, 6))

def wrong():
    return Copying(torch.randn(4, 6), torch.randn(4, 6))
"""


@pytest.mark.parametrize(
    ("function", "only", "status", "says"),
    [
        pytest.param("right", [], 0, "TwoTensor: ", marks=pytest.mark.long),
        ("right", ["--only", "12", "22"], 0, "TwoTensor: "),
        ("wrong", ["--only", "22"], 1, "broken: clause 22 (S), x.t(): a view aliases its"),
    ],
)
def test_check_says_what_is_not_kept(
    function: str,
    only: list[str],
    status: int,
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "makers_of_tensors.py").write_text(MAKERS)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert main(["check", f"makers_of_tensors:{function}", *only]) == status
    shown = capsys.readouterr().out
    assert says in shown and ("a view holds copies of inner tensors" in shown) is bool(status)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("no_such_module:make", "there is no no_such_module:make: No module named 'no_such_module'"),
        ("subclass_aot.tensors:make", "there is no subclass_aot.tensors:make: module"),
        ("subclass_aot:__all__", "is a list; a function that gives a new tensor is wanted"),
        ("torch:get_default_dtype", "dtype"),
        (
            "subclass_aot:TwoTensor",
            "is a class that needs the arguments a, b; write a function without any",
        ),
        ("tests.testing.contract.makers:foreign_two_tensor --only 99", "there is no clause 99; there are [0, "),
    ],
)
def test_check_says_what_is_wrong(target: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", *target.split()]) == 2
    shown = capsys.readouterr()
    assert message in shown.err and not shown.out


FILES = {
    "text.sa": b"hello",
    "empty.sa": b"",
    "weights.pt": b"PK\x03\x04 and so on",
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_something_else_is_told_in_one_line(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_bytes(FILES[name])
    assert main(["inspect", str(tmp_path / name)]) == 2
    shown = capsys.readouterr()
    assert f"{name}: this is no file of compiled functions" in shown.err and shown.err.count("\n") == 1
    assert not shown.out


def test_who_closes_the_output_gets_no_traceback(tmp_path: Path) -> None:
    command = [sys.executable, "-u", "-m", "subclass_aot", "inspect", "subclass_aot.tensors:TwoTensor"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 128 + signal.SIGPIPE


def test_runs_as_a_module(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "subclass_aot", "inspect", "subclass_aot.tensors:TwoTensor"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "TwoTensor" in done.stdout


@pytest.mark.parametrize(
    "words", ["bench subclass_aot:TwoTensor --json", "profile a:b --memory-viz", "profile a:b --plot", "measure --out"]
)
def test_a_folder_that_is_not_there_is_told_before_anything_is_computed(
    words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words.split(), str(tmp_path / "no" / "file")]) == 2
    assert f"{words.split()[-1]} {tmp_path}/no/file: there is no folder {tmp_path}/no" in capsys.readouterr().err
