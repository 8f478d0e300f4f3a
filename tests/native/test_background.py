"""What is built without being asked for: where, once, without holding anything up, and what is remembered of it."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from subclass_aot.native import accelerated, background, build, cache

NATIVE = Path(background.__file__).parent

VARIABLES = tuple(name for name in background._AUTOMATIC if name != "PYTEST_CURRENT_TEST")  # which comes after fixtures

COMPILER = """#!/bin/sh
echo run >> {folder}/runs
nice >> {folder}/priority
for last; do :; done
while test -e {folder}/wait; do sleep 0.02; done
test -e {folder}/fails && echo no such header >&2 && exit 1
echo made > "$last"
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine on which nothing speaks against a build: an empty cache, and a compiler that takes no time."""
    for name in (*VARIABLES, "SUBCLASS_AOT_NATIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delitem(sys.modules, "pytest")
    monkeypatch.setattr(background, "_AUTOMATIC", VARIABLES)
    compiler = tmp_path / "compiler"
    compiler.write_text(COMPILER.format(folder=tmp_path))
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    # The process that builds imports nothing of torch but what its name depends on.
    program = (
        "import os, sys, types; os.nice(19); sys.path[:] = {path!r}\n"
        f"package = types.ModuleType('subclass_aot'); package.__path__ = [{str(NATIVE.parent)!r}]\n"
        f"native = types.ModuleType('subclass_aot.native'); native.__path__ = [{str(NATIVE)!r}]\n"
        "torch = types.ModuleType('torch'); torch.version = types.SimpleNamespace(git_version='x')\n"
        "torch.__version__, torch.__file__, torch.compiled_with_cxx11_abi = '2', '/torch/__init__.py', lambda: 1\n"
        "sys.modules |= {{'torch': torch, 'subclass_aot': package, 'subclass_aot.native': native}}\n"
        "from subclass_aot.native import build, background\n"
        f"build.file_name = lambda: {build.file_name()!r}\n"
        "background.build_all()\n"
    )
    monkeypatch.setattr(background, "_PROGRAM", program)
    return tmp_path


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < deadline, "it does not end"
        time.sleep(0.01)


def ended() -> bool:
    """Whether no build runs: its lock is free."""
    with background._lock(cache.folder() / ".background") as lock:
        return lock is not None


def children() -> str:
    return subprocess.run(["ps", "--ppid", str(os.getpid()), "-o", "comm="], capture_output=True, text=True).stdout


def test_it_is_built_once_and_nothing_waits(place: Path, caplog: pytest.LogCaptureFixture) -> None:
    (place / "wait").touch()
    with caplog.at_level(logging.WARNING):
        start = time.monotonic()
        assert background.begin()
        assert time.monotonic() - start < 1
    assert "SUBCLASS_AOT_NATIVE=0 turns it off" in caplog.messages[0] and str(background.log_file()) in caplog.text
    assert not background.begin() and not background.begin()  # while it runs
    assert "compiler" not in children() and "sh" not in children().split()
    until((place / "runs").exists)
    (place / "wait").unlink()
    until(ended)
    file = cache.find(build.file_name())
    assert file is not None and file.read_text() == "made\n"
    assert "built by now" in background.why_not() and not background.begin()
    assert (place / "runs").read_text() == "run\n" * 2 and set((place / "priority").read_text().split()) == {"19"}
    assert f"built {file}" in background.log_file().read_text() and len(caplog.messages) == 1
    assert str(background.log_file()) in accelerated.show_config() or accelerated.find()[0] is not None


def test_what_failed_is_not_tried_again(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "fails").touch()
    assert background.begin()
    until(ended)
    assert "no such header" in background.log_file().read_text()
    assert background.why_not() == f"it failed: {background.log_file()}" and not background.begin()
    other = place / "other"
    other.write_text((place / "compiler").read_text())
    monkeypatch.setenv("CXX", str(other))
    assert not background.why_not()  # another compiler may do


def test_what_is_killed_is_tried_three_times(place: Path) -> None:
    log = background.log_file()
    log.parent.mkdir(parents=True)
    line = f"{background._BEGUN} {build.compiler()}\n"
    log.write_text(line * 2)
    assert not background.why_not()
    log.write_text(line * 3)
    assert "it failed" in background.why_not()


@pytest.mark.parametrize("name", [*VARIABLES, "SUBCLASS_AOT_NATIVE"])
def test_the_environment_says_no(name: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not background.why_not()
    monkeypatch.setenv(name, "1")
    assert name in background.why_not() and not background.begin()
    assert not cache.folder().exists()


def test_where_nothing_can_be_built(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as here:
        here.setitem(sys.modules, "pytest", pytest)
        assert "pytest" in background.why_not()
    with monkeypatch.context() as here:
        here.setattr(build, "compiler", lambda: None)
        assert background.why_not() == "there is no C++ compiler"
    with monkeypatch.context() as here:
        here.setattr(background.torch, "__file__", str(place / "torch.py"))
        assert "include/ATen" in background.why_not()
    with monkeypatch.context() as here:
        here.setattr(os, "access", lambda path, mode: False)
        assert background.why_not() == f"{place} cannot be written" and not background.begin()
    with monkeypatch.context() as here:
        here.setenv("XDG_CACHE_HOME", str(place / "compiler"))  # which is no folder
        assert not background.begin()
    cache.made_folder().chmod(0o777)
    assert not background.begin() and not (cache.folder() / ".background").exists()
