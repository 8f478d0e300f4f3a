"""Context values in files of weights: as JSON, which may name only classes that the reader knows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from subclass_aot.base.plain_values import Json, ValueReader, ValueWriter
from subclass_aot.base.refused import Refused
from subclass_aot.errors import StateDictError
from subclass_aot.files.classes import KnownClasses

_CANNOT = """is a {kind}, which a file cannot hold: {value!r:.200}
A context can be written if it is made of int, float, bool, str, None, tuples, lists, dicts, sets, enums, dataclasses, \
torch.dtype, torch.layout, torch.memory_format, torch.Size and torch.device. Write what the value is made of, as a \
frozen dataclass, or hold a tensor as a field: name: torch.Tensor"""


class _Writer(ValueWriter):
    cannot = _CANNOT


class _Reader(ValueReader):
    def __init__(self, classes: KnownClasses, of: type) -> None:
        self.find = partial(classes.of_context, of=of)


def to_json(value: object, place: str) -> Json:
    """Returns a context value as what `json.dumps` takes.

    Args:
        value: The value.
        place: Where it stands, for errors: `weight`, context `bits`.

    Raises:
        StateDictError: It cannot be written.
    """
    with refusals(place):
        return _Writer().write(value)


def from_json(written: Json, place: str, classes: KnownClasses, of: type) -> Any:
    """Returns the inverse of `to_json`.

    Args:
        written: What a file has.
        place: Where the value stands, for errors.
        classes: The classes that may be named.
        of: The class of wrappers in whose context it stands.

    Raises:
        StateDictError: It is nothing that `to_json` writes, or it names a class that nobody knows.
    """
    with refusals(place):
        return _Reader(classes, of).read(written)


@contextmanager
def refusals(place: str) -> Iterator[None]:
    """Runs the block so that what is refused is an error that names the entry."""
    try:
        yield
    except Refused as refused:
        raise StateDictError(f"{place}{''.join(refused.where)} {refused.what}") from refused.__cause__
