"""Building the accelerator: for one torch, once, and with an error that says what is missing."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from subclass_aot.native import build


def test_the_name_says_what_it_is_for(monkeypatch: pytest.MonkeyPatch) -> None:
    name = build.file_name()
    assert f"torch-{torch.__version__}-" in name and name.endswith(".so")
    monkeypatch.setattr(torch.version, "git_version", "another")
    assert build.file_name() != name


def test_the_name_depends_on_the_sources(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for source in build.SOURCES.iterdir():
        (tmp_path / source.name).write_bytes(source.read_bytes())
    name = build.file_name()
    monkeypatch.setattr(build, "SOURCES", tmp_path)
    assert build.file_name() == name
    with open(tmp_path / "common.h", "a") as changed:
        changed.write("// another line\n")
    assert build.file_name() != name


def test_what_is_there_is_not_built_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / build.file_name()
    file.write_text("built")
    monkeypatch.setenv("CXX", "/bin/false")
    with pytest.raises(RuntimeError, match="/bin/false failed"):
        build.build(tmp_path)
    build.digest_file(file).write_text(hashlib.sha256(b"built").hexdigest())
    assert build.build(tmp_path).read_text() == "built"


def test_a_compiler_that_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    failing = tmp_path / "compiler"
    failing.write_text(f"#!{sys.executable}\nraise SystemExit('no such header')\n")
    failing.chmod(0o755)
    monkeypatch.setenv("CXX", str(failing))
    with pytest.raises(RuntimeError, match="no such header"):
        build.build(tmp_path / "cache")
    assert not list((tmp_path / "cache").glob("_accelerator*"))


def test_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RuntimeError, match=r"install g\+\+ or clang"):
        build.build(tmp_path / "cache")


def test_the_command_says_why_it_failed(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "subclass_aot", "build-native"]
    environment = {"PATH": str(tmp_path), "HOME": str(tmp_path), "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment | {"SUBCLASS_AOT_NATIVE": "0"})
    assert done.returncode == 1 and "all works without it: there is no C++ compiler" in done.stderr


def test_the_extension_in_c_works_out_of_the_cache(tmp_path: Path) -> None:
    """Where installation has built nothing, as from a wheel of pure Python."""
    if build.compiler() is None:
        pytest.skip("there is no C++ compiler to build it with")
    program = (
        "import sys\n"
        "from importlib.machinery import PathFinder\n"
        "find = PathFinder.find_spec\n"
        "hidden = 'subclass_aot.native._exact'\n"
        "PathFinder.find_spec = lambda name, *args: None if name == hidden else find(name, *args)\n"
        "from subclass_aot import native\nfrom subclass_aot.base import hooks\n"
        "if len(sys.argv) > 1: native.build_exact()\n"
        "print(hooks.one_call_pays, hooks.exactly([1], (int,)))\n"
    )
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "SUBCLASS_AOT_NATIVE": "exact"}
    found = [
        subprocess.run([sys.executable, "-c", program, *more], capture_output=True, text=True, env=environment).stdout
        for more in ([], ["build"], [])
    ]
    assert found == ["False [1]\n", "False [1]\n", "True [1]\n"]
