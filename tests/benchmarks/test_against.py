"""Two commits beside one another: of a tiny repository, and with times that are made up."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks import against
from subclass_aot import _native
from subclass_aot.testing.benchmark import Ratio

FAKE = """
import json, sys
from pathlib import Path
out = Path(sys.argv[sys.argv.index("--out") + 1])
names = [sys.argv[i + 1] for i, word in enumerate(sys.argv) if word == "--only"]
rows = [{{"subject": name, "case": "a case", "ours_us": {us}}} for name in names]
(out / "results.json").write_text(json.dumps({{"rows": rows}}))
"""


def _git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=nobody", "-c", "user.email=nobody@example.org"]
    return subprocess.run(["git", "-C", str(folder), *who, *words], check=True, capture_output=True, text=True).stdout


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two commits; the second takes half as long."""
    folder = tmp_path / "repository"
    (folder / "benchmarks").mkdir(parents=True)
    native = folder / "subclass_aot" / "native"
    native.mkdir(parents=True)
    (folder / "subclass_aot" / "__init__.py").touch()
    (native / "__init__.py").write_text("def show_config():\n    return 'recipes: making wrappers: in C++'\n")
    _git(folder, "init", "-q")
    for us in (8.0, 4.0):
        (folder / "benchmarks" / "__main__.py").write_text(FAKE.format(us=us))
        _git(folder, "add", ".")
        _git(folder, "commit", "-qm", f"takes {us}")
    return folder


def test_a_commit_is_measured_in_a_worktree_that_goes_away(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(against, "ROOT", repository)
    assert against.main(["HEAD~1", "--subjects", "call,leaves", "--rounds", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines[1:]] == [
        [name, "a", "case", "4", "8", "2.00", "2.00", "to", "2.00"] for name in ("call", "leaves")
    ]
    assert len(_git(repository, "worktree", "list").splitlines()) == 1


def test_commits_that_run_other_parts_in_cpp_are_told_apart(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(against, "ROOT", repository)
    native = repository / "subclass_aot" / "native" / "__init__.py"
    native.write_text(native.read_text().replace("C++", "Python"))
    assert against.main(["HEAD", "--rounds", "1"]) == 0
    said = capsys.readouterr().out
    assert "The commits do not run the same parts in C++" in said
    assert "Base:\nrecipes: making wrappers: in C++\n\nHere:\nrecipes: making wrappers: in Python\n" in said


def test_this_library_says_what_runs_in_cpp() -> None:
    said = _native.show_config()
    parts = against.parts_in(against.ROOT)
    assert len(parts) > 3 and all(line in said for line in parts)


def test_a_tree_must_have_its_own_library(repository: Path) -> None:
    (repository / "subclass_aot" / "__init__.py").write_text("__file__ = '/elsewhere/subclass_aot/__init__.py'")
    with pytest.raises(RuntimeError, match="imports the library of /elsewhere"):
        against.parts_in(repository)


def test_processes_take_turns_and_ratios_are_those_of_the_rounds() -> None:
    base, here = Path("base"), Path("here")
    order: list[str] = []
    times = {"base": iter([4.0, 6.0, 9.0]), "here": iter([2.0, 2.0, 9.0])}

    def measure(folder: Path, subjects: Sequence[str]) -> against.Times:
        order.append(folder.name)
        return {("call", "x"): next(times[folder.name]), (folder.name, "only there"): 1.0}

    (change,), alone = against.compare_commits(base, here, ["call"], 3, measure)
    assert order == ["base", "here", "here", "base", "base", "here"]
    assert change == against.Change(("call", "x"), 2.0, 6.0, Ratio(2.0, 1.0, 3.0))
    assert alone == [("base", "only there"), ("here", "only there")]
    assert "Only in one of the commits" in against.on_screen([change], alone)


def test_nothing_in_common_is_an_error() -> None:
    with pytest.raises(ValueError, match="no row of call is in both commits"):
        against.compare_commits(Path("a"), Path("b"), ["call"], 1, lambda folder, _: {(folder.name, ""): 1.0})


def test_a_commit_that_is_not_there(
    repository: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(against, "ROOT", repository)
    assert against.main(["no-such-commit"]) == 1
    assert "there is no commit no-such-commit" in capsys.readouterr().err


def test_a_benchmark_that_fails_says_where(repository: Path) -> None:
    (repository / "benchmarks" / "__main__.py").write_text("raise SystemExit('broken here')")
    with pytest.raises(RuntimeError, match="broken here"):
        against.run_in(repository, ["call"])
    assert len(_git(repository, "worktree", "list").splitlines()) == 1


@pytest.mark.parametrize("source", ["the same", "another"])
def test_the_extension_serves_a_commit_of_the_same_source(source: str, tmp_path: Path) -> None:
    here, there = (tmp_path / name / "subclass_aot" / "native" for name in ("here", "there"))
    for folder, text in ((here, "the same"), (there, source)):
        folder.mkdir(parents=True)
        (folder / "exact.c").write_text(text)
    (here / "_exact.so").write_text("built")
    against._link_extensions(tmp_path / "here", tmp_path / "there")
    assert (there / "_exact.so").exists() is (source == "the same")
