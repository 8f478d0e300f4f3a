"""Signatures without what belongs to one process."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

import subclass_aot as sa
from subclass_aot.base.refused import Refused
from subclass_aot.engine.signature import JointSignature
from subclass_aot.files.compiled.codec import Decoder, Encoder
from subclass_aot.files.compiled.signatures import encode_signature, needs_function, read_signature
from tests.files.compiled.programs import PROGRAMS


def signature(fn: Any, *args: Any, **kwargs: Any) -> JointSignature:
    compiled = sa.aot_compile(fn)
    compiled(*args, **kwargs)
    assert compiled._specializations.latest is not None
    return compiled._specializations.latest.signature


def again(signature: JointSignature, named: tuple[str, ...] = ()) -> JointSignature:
    encoder = Encoder()
    written = json.loads(json.dumps(encode_signature(signature, encoder)))
    return read_signature(written, Decoder(encoder.specs), named)


@pytest.mark.parametrize("name", ["dense, training", "views", "nested wrappers", "containers", "writes"])
def test_a_signature_comes_back(name: str) -> None:
    fn, make, kwargs = PROGRAMS[name]
    before = signature(fn, *make(), **kwargs)
    after = again(before)
    assert after.inputs == before.inputs and after.index_map == before.index_map and after.tangents == before.tangents
    assert after.mutations == before.mutations and len(after.outcome.new) == len(before.outcome.new)
    assert after.grad_modes == before.grad_modes and after.assumptions == before.assumptions


def test_what_the_function_has_is_needed() -> None:
    weight = torch.rand(3)
    held = signature(lambda x: x * weight, torch.rand(3))
    assert needs_function(held, lambda path: path.startswith("args")) == "weight"
    given = signature(torch.sin, torch.rand(3))
    assert needs_function(given, lambda path: path.startswith("args")) == ""


def test_closures_are_changed() -> None:
    count = 0

    def counted(x: torch.Tensor) -> torch.Tensor:
        nonlocal count
        count += 1
        return x

    found = signature(counted, torch.rand(3))
    assert again(found, ("fn",)).outcome.changes
    with pytest.raises(Refused, match="the function that was given has no fn"):
        again(found)


def test_attributes_of_classes_have_no_path() -> None:
    class Counter:
        count = 0

    def counted(x: torch.Tensor) -> torch.Tensor:
        Counter.count += 1
        return x

    with pytest.raises(Refused, match="an object of type has no path"):
        again(signature(counted, torch.rand(3)))
