"""Wrapper classes that several tests of this room are about."""

from __future__ import annotations

from typing import Any

import torch

from subclass_aot.kit.wrapper import Outer, WrapperTensor


def fresh(**keywords: Any) -> type[Any]:
    class Fresh(WrapperTensor, **keywords):
        payload: torch.Tensor

    return Fresh


class Pair(WrapperTensor, fallback="each"):
    left: torch.Tensor
    right: torch.Tensor


class Many(WrapperTensor, fallback="each"):
    members: list[torch.Tensor]
    mask: torch.Tensor | None = None
    label: str = ""


def pair(*size: int, seed: int = 0) -> Pair:
    generator = torch.Generator().manual_seed(seed)
    return Pair(torch.randn(size, generator=generator), torch.randn(size, generator=generator))


def assert_pair(actual: Any, left: torch.Tensor, right: torch.Tensor) -> None:
    assert type(actual) is Pair
    for mine, theirs in ((actual.left, left), (actual.right, right)):
        torch.testing.assert_close(mine, theirs, equal_nan=True)
    assert (actual.shape, actual.stride(), actual.storage_offset(), actual.dtype) == (
        left.shape,
        left.stride(),
        left.storage_offset(),
        left.dtype,
    )


class Scaled(WrapperTensor, views={"table": "keep"}):
    """Stands for `table[codes] * scale + shift`."""

    codes: torch.Tensor
    scale: torch.Tensor
    shift: torch.Tensor
    table: torch.Tensor

    def outer_metadata(self) -> Outer:
        return Outer.like(self.codes, dtype=self.scale.dtype)

    def to_plain(self) -> torch.Tensor:
        return self.table[self.codes] * self.scale + self.shift


def scaled(*size: int, scale: tuple[int, ...] = (3, 1)) -> Scaled:
    generator = torch.Generator().manual_seed(0)
    codes = torch.randint(0, 5, size or (3, 4), generator=generator)
    return Scaled(codes, torch.rand(scale, generator=generator), torch.tensor(0.5), torch.rand(5, generator=generator))


class Rounded(WrapperTensor, views="broadcast"):
    """Stands for its codes, which are whole numbers of `step`."""

    codes: torch.Tensor
    step: torch.Tensor

    def outer_metadata(self) -> Outer:
        return Outer.like(self.codes, dtype=self.step.dtype)

    def to_plain(self) -> torch.Tensor:
        return self.codes * self.step

    def from_plain(self, plain: torch.Tensor) -> Rounded:
        return Rounded((plain / self.step).round().to(self.codes.dtype), self.step)


def rounded() -> Rounded:
    return Rounded(torch.arange(6).view(2, 3), torch.full((1, 1), 0.5))


class Everything(WrapperTensor):
    first: torch.Tensor
    parts: list[torch.Tensor]
    table: dict[str, torch.Tensor]
    extra: torch.Tensor | None = None
    bits: int = 8


def everything(**changes: object) -> Everything:
    fields: dict[str, object] = {
        "first": torch.zeros(2, 3),
        "parts": [torch.ones(1), torch.ones(2)],
        "table": {"left": torch.ones(3), "right": torch.ones(4)},
    }
    return Everything(**{**fields, **changes})


class Labelled(WrapperTensor):
    codes: torch.Tensor
    scale: torch.Tensor
    label: str = "w"

    def dtype_outside(self) -> torch.dtype:
        return self.scale.dtype

    def outer_metadata(self) -> Outer:
        return Outer.like(self.codes, dtype=self.dtype_outside())
