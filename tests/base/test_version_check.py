"""Which torch is refused, which is warned of, and that an import says so first."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch

from subclass_aot.base import _version_check
from subclass_aot.errors import SubclassAotError, UnsupportedTorchError

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("version", ["2.11.0", "2.12.1", "2.13.0", "2.13.0+cpu", "2.14.0a0+git123", "2.15.0+cu132"])
def test_supported_torch_passes(version: str) -> None:
    _version_check.check_torch(version)


@pytest.mark.parametrize("version", ["2.10.2", "2.9.0", "2.10.0a0", "1.13.0", "unknown"])
def test_too_old_a_torch_is_refused(version: str) -> None:
    with pytest.raises(UnsupportedTorchError) as caught:
        _version_check.check_torch(version)
    assert f"supports torch >=2.11, and torch {version} is installed" in str(caught.value)
    assert 'pip install "torch>=2.11"' in str(caught.value)
    assert isinstance(caught.value, (SubclassAotError, ImportError))


@pytest.mark.parametrize("version", ["2.16.0", "2.16.0a0", "2.100.0", "3.0.0+cpu"])
def test_too_new_a_torch_is_warned_of(version: str) -> None:
    with pytest.warns(UserWarning, match=f"torch 2.11 to 2.15, and torch {re.escape(version)} is installed"):
        _version_check.check_torch(version)


def test_import_checks_torch_first() -> None:
    """An unsupported torch is the first thing that an import reports."""
    program = "import torch; torch.__version__ = '2.9.0'; import subclass_aot"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 1
    assert "UnsupportedTorchError: subclass_aot supports torch >=2.11" in done.stderr
    assert torch.__version__ != "2.9.0"


def test_import_warns_once_of_a_newer_torch_and_runs() -> None:
    """The warning names the line that imports the library, not one inside it."""
    program = (
        "import torch; torch.__version__ = '2.99.0'\n"
        "import subclass_aot\n"
        "import subclass_aot.testing\n"
        "print(subclass_aot.aot_compile(torch.sin)(torch.zeros(1)))\n"
    )
    command = [sys.executable, "-W", "always", "-c", program]
    environment = {**os.environ, "SUBCLASS_AOT_NATIVE": "exact"}  # of that torch there is no accelerator
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "tensor([0.])\n"
    assert done.stderr.count("torch 2.99.0 is installed") == 1
    assert "<string>:2: UserWarning: subclass_aot is tested with torch" in done.stderr


def test_torch_range_is_stated_once() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    major, minor = _version_check.LOWEST
    assert [name for name in project["dependencies"] if name.startswith("torch")] == [f"torch>={major}.{minor}"]
    listed = re.search(r"^TORCHES\s*\?= (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert listed
    minors = range(minor, _version_check.NEWEST[1] + 1)
    assert [version.rpartition(".")[0] for version in listed[1].split()] == [f"{major}.{n}" for n in minors]
