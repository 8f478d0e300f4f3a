"""What cannot be written into a file, or read from one, with the place: each stage adds what it knows of that."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class Refused(Exception):
    """Something cannot be written, or what was read is none of it. The door to the user makes its own error of it.

    Attributes:
        what: What is wrong.
        where: The places, the outermost first.
    """

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what
        self.where: list[str] = []


@contextmanager
def at(place: str) -> Iterator[None]:
    """Runs the block so that what is refused is refused at `place`."""
    try:
        yield
    except Refused as refused:
        refused.where.insert(0, place)
        raise
