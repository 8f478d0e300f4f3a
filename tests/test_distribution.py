"""What is installed from a source distribution works, also on a machine without a C compiler."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

import subclass_aot
from subclass_aot.native import build

ROOT = Path(__file__).resolve().parent.parent

BUILD = "import sys; from setuptools import build_meta; getattr(build_meta, sys.argv[1])(sys.argv[2])"

PROGRAM = """
import torch
import subclass_aot as sa
from subclass_aot import hooks
from importlib.metadata import version

two = sa.TwoTensor(torch.ones(2), torch.ones(2)).requires_grad_()
sa.aot_compile(lambda x: (x * 2).sin())(two).sum().backward()
print(sa.__file__, version("subclass-aot"), type(two.grad).__name__, hooks.one_call_pays)
"""


def run(command: list[Any], cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def sources(folder: Path) -> Path:
    """A copy of what distributions are made of."""
    source = folder / "source"
    source.mkdir()
    shutil.copytree(
        ROOT / "subclass_aot", source / "subclass_aot", ignore=shutil.ignore_patterns("*.so", "__pycache__")
    )
    for name in ("CHANGELOG.md", "LICENSE", "MANIFEST.in", "README.md", "pyproject.toml", "setup.py"):
        shutil.copy(ROOT / name, source)
    return source


def test_without_torch_the_wheel_is_pure_python(tmp_path: Path) -> None:
    """As in an isolated build; it has the sources, so that the extensions can be built later."""
    run(
        [sys.executable, "-c", "import sys; sys.modules['torch'] = None; " + BUILD, "build_wheel", tmp_path],
        sources(tmp_path),
    )
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    native = ROOT / "subclass_aot" / "native"
    wanted = [path for path in native.rglob("*") if path.suffix in (".c", ".cpp", ".h", ".py", ".pyi")]
    assert len(wanted) > 10 and {str(path.relative_to(ROOT)) for path in wanted} <= names
    assert not [name for name in names if name.endswith(".so")]


@pytest.mark.long
def test_with_torch_and_a_compiler_the_wheel_has_the_accelerator(tmp_path: Path) -> None:
    if build.compiler() is None:
        pytest.skip("there is no C++ compiler, and without one there is no accelerator")
    run([sys.executable, "-c", BUILD, "build_wheel", tmp_path], sources(tmp_path))
    (wheel,) = tmp_path.glob("*.whl")
    names = {Path(name).name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".so")}
    assert {build.file_name(), build.exact_file_name()} <= names


def test_a_source_distribution_installs_without_a_compiler(tmp_path: Path) -> None:
    source = sources(tmp_path)
    run([sys.executable, "-c", BUILD, "build_sdist", tmp_path], source)
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as archive:
        archive.extractall(tmp_path, filter="data")
    unpacked = next(path for path in tmp_path.iterdir() if path.name.startswith("subclass_aot-") and path.is_dir())
    run([sys.executable, "-c", BUILD, "build_wheel", tmp_path], unpacked, CC="/bin/false", CXX="/bin/false")

    run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv"], tmp_path)
    python = tmp_path / "venv" / "bin" / "python"
    packages = next((tmp_path / "venv" / "lib").glob("python*/site-packages"))
    (packages / "torch.pth").write_text(f"{Path(torch.__file__).parents[1]}\n")  # what pip would bring again
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index"]
    run([*pip, next(tmp_path.glob("*.whl"))], tmp_path)
    alone = {"PYTHONPATH": "", "XDG_CACHE_HOME": str(tmp_path), "SUBCLASS_AOT_NATIVE": "exact"}
    file, version, gradient, extension = run([python, "-W", "error", "-c", PROGRAM], tmp_path, **alone).split()
    assert Path(file).is_relative_to(packages)
    assert (version, gradient, extension) == (subclass_aot.__version__, "TwoTensor", "False")
