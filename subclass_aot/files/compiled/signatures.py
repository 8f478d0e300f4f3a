"""Signatures as JSON, and back. A signature is data; what a file leaves out of it follows from the rest."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection

from subclass_aot.base.plain_values import Json
from subclass_aot.base.refused import Refused, at
from subclass_aot.engine.objects import Entry, Named
from subclass_aot.engine.outcome import Outcome
from subclass_aot.engine.signature import JointSignature
from subclass_aot.errors import JointGraphError
from subclass_aot.files.compiled.codec import Decoder, Encoder, sized
from subclass_aot.kit.flatten import IndexMap

_SYMBOLIC = "it assumes something of numbers that depend on data. Compile with dynamic=False"
_NO_PATH = "an object of {kind} has no path"
_NO_OBJECT = "the function that was given has no {path}"

_NAMES = [field.name for field in dataclasses.fields(JointSignature) if field.name != "index_map"]


def encode_signature(signature: JointSignature, encoder: Encoder) -> Json:
    """Returns a signature as JSON.

    Args:
        signature: It.
        encoder: What writes its values.

    Raises:
        Refused: It has numbers that depend on data, or objects that cannot be named.
    """
    if signature.assumptions.runtime_asserts:
        raise Refused(_SYMBOLIC)
    for start, _ in signature.outcome.objects:
        if not isinstance(start, str | Entry | Named):
            with at("outcome"):
                raise Refused(_NO_PATH.format(kind=type(start.value).__qualname__))
    return [encoder.part(getattr(signature, name), f".{name}") for name in _NAMES]


def read_signature(written: Json, decoder: Decoder, named: Collection[str]) -> JointSignature:
    """Returns the inverse of `encode_signature`.

    Args:
        written: What that gave.
        decoder: What reads its values.
        named: The paths of objects that the call has.

    Raises:
        Refused: An object, or the pytree of a class, is not there.
    """
    parts = {name: decoder.read(part) for name, part in zip(_NAMES, sized(written, len(_NAMES)), strict=True)}
    signature = JointSignature(index_map=IndexMap.of(given.meta for given in parts["inputs"]), **parts)
    _check_there(signature.outcome, named)
    if signature.backward_outcome is not None:
        _check_there(signature.backward_outcome.outcome, named)
    return signature


def _check_there(outcome: Outcome, named: Collection[str]) -> None:
    for start, _ in outcome.objects:
        if isinstance(start, Named) and start.path not in named:
            raise Refused(_NO_OBJECT.format(path=start.path))
    for new in outcome.new:
        if new.is_registered:
            try:
                new.unflatten()
            except JointGraphError as error:
                raise Refused(str(error)) from error


def needs_function(signature: JointSignature, is_of_call: Callable[[str], bool]) -> str:
    """Returns the path of something that only the function has, and that a call needs; "" if there is nothing."""
    paths = [given.path for given in signature.inputs]
    paths += [start.path for start, _ in signature.outcome.objects if isinstance(start, Named)]
    return next((path for path in paths if not is_of_call(path)), "")
