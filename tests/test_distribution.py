"""What is installed from a source distribution works, also on a machine without a C compiler."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import torch

import subclass_aot

ROOT = Path(__file__).resolve().parent.parent

BUILD = "import sys; from setuptools import build_meta; getattr(build_meta, sys.argv[1])(sys.argv[2])"

PROGRAM = """
import torch
import subclass_aot as sa
from subclass_aot import _native
from importlib.metadata import version

two = sa.TwoTensor(torch.ones(2), torch.ones(2)).requires_grad_()
sa.aot_compile(lambda x: (x * 2).sin())(two).sum().backward()
print(sa.__file__, version("subclass-aot"), type(two.grad).__name__, _native.ONE_CALL_PAYS)
"""


def run(command: list[Any], cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_source_distribution_installs_without_a_compiler(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    shutil.copytree(
        ROOT / "subclass_aot", source / "subclass_aot", ignore=shutil.ignore_patterns("*.so", "__pycache__")
    )
    for name in ("CHANGELOG.md", "LICENSE", "MANIFEST.in", "README.md", "pyproject.toml", "setup.py"):
        shutil.copy(ROOT / name, source)
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
    file, version, gradient, extension = run([python, "-W", "error", "-c", PROGRAM], tmp_path, PYTHONPATH="").split()
    assert Path(file).is_relative_to(packages)
    assert (version, gradient, extension) == (subclass_aot.__version__, "TwoTensor", "False")
