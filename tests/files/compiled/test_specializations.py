"""What a file has for one signature."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch

import subclass_aot as sa
from subclass_aot.base.refused import Refused
from subclass_aot.files.compiled.codec import Encoder
from subclass_aot.files.compiled.key import key_of
from subclass_aot.files.compiled.specializations import SavedSpecialization, encode_specialization
from tests.files.compiled.programs import PROGRAMS


def written(name: str = "dense, training") -> tuple[Any, list[Any], Any]:
    fn, make, kwargs = PROGRAMS[name]
    compiled = sa.aot_compile(fn)
    compiled(*make(), **kwargs)
    latest = compiled._specializations.latest
    assert latest is not None
    encoder = Encoder()
    text = encode_specialization(latest, encoder, [])
    return text, encoder.specs, latest


def test_differences_are_named() -> None:
    text, specs, latest = written()
    saved = SavedSpecialization(text, specs, [])
    assert saved.differences(key_of(latest.facts), True) == []
    _, _, other = written("dense")
    (line,) = [line for line in saved.differences(key_of(other.facts), True) if line.startswith("args[0]: tensor")]
    assert "True]" in line and "False]" in line


def test_what_a_key_cannot_have_is_refused() -> None:
    compiled = sa.aot_compile(lambda x, lock: x if lock else -x)
    compiled(torch.rand(2), threading.Lock())
    latest = compiled._specializations.latest
    assert latest is not None
    with pytest.raises(Refused, match="neither a file nor pickle can say what it holds"):
        encode_specialization(latest, Encoder(), [])
