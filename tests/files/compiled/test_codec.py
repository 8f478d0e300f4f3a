"""Values as JSON, and back."""

from __future__ import annotations

import dataclasses
import json
import math
from enum import Enum
from typing import Any

import pytest
import torch

from subclass_aot.base.refused import Refused
from subclass_aot.engine.outputs import SameAsInput
from subclass_aot.files.compiled.codec import Decoder, Encoder
from subclass_aot.kit.flatten import PlainTensorMeta
from subclass_aot.meta import Spec
from tests.files.compiled.programs import Pair


class Color(Enum):
    RED = 1


@dataclasses.dataclass(frozen=True)
class Range:
    low: float
    inner: Any = None

    def __post_init__(self) -> None:
        assert not hasattr(self, "is_loaded"), "no code of the class runs"


def through(value: Any) -> Any:
    encoder = Encoder()
    written = json.loads(json.dumps(encoder.write(value), allow_nan=False))
    return Decoder(json.loads(json.dumps(encoder.specs))).read(written)


@pytest.mark.parametrize(
    "value",
    [
        None, True, 3, -(2**80), 0.1, -0.0, math.inf, 1 + 2j, "x", b"\x00\xff", (1, (2,)), [1, []], {"a": {1: 2}},
        {3, 1}, frozenset("ab"), torch.Size((2, 3)), slice(1, None, 2), range(3), ..., torch.float32, torch.strided,
        torch.channels_last, torch.device("cuda:1"), Color.RED, Range(1.5, (Color.RED, Range(2.0))), Pair(1, 2),  # type: ignore[arg-type]
        torch.ops.aten.add.Tensor, int, Range, Spec.make((2, 3), (3, 1), 4, torch.int8), SameAsInput(1),
        PlainTensorMeta(0),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_values_come_back(value: Any) -> None:
    found = through(value)
    assert type(found) is type(value) and repr(found) == repr(value) and found == value


def test_functions_come_back() -> None:
    assert through(math.sin) is math.sin


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (object(), "cannot be written"), (lambda: 1, "defined inside a function"), (torch.ones(2), "only graphs may"),
        ({"a": [object()]}, "cannot be written"), (iter([]), "cannot be written"),
    ],
)  # fmt: skip
def test_what_cannot_be_written_is_named(value: Any, what: str) -> None:
    with pytest.raises(Refused, match=what):
        Encoder().write(value)


def test_the_place_is_named() -> None:
    with pytest.raises(Refused) as caught:
        Encoder().write({"a": [1, Range(1.0, object())]})
    assert "".join(caught.value.where) == "['a'][1].inner"


@pytest.mark.parametrize(
    "written",
    [
        {}, {"nothing": 1}, {"float": "x"}, {"dtype": "ones"}, {"dtype": ["float32", 1]}, {"named": "no_such_module:X"},
        {"named": "os"}, {"enum": "enum:Enum", "member": "x"}, {"enum": "os:system", "member": "x"},
        {"class": "subprocess:Popen", "fields": {"args": 1}}, {"class": "os:system", "fields": {}}, {"spec": 0},
        {"spec": []}, {"operator": "aten.__class__"}, {"operator": "aten.add.__class__"}, {"operator": "aten.add"},
        {"operator": "os.path.join"}, {"operator": "debugprims.load.default"}, {"SameAsInput": []},
        {"SameAsInput": [1, 2]}, {"SameAsInput": "x"}, {"dict": [1]}, {"device": "nowhere"}, {"range": [1, 2, 0]},
        {"bytes": "zz"}, {"symbols": None}, {"class": "tests.files.compiled.test_codec:Range", "fields": {"low": 1.0}},
    ],
    ids=str,
)  # fmt: skip
def test_what_nobody_has_written_is_refused(written: Any) -> None:
    with pytest.raises(Refused):
        Decoder([]).read(written)
