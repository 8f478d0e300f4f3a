"""Wrapper classes of all kinds, and what makes state dicts with them."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor as ForeignTwoTensor

from subclass_aot import Int8Weight, Outer, TwoTensor, WrapperTensor


class Mode(enum.Enum):
    ROWS = "rows"
    COLUMNS = "columns"


class Range(NamedTuple):
    low: float
    high: float


@dataclass(frozen=True)
class Recipe:
    mode: Mode
    block: torch.Size
    limits: Range = Range(0.0, float("inf"))


class Everything(WrapperTensor, fallback="each"):
    """Fields of each kind."""

    codes: torch.Tensor
    parts: list[torch.Tensor]
    table: dict[str, torch.Tensor]
    zero: torch.Tensor | None = None
    bits: int = 8
    recipe: Recipe | None = None
    modes: tuple[Mode, ...] = ()
    computes_in: torch.dtype = torch.float32


class Pair(WrapperTensor):
    left: torch.Tensor
    right: torch.Tensor


class Rows(torch.Tensor):
    """A class of another library: with another look outside than inside, and a context."""

    @staticmethod
    def __new__(cls, data: torch.Tensor, block: list[int], size: Any = None, stride: Any = None) -> Rows:
        size = (data.shape[0], data.shape[1] * 2) if size is None else size
        made: Rows = torch.Tensor._make_wrapper_subclass(cls, size, strides=stride, dtype=torch.float32)
        made.data_, made.block = data, block
        return made

    data_: torch.Tensor
    block: list[int]

    def __tensor_flatten__(self) -> tuple[list[str], dict[str, Any]]:
        return ["data_"], {"block": self.block, "dtype": torch.int8}

    @classmethod
    def __tensor_unflatten__(cls, inner: Any, context: Any, size: Any, stride: Any) -> Rows:
        return cls(inner["data_"], context["block"], size, stride)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.detach.default:
            return cls(args[0].data_, args[0].block, args[0].size(), args[0].stride())
        raise NotImplementedError(func)


class Written(WrapperTensor):
    """Its author writes flatten."""

    codes: torch.Tensor
    bits: int = 0

    def __tensor_flatten__(self) -> Any:
        return ["codes"], {"width": self.bits}

    @classmethod
    def __tensor_unflatten__(cls, inner: Any, context: Any, size: Any = None, stride: Any = None) -> Any:
        return cls(inner["codes"], context["width"])


class Packed(WrapperTensor):
    """Two codes in a byte, so the look outside is another than inside; its views read through it."""

    codes: torch.Tensor  # uint8[M, N / 2]
    scale: torch.Tensor  # float[M, 1]

    def outer_metadata(self) -> Outer:
        rows, half = self.codes.shape
        return Outer.like(self.codes, size=(rows, 2 * half), dtype=self.scale.dtype)

    def to_plain(self) -> torch.Tensor:
        low, high = self.codes & 15, self.codes >> 4
        return (torch.stack([low, high], -1).flatten(1).to(self.scale.dtype) - 8) * self.scale

    def from_plain(self, plain: torch.Tensor) -> Packed:
        scale = plain.abs().amax(1, keepdim=True).clamp(min=1e-9).to(self.scale.dtype) / 7
        codes = (plain / scale).round().clamp(-7, 7).add(8).to(torch.uint8)
        return Packed(codes[:, ::2] | codes[:, 1::2] << 4, scale)


def everything(**changes: Any) -> Everything:
    fields: dict[str, Any] = {
        "codes": torch.arange(6.0).view(2, 3).t(),
        "parts": [torch.rand(2) for _ in range(12)],
        "table": {"right": torch.ones(2, dtype=torch.int8), "left": torch.zeros(0)},
        "bits": 4,
        "recipe": Recipe(Mode.COLUMNS, torch.Size([1, 4])),
        "modes": (Mode.ROWS, Mode.COLUMNS),
        "computes_in": torch.bfloat16,
    }
    return Everything(**{**fields, **changes})


def state() -> dict[str, Any]:
    """Entries of all kinds that a file can hold."""
    weight = torch.randn(4, 6)
    int8 = Int8Weight.from_float(weight)
    return {
        "plain": torch.rand(3),
        "plain.transposed": torch.rand(2, 3).t(),
        "scalar": torch.tensor(3, dtype=torch.int64),
        "empty": torch.zeros(0, 3),
        "expanded": torch.rand(1, 3).expand(4, 3),
        "bool": torch.tensor([True, False]),
        "half": torch.rand(3).to(torch.bfloat16),
        "conjugate": torch.randn(3, dtype=torch.complex64).conj(),
        "parameter": nn.Parameter(torch.rand(2)),
        "buffer": nn.Buffer(torch.rand(2)),
        "int8": int8,
        "int8.view": Int8Weight.from_float(weight)[1:3],
        "int8.columns": Int8Weight.from_float(weight)[:, 2:4],
        "int8.transposed": Int8Weight.from_float(weight).t(),
        "int8.parameter": nn.Parameter(Int8Weight.from_float(weight)),
        "two": TwoTensor(torch.rand(3), torch.rand(3)),
        "two.expanded": TwoTensor(torch.rand(1, 3).expand(4, 3), torch.rand(1, 3).expand(4, 3)),
        "two.windows": TwoTensor(torch.rand(6).unfold(0, 3, 1), torch.rand(6).unfold(0, 3, 1)),
        "everything": everything(),
        "everything.more": everything(zero=torch.rand(3), parts=[], table={}, recipe=None),
        "nested": Pair(everything(), TwoTensor(Int8Weight.from_float(weight), Int8Weight.from_float(weight))),
        "foreign": ForeignTwoTensor(torch.rand(2, 3).t(), torch.rand(2, 3).t()),
        "foreign.rows": Rows(torch.ones(2, 3, dtype=torch.int8), [1, 3]),
        "mixed": TwoTensor(ForeignTwoTensor(torch.rand(3), torch.rand(3)), torch.rand(3)),
        "written": Written(torch.rand(3), 5),
        "packed": Packed(torch.ones(2, 3, dtype=torch.uint8), torch.rand(2, 1)),
    }


FOREIGN = [ForeignTwoTensor, Rows]


def assert_same(actual: Any, expected: Any) -> None:
    """Whether two entries are the same, class, context, strides and all."""
    expected = expected.detach()
    kind = torch.Tensor if isinstance(expected, nn.Parameter | nn.Buffer) else type(expected)
    if not hasattr(kind, "__tensor_flatten__"):
        assert type(actual) is torch.Tensor
        torch.testing.assert_close(actual, expected, rtol=0, atol=0)
        return
    assert type(actual) is kind and not actual.requires_grad
    assert actual.__tensor_flatten__() == expected.__tensor_flatten__()
    assert (actual.size(), actual.stride(), actual.dtype) == (expected.size(), expected.stride(), expected.dtype)
    for name in expected.__tensor_flatten__()[0]:
        mine, theirs = getattr(actual, name), getattr(expected, name)
        assert mine.stride() == theirs.stride()
        assert_same(mine, theirs)
