"""The folder of the user's where extensions are kept that were built after the installation, and whom it trusts.

An extension is code that runs with the rights of who loads it. So it is checked as ssh checks its keys: the file,
its folder and the folders up to the cache belong to the user or to root, and nobody else may write them. What the
installation has built is trusted as the rest of the package is.
"""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from subclass_aot.native import build

_NO_HOME = "there is no folder for what is built: XDG_CACHE_HOME is not set, and user {user} has no home"
_ELSEWHERE = "{why}; to build elsewhere, name a folder: XDG_CACHE_HOME=/a/folder python -m subclass_aot build-native"


class CacheError(RuntimeError):
    """Says in one line why the cache, or something in it, cannot be used."""


def folder() -> Path:
    """Says where extensions are kept; the folder need not be there.

    Raises:
        CacheError: The user has no such place.
    """
    return _root() / "subclass_aot"


def _root() -> Path:
    named = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(named):  # by its specification, others do not count
        return Path(named)
    try:
        home = Path.home()
    except RuntimeError:
        home = Path()
    if not home.is_absolute():
        raise CacheError(_NO_HOME.format(user=_user()))
    return home / ".cache"


def find(name: str) -> Path | None:
    """Finds an extension that may be loaded.

    Args:
        name: As `build.file_name` gives it.

    Returns:
        The file; None where there is none.

    Raises:
        CacheError: The user has no cache, or the file is there and must not be loaded, and why.
    """
    file = folder() / name
    try:
        os.stat(file)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise CacheError(f"{file} cannot be read: {error.strerror}") from error
    _trust(file.parent)
    _trust(file)
    if build.is_whole(file):
        return file
    if not os.access(file, os.R_OK):
        raise CacheError(f"{file} cannot be read: Permission denied")
    if not os.path.exists(build.digest_file(file)):
        raise CacheError(f"{file} has no digest beside it, as if its build had not ended")
    raise CacheError(f"{file} is damaged: it is not what was built there, by the digest beside it")


def build_accelerator() -> Path:
    """Builds the accelerator into the cache, if it is not there yet, in about half a minute.

    Returns:
        The file.

    Raises:
        CacheError: The cache cannot be used, and what to do.
        RuntimeError: There is no compiler, or what it said.
    """
    return _built(build.build)


def build_exact() -> Path:
    """Builds the extension that knows nothing of torch into the cache, if it is not there yet.

    Returns:
        The file.

    Raises:
        CacheError: The cache cannot be used, and what to do.
        RuntimeError: There is no compiler, or what it said.
    """
    return _built(build.build_exact)


def made_folder() -> Path:
    """Returns the folder where extensions are kept, which is made for the user alone if it is not there.

    Raises:
        CacheError: The user has no such place, or others may write there.
        OSError: It cannot be made.
    """
    place = folder()
    for path in (*reversed(place.parents), place):
        if not path.exists():
            path.mkdir(mode=0o700, exist_ok=True)
    _trust(place)
    return place


def _built(make: Callable[[Path, Callable[[Path], bool]], Path]) -> Path:
    try:
        place = folder()
        return make(made_folder(), _is_good)
    except CacheError as error:
        raise CacheError(_ELSEWHERE.format(why=error)) from error
    except OSError as error:
        why = f"{error.filename or place} cannot be written: {error.strerror}"
        raise CacheError(_ELSEWHERE.format(why=why)) from error


_LOADS = (
    "import sys, torch; from importlib.machinery import ExtensionFileLoader as Loader; "
    "from importlib.util import module_from_spec, spec_from_loader; loader = Loader(*sys.argv[1:]); "
    "loader.exec_module(module_from_spec(spec_from_loader(loader.name, loader)))"
)
"""A program that loads an extension, given its name and file."""


def _is_good(file: Path) -> bool:
    """Returns whether an extension is there, may be loaded and can be: another machine may have built it."""
    try:
        if find(file.name) is None:
            return False
    except CacheError:
        return False
    name = f"subclass_aot.native.{file.name.partition('-')[0]}"
    loaded = subprocess.run([sys.executable, "-c", _LOADS, name, str(file)], capture_output=True)
    return loaded.returncode == 0


def _trust(path: Path) -> None:
    """Refuses a file or folder of the cache that somebody else could have written.

    Args:
        path: What is there.

    Raises:
        CacheError: Which of its folders, or itself, others own or may write.
    """
    if os.name != "posix":  # there, a file says nothing of who may write it
        return
    me, strict = os.geteuid(), (path, Path(os.path.realpath(path)))
    for place in _on_the_way(path):
        try:
            owners = {os.lstat(place).st_uid, (found := os.stat(place)).st_uid}
        except OSError as error:
            raise CacheError(f"{place} cannot be read: {error.strerror}") from error
        if foreign := owners - {me, 0}:
            raise CacheError(
                f"{place} belongs to user {foreign.pop()}, and neither to user {me}, who runs this, nor root"
            )
        mode = found.st_mode
        # In a folder such as /tmp others may make what is not there, but neither rename nor delete what is.
        may_be_shared = bool(mode & stat.S_ISVTX) and place not in strict
        if mode & (stat.S_IWGRP | stat.S_IWOTH) and not may_be_shared:
            raise CacheError(f"{place} may be written by others (mode {mode & 0o7777:04o}): chmod go-w {place}")


def _on_the_way(path: Path) -> Iterator[Path]:
    """Yields the folders that lead to a file of the cache, from the cache on; and all that lead to it where a link
    leads elsewhere.
    """
    root = _root()
    yield from (
        root,
        *reversed([above for above in path.parents if above.is_relative_to(root) and above != root]),
        path,
    )
    real, real_root = Path(os.path.realpath(path)), Path(os.path.realpath(root))
    if not real.is_relative_to(real_root):
        yield from (*reversed(real.parents), real)
    elif real.relative_to(real_root) != path.relative_to(root):
        yield from (above for above in (*reversed(real.parents), real) if above.is_relative_to(real_root))


def _user() -> str:
    return str(os.geteuid()) if os.name == "posix" else "this"
