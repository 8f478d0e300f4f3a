"""Building the two extensions with the C++ compiler that is at hand, for the torch that is installed.

There is no stable interface to what the accelerator uses of torch, so what is built serves exactly one version. The
name of the file says which, and of which sources it was made: another one is not even read.

A file that was cut off ends the process that loads it. So its digest stands in a second file, which is written last:
what has no such file, or another one, is built again. This module is all that `setup.py` loads, and imports no other
of the package.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch

SOURCES = Path(__file__).parent / "accelerator"
EXACT = Path(__file__).parent / "exact.c"

_FLAGS = ("-O2", "-g0", "-std=c++20", "-fPIC", "-shared", "-fvisibility=hidden", "-w")
_LIBRARIES = ("c10", "torch_cpu", "torch", "torch_python")
_INCLUDE = sysconfig.get_path("include")
_UNDEFINED = ("-undefined", "dynamic_lookup") if sys.platform == "darwin" else ()
"""Flags with which Python's own functions are found when the extension is loaded, where the linker needs them."""


def file_name() -> str:
    """Returns the name of the built accelerator: by the versions of torch and Python, and by what it is made of."""
    made_of = hashlib.sha256(repr((_FLAGS, torch.version.git_version)).encode())
    for source in sorted(SOURCES.iterdir()):
        if source.suffix in (".cpp", ".h"):
            made_of.update(source.name.encode() + source.read_bytes())
    return f"_accelerator-torch-{torch.__version__}-{made_of.hexdigest()[:12]}{sysconfig.get_config_var('EXT_SUFFIX')}"


def exact_file_name() -> str:
    """Returns the name of the built extension that knows nothing of torch."""
    return f"_exact-{hashlib.sha256(EXACT.read_bytes()).hexdigest()[:12]}{sysconfig.get_config_var('EXT_SUFFIX')}"


def compiler() -> str | None:
    """Returns the C++ compiler: `CXX` of the environment, or the usual names."""
    return os.environ.get("CXX") or next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)


def digest_file(file: Path) -> Path:
    """Says where the digest of an extension stands."""
    return file.with_name(f"{file.name}.sha256")


def is_whole(file: Path) -> bool:
    """Returns whether an extension is there as it was built."""
    try:
        return digest_file(file).read_text().strip() == _digest(file)
    except (OSError, ValueError):  # nothing there, or a digest that is no text
        return False


def _digest(file: Path) -> str:
    with open(file, "rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def build(folder: Path, is_good: Callable[[Path], bool] = is_whole) -> Path:
    """Builds the accelerator, if it is not there yet, in about half a minute.

    Args:
        folder: Where to.
        is_good: Whether a file that is there already will do.

    Returns:
        The file.

    Raises:
        RuntimeError: There is no compiler, or what it said.
    """
    return _make(folder / file_name(), _arguments(), is_good)


def build_exact(folder: Path, is_good: Callable[[Path], bool] = is_whole) -> Path:
    """Builds the extension that knows nothing of torch, if it is not there yet.

    Args:
        folder: Where to.
        is_good: Whether a file that is there already will do.

    Returns:
        The file.

    Raises:
        RuntimeError: There is no compiler, or what it said.
    """
    arguments = ["-O2", "-fPIC", "-shared", f"-I{_INCLUDE}", "-x", "c", str(EXACT), *_UNDEFINED]
    return _make(folder / exact_file_name(), arguments, is_good)


_SCRATCH = ".scratch-"


def _make(target: Path, arguments: list[str], is_good: Callable[[Path], bool]) -> Path:
    """Runs the compiler, if `target` is not there or not good."""
    if is_good(target):
        return target
    found = compiler()
    if found is None:
        raise RuntimeError("there is no C++ compiler: install g++ or clang, or name one in CXX")
    folder = target.parent
    folder.mkdir(parents=True, exist_ok=True)
    with _one_at_a_time(folder), tempfile.TemporaryDirectory(dir=folder, prefix=_SCRATCH) as scratch:
        if is_good(target):  # by now
            return target
        made = Path(scratch) / target.name
        done = subprocess.run([*found.split(), *arguments, "-o", str(made)], capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{found} failed:\n{done.stderr.strip()[-4000:]}")
        made.chmod(0o755)  # nobody else may write it, whatever the umask says
        digest = digest_file(made)
        digest.write_text(f"{_digest(made)}\n")
        digest.chmod(0o644)
        _publish(made, target)
        _publish(digest, digest_file(target))
    return target


def _publish(made: Path, target: Path) -> None:
    """Puts a file where others look for it, at once and on the disk, so that nobody finds half of it."""
    _sync(made)
    made.replace(target)
    with suppress(OSError):  # not every system lets a folder be opened
        _sync(target.parent)


def _sync(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


@contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    """Waits while another process builds in this folder, where the system has such locks; clears what it left."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    with open(folder / ".building", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError:  # this file system has no locks: two may build the same, and one of them is kept
            yield
            return
        for left in folder.glob(f"{_SCRATCH}*"):  # by a build that was killed
            shutil.rmtree(left, ignore_errors=True)
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
