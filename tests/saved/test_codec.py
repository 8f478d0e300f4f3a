"""Values as JSON, and back."""

from __future__ import annotations

import dataclasses
import json
import math
from enum import Enum
from typing import Any

import pytest
import torch

from subclass_aot.flatten import PlainTensorMeta
from subclass_aot.meta import Spec
from subclass_aot.outputs import SameAsInput
from subclass_aot.saved.codec import Decoder, Encoder, fits
from subclass_aot.saved.refused import Refused
from tests.saved.programs import Pair


class Color(Enum):
    RED = 1


@dataclasses.dataclass(frozen=True)
class Range:
    low: float
    inner: Any = None

    def __post_init__(self) -> None:
        assert not hasattr(self, "is_loaded"), "no code of the class runs"


def through(value: Any, trust: bool = False) -> Any:
    encoder = Encoder()
    written = json.loads(json.dumps(encoder.encode(value), allow_nan=False))
    return Decoder(json.loads(json.dumps(encoder.specs)), trust).decode(written)


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


def test_functions_are_taken_from_files_that_are_trusted() -> None:
    assert through(math.sin, trust=True) is math.sin
    with pytest.raises(Refused, match="with trust=False none is taken"):
        through(math.sin)


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (object(), "cannot be written"), (lambda: 1, "defined inside a function"), (torch.ones(2), "only graphs may"),
        ({"a": [object()]}, "cannot be written"), (iter([]), "cannot be written"),
    ],
)  # fmt: skip
def test_what_cannot_be_written_is_named(value: Any, what: str) -> None:
    with pytest.raises(Refused, match=what):
        Encoder().encode(value)


def test_the_place_is_named() -> None:
    with pytest.raises(Refused) as caught:
        Encoder().encode({"a": [1, Range(1.0, object())]})
    assert "".join(caught.value.where) == "['a'][1].inner"


@pytest.mark.parametrize(
    "written",
    [
        {}, [], [1], ["nothing"], ["float", 1], ["float", "x"], ["int", "zz"], ["dtype", "ones"],
        ["dtype", "float32", 1],
        ["class", "os:path"], ["class", "no_such_module:X"], ["class", "os"], ["class", "subprocess:Popen.__init__"],
        ["enum", "enum:Enum", "x"], ["object", "subprocess:Popen", 1], ["object"], ["spec", 0], ["spec"],
        ["operator", "aten.__class__"], ["operator", "aten.add.__class__"], ["operator", "aten.add"],
        ["operator", "aten.from_file.default"], ["operator", "os.path.join"], ["operator", "debugprims.load.default"],
        ["SameAsInput", "x"], ["SameAsInput"], ["SameAsInput", 1, 2], ["SameAsInput", True], ["dict", [1]],
        ["dict", [1, 2], [1, 3]], ["device", "nowhere"], 1 << 64, 1.5, ["function", "os:system"], ["range", 1, 2, 0],
        ["VersionBump", 0, ".a; import os"], ["SavedWay", "os.system", ["tuple"]], ["NodeAt", None],
        ["SavedWay", "args", ["tuple", "__globals__"]], ["Tuple", ["class", "subprocess:Popen"], ["tuple"]],
        ["MetadataMutation", 0, ["class", "subprocess:Popen"], ["tuple"], ["dict"], False],
        ["SubclassCreationMeta", 0, 1, False, ["dict", ["a b", ["AbsentMeta"]]], ["class", "torch:Tensor"], None,
         ["tuple"], ["tuple"], 0, ["dtype", "float32"], ["device", "cpu"], ["layout", "strided"], None],
        ["SubclassCreationMeta", 0, 1, False, ["dict", ["a", ["AbsentMeta"]]], ["class", "builtins:int"], None,
         ["tuple"], ["tuple"], 0, ["dtype", "float32"], ["device", "cpu"], ["layout", "strided"], None],
    ],
    ids=str,
)  # fmt: skip
def test_what_nobody_has_written_is_refused(written: Any) -> None:
    with pytest.raises(Refused):
        Decoder([], False).decode(written)


@pytest.mark.parametrize(
    "spec",
    [
        [[1 << 60], [1], 0], [[1 << 30, 1 << 30], [1, 1], 0], [[-1], [1], 0], [[2], [1 << 50], 0], [[2], [1, 1], 0],
        [["2"], [1], 0], [[2], [1], -1], [[True], [1], 0],
    ],
    ids=str,
)  # fmt: skip
def test_sizes_have_limits(spec: list[Any]) -> None:
    with pytest.raises(Refused):
        Decoder([[*spec, ["dtype", "float32"], ["device", "cpu"], ["layout", "strided"]]], False)


@pytest.mark.parametrize(
    ("value", "hint", "does"),
    [
        (1, int, True), (True, int, False), (1, float, False), ((1, 2), tuple[int, int], True),
        ((1,), tuple[int, int], False),
        ([1], tuple[int, ...], False), ({"a": 1}, dict[str, int], True), ({"a": "b"}, dict[str, int], False),
        (None, int | None, True), ("x", int | None, False), (torch.Tensor, type[torch.Tensor], True),
        (int, type[torch.Tensor], False), ("x", Any, True),
    ],
)  # fmt: skip
def test_values_are_compared_with_annotations(value: Any, hint: Any, does: bool) -> None:
    assert fits(value, hint) is does
