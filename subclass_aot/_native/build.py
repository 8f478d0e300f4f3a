"""Building the two extensions with the C++ compiler that is at hand, for the torch that is installed.

There is no stable interface to what the accelerator uses of torch, so what is built serves exactly one version. The
name of the file says which, and of which sources it was made: another one is not even looked at.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

SOURCES = Path(__file__).parent / "accelerator"
EXACT = Path(__file__).parent / "exact.c"

_FLAGS = ("-O2", "-g0", "-std=c++20", "-fPIC", "-shared", "-fvisibility=hidden", "-w")
_LIBRARIES = ("c10", "torch_cpu", "torch", "torch_python")
_INCLUDE = sysconfig.get_path("include")
_UNDEFINED = ("-undefined", "dynamic_lookup") if sys.platform == "darwin" else ()
"""What lets Python's own functions be found when the extension is loaded, where the linker wants to be told."""


def file_name() -> str:
    """What the built accelerator is called: by the versions of torch and Python, and by what it is made of."""
    made_of = hashlib.sha256(repr((_FLAGS, torch.version.git_version)).encode())
    for source in sorted(SOURCES.iterdir()):
        if source.suffix in (".cpp", ".h"):
            made_of.update(source.name.encode() + source.read_bytes())
    return f"_accelerator-torch-{torch.__version__}-{made_of.hexdigest()[:12]}{sysconfig.get_config_var('EXT_SUFFIX')}"


def exact_file_name() -> str:
    """What the built extension is called that knows nothing of torch."""
    return f"_exact-{hashlib.sha256(EXACT.read_bytes()).hexdigest()[:12]}{sysconfig.get_config_var('EXT_SUFFIX')}"


def cache() -> Path:
    """The folder of the user's where it is kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "subclass_aot"


def compiler() -> str | None:
    """The C++ compiler: `CXX` of the environment, or the usual names."""
    return os.environ.get("CXX") or next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)


def build(folder: Path | None = None) -> Path:
    """Builds the accelerator, if it is not there yet, in about half a minute.

    Args:
        folder: Where to; the user's cache when left out.

    Returns:
        The file.

    Raises:
        RuntimeError: There is no compiler, or what it said.
    """
    return _make((cache() if folder is None else folder) / file_name(), _arguments())


def build_exact() -> Path:
    """Builds the extension that knows nothing of torch into the user's cache, if it is not there yet.

    Returns:
        The file.

    Raises:
        RuntimeError: There is no compiler, or what it said.
    """
    arguments = ["-O2", "-fPIC", "-shared", f"-I{_INCLUDE}", "-x", "c", str(EXACT), *_UNDEFINED]
    return _make(cache() / exact_file_name(), arguments)


def _make(target: Path, arguments: list[str]) -> Path:
    """Runs the compiler, if `target` is not there."""
    if target.exists():
        return target
    found = compiler()
    if found is None:
        raise RuntimeError("there is no C++ compiler: install g++ or clang, or name one in CXX")
    folder = target.parent
    folder.mkdir(parents=True, exist_ok=True)
    with _one_at_a_time(folder), tempfile.TemporaryDirectory(dir=folder) as scratch:
        if target.exists():  # by now
            return target
        made = Path(scratch) / target.name
        done = subprocess.run([*found.split(), *arguments, "-o", str(made)], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{found} failed:\n{done.stderr.strip()[-4000:]}")
        made.replace(target)  # at once, so that nobody finds half a file
    return target


@contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    """Waits while another process builds in this folder, where the system has such locks."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    with open(folder / ".building", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _arguments() -> list[str]:
    root = Path(torch.__file__).parent
    include = [root / "include", root / "include/torch/csrc/api/include", _INCLUDE]
    return [
        *_FLAGS,
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
        *(f"-I{path}" for path in include),
        str(SOURCES / "accelerator.cpp"),
        f"-L{root / 'lib'}",
        *(f"-l{name}" for name in _LIBRARIES),
        f"-Wl,-rpath,{root / 'lib'}",
        *_UNDEFINED,
    ]
