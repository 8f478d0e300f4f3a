"""Building the extensions without being asked for: at the first compilation, once for a machine, in the background.

Users of inductor know that C++ is compiled where it is first wanted. Here nothing waits for it: a process of its own
builds, with the lowest priority, while Python runs what the accelerator would. It is nobody's child, so it neither ends
with who began it nor is left behind as a zombie. What it made is loaded by processes that import the package later;
those that run already go on in Python.

A lock is held for as long as it runs, so of many processes that begin at once one builds. What it says goes into a log
beside what is built. A build that failed is not tried again with the same compiler, nor one that was killed thrice.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch

from subclass_aot.native import build, cache

_log = logging.getLogger(__name__)

_BEGUN, _FAILED, _TRIES = "begun with", "failed:", 3

_SAYS = (
    "subclass_aot: the accelerator is built in the background, once for torch %s, in about half a minute; calls take a "
    "third of the time in processes that begin after that. SUBCLASS_AOT_NATIVE=0 turns it off. Log: %s"
)

_AUTOMATIC = ("CI", "TF_BUILD", "JENKINS_URL", "TEAMCITY_VERSION", "PYTEST_VERSION", "PYTEST_CURRENT_TEST")
"""Variables of places where a process runs once and on its own: what is built there is thrown away."""

_DETACHED = '"$@" &'
"""A command of the shell, which ends at once: what it began is adopted by the first process of the system."""

_PROGRAM = (
    "import os, sys; os.nice(19); sys.path[:] = {path!r}; from subclass_aot.native import background; "
    "background.build_all()"
)


def log_file() -> Path:
    """Says where the log of the build for this torch stands; the file need not be there.

    Raises:
        CacheError: The user has no cache.
    """
    return cache.folder() / f"{build.file_name()}.log"


def begin() -> bool:
    """Begins to build what is not there, if this is a place for it.

    Returns:
        Whether a build was begun.
    """
    try:
        return not why_not() and _begin()
    except (cache.CacheError, OSError) as error:  # no home, a disk that is full, a file system without locks
        _log.debug("nothing is built in the background: %s", error)
        return False


def why_not() -> str:
    """Returns why nothing is built in the background; nothing where it may be.

    Raises:
        CacheError: The user's cache cannot be used.
    """
    automatic = [name for name in _AUTOMATIC if os.environ.get(name, "").lower() not in ("", "0", "false")]
    if automatic or "pytest" in sys.modules:
        return f"it runs by itself: {', '.join(automatic) or 'pytest'}"
    if "SUBCLASS_AOT_NATIVE" in os.environ:
        return "the environment says SUBCLASS_AOT_NATIVE"
    if os.name != "posix" or sysconfig.get_config_var("Py_GIL_DISABLED") or not sys.executable:
        return "this Python is none for it"
    headers = Path(sysconfig.get_path("include"), "Python.h"), Path(torch.__file__).parent / "include" / "ATen"
    absent = [str(path) for path in headers if not path.exists()]
    if build.compiler() is None or absent:
        return f"there is no {', '.join(absent) or 'C++ compiler'}"
    if cache.find(build.file_name()) is not None:
        return "it is built by now"
    place = cache.folder()
    there = next(path for path in (place, *place.parents) if path.exists())
    if not os.access(there, os.W_OK | os.X_OK):
        return f"{there} cannot be written"
    return _why_not_again()


def _why_not_again() -> str:
    """Returns why a build is not tried once more, by the log of those before it."""
    try:
        lines = log_file().read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return ""
    begun = [i for i, line in enumerate(lines) if line == f"{_BEGUN} {build.compiler()}"]
    has_failed = bool(begun) and any(line.startswith(_FAILED) for line in lines[begun[-1] :])
    return f"it failed: {log_file()}" if has_failed or len(begun) >= _TRIES else ""


def _begin() -> bool:
    place = cache.made_folder()
    with _lock(place / ".background") as lock:
        if lock is None or _why_not_again():  # another process builds, or has failed by now
            return False
        file = log_file()
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "w") as log:
            log.write(f"{_BEGUN} {build.compiler()}\n")
            log.flush()
            path = [os.path.abspath(entry) for entry in sys.path]
            command = ["/bin/sh", "-c", _DETACHED, "sh", sys.executable, "-c", _PROGRAM.format(path=path)]
            environment = {**os.environ, "SUBCLASS_AOT_NATIVE": "0"}
            begun = subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", env=environment,
                pass_fds=(lock,), start_new_session=True,
            )  # fmt: skip
    if begun.returncode:
        return False
    _log.warning(_SAYS, torch.__version__, file)
    return True


@contextmanager
def _lock(path: Path) -> Iterator[int | None]:
    """Locks a file until the block ends, and until every process has ended that was given its number.

    Returns:
        The number of the open file; None if another process has locked it.
    """
    import fcntl

    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
        else:
            yield lock
    finally:
        os.close(lock)


def build_all() -> None:
    """Builds both extensions, in the process that was begun for it, and writes into its log how it went.

    The compiler needs more than a GiB: where memory runs out, it ends, and not the training beside it.
    """
    with suppress(OSError):  # only Linux has such a file
        Path("/proc/self/oom_score_adj").write_text("1000")
    try:
        print(f"built {cache.build_exact()}\nbuilt {cache.build_accelerator()}", flush=True)
    except (RuntimeError, OSError) as error:
        print(f"{_FAILED} {error}", flush=True)
