"""Writing files so that nobody finds half of one: who cannot finish leaves the file of before as it is.

`native/build.py` does the same by itself, since it is loaded without the package.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path


@contextmanager
def written_beside(path: str | PathLike[str]) -> Iterator[Path]:
    """Gives the block a path beside a file, with its ending; what stands there afterwards takes the place of the file.

    What is no ordinary file (a pipe, `/dev/stdout`), or stands in a folder that takes no files, is written in place.

    Args:
        path: The file. Of a link, the file that it leads to is replaced.
    """
    target = Path(os.path.realpath(path))
    if (target.exists() and not target.is_file()) or not os.access(target.parent, os.W_OK):
        yield Path(path)
        return
    part = target.with_name(f".{uuid.uuid4().hex[:8]}.{target.name}"[-255:])
    try:
        yield part
        if target.exists():
            with suppress(OSError):  # of a file system without modes
                shutil.copymode(target, part)
        _sync(part)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
    with suppress(OSError):  # not every system lets a folder be opened
        _sync(target.parent)


def write_whole(path: str | PathLike[str], contents: bytes | str) -> None:
    """Writes a file, or leaves it as it is.

    Args:
        path: The file.
        contents: What it is to hold; text in UTF-8.
    """
    with written_beside(path) as part:
        part.write_bytes(contents.encode() if isinstance(contents, str) else contents)


def _sync(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
