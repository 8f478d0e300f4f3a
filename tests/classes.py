"""Wrapper classes that several tests are about."""

from __future__ import annotations

from typing import Any

import torch


class Flat(torch.Tensor):
    """A matrix stored as a vector, by another library: no inner tensor has the outer rank, and no rule tells it."""

    @staticmethod
    def __new__(cls, data: torch.Tensor, size: Any) -> Flat:
        flat = torch.Tensor._make_wrapper_subclass(cls, size, dtype=data.dtype)
        flat.data_ = data
        return flat

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        return ["data_"], None

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, Any], context: Any, size: Any, stride: Any) -> Flat:
        return Flat(inner["data_"], size)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.detach.default:
            return Flat(args[0].data_.detach(), args[0].shape)
        if func is torch.ops.aten.mul.Tensor and not isinstance(args[1], torch.Tensor):
            return Flat(args[0].data_ * args[1], args[0].shape)
        if func is torch.ops.aten.sum.default:
            return args[0].data_.sum()
        return NotImplemented
