"""Refusals of the stages of this room: with the place, to which each stage adds what it knows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class Refused(Exception):
    """Something cannot be written, or what was read is none of it. The door makes a `CompiledFileError` of it.

    Attributes:
        what: What is wrong.
        where: The places, the outermost first.
    """

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what
        self.where: list[str] = []

    def bare(self) -> Refused:
        """Returns the same, without the frames in which it was raised: these hold the tensors of a call."""
        bare = Refused(self.what)
        bare.where = list(self.where)
        return bare


@contextmanager
def at(place: str) -> Iterator[None]:
    """Runs the block so that what is refused is refused at `place`."""
    try:
        yield
    except Refused as refused:
        refused.where.insert(0, place)
        raise
