"""Wrapper classes for `sharded_ranks.py`: what FSDP2 carries of them, and what it cannot."""

from __future__ import annotations

from typing import Any

import torch

from subclass_aot import Int8Weight, Outer, WrapperTensor


class Rows(WrapperTensor, views="broadcast"):
    """A class whose author has written no rule."""

    codes: torch.Tensor
    scale: torch.Tensor

    def outer_metadata(self) -> Outer:
        return Outer.like(self.codes, dtype=self.scale.dtype)

    def to_plain(self) -> torch.Tensor:
        return self.codes.to(self.scale.dtype) * self.scale

    def from_plain(self, plain: torch.Tensor) -> Rows:
        dims = [dim for dim in range(plain.dim()) if self.scale.shape[dim] == 1]
        scale = plain.abs().amax(dims, keepdim=True).clamp(min=1e-9) / 127 if dims else plain.abs() / 127
        return Rows((plain / scale).round().to(torch.int8), scale)


class Coded(WrapperTensor, views={"table": "keep"}):
    """Codes that say which entry of a table, which is the same for every part."""

    codes: torch.Tensor
    table: torch.Tensor

    def outer_metadata(self) -> Outer:
        return Outer.like(self.codes, dtype=self.table.dtype)

    def to_plain(self) -> torch.Tensor:
        return self.table[self.codes.long()]

    def from_plain(self, plain: torch.Tensor) -> Coded:
        return Coded((plain[..., None] - self.table).abs().argmin(-1).to(torch.uint8), self.table)


class OfParts(WrapperTensor, views="broadcast"):
    """A wrapper of a wrapper, and a list of further parts."""

    weight: torch.Tensor
    more: list[torch.Tensor]

    def to_plain(self) -> torch.Tensor:
        plain = self.weight.to_plain() if hasattr(self.weight, "to_plain") else self.weight
        return plain + sum(self.more)  # type: ignore[no-any-return]

    def from_plain(self, plain: torch.Tensor) -> OfParts:
        rest = plain - sum(self.more)
        weight = self.weight.from_plain(rest) if hasattr(self.weight, "from_plain") else rest
        return OfParts(weight, [each.clone() for each in self.more])


class Rounding(WrapperTensor, views="broadcast"):
    """A float weight that an author's hooks send in eight bits."""

    value: torch.Tensor

    def to_plain(self) -> torch.Tensor:
        return self.value

    def from_plain(self, plain: torch.Tensor) -> Rounding:
        return Rounding(plain)

    def fsdp_pre_all_gather(self, mesh: Any, outer_size: Any, outer_stride: Any, module: Any, mp_policy: Any) -> Any:
        weight = Int8Weight.from_float(self.value)
        return (weight.codes, weight.scale), None

    def fsdp_post_all_gather(self, outputs: Any, metadata: Any, param_dtype: Any, *, out: Any = None) -> Any:  # type: ignore[override]
        return None if out is not None else (Int8Weight(*outputs), outputs)


class Offsets(WrapperTensor, fallback="each"):
    content: torch.Tensor
    offsets: torch.Tensor


class Packed(WrapperTensor):
    """Two codes in a byte; nothing is said of views."""

    packed: torch.Tensor
    scale: torch.Tensor

    def outer_metadata(self) -> Outer:
        rows, half = self.packed.shape
        return Outer((rows, half * 2), None, dtype=self.scale.dtype, device=self.scale.device)

    def to_plain(self) -> torch.Tensor:
        codes = torch.stack([self.packed & 15, self.packed >> 4], -1).flatten(1).to(self.scale.dtype)
        return codes * self.scale


class Plain(WrapperTensor):
    """Of which nothing is said."""

    value: torch.Tensor

    def to_plain(self) -> torch.Tensor:
        return self.value

    def from_plain(self, plain: torch.Tensor) -> Plain:
        return Plain(plain)
