"""Classes that the contract is tried on: right ones, one by hand, and what the kit finds in a class."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import return_and_correct_aliasing
from torch.utils._pytree import tree_map_only

from subclass_aot import Int8Weight, Outer, QuantAwareWeight, TwoTensor, WrapperTensor
from subclass_aot.testing import check_subclass

aten: Any = torch.ops.aten

_PRODUCTS = ("x @ x.T", "x @ dense", "dense @ x", "linear", "linear with bias")
_OPERANDS = ("linear", "linear with bias", "bias", "x @ y", "y @ x", "embedding of a product")

PRODUCTS = {
    (number, name): "products see the rounded weight"
    for number, name in [
        *[(25, f"{name} in inference mode") for name in _PRODUCTS],
        *[(27, name) for name in (*_PRODUCTS, "drawn calls", "other forms")],
        (32, "gradient of linear"),
        *[(32, f"other operand of {name}") for name in _OPERANDS],
    ]
}


def two_tensor() -> TwoTensor:
    return TwoTensor(torch.randn(4, 6), torch.randn(4, 6))


def int8_weight() -> Int8Weight:
    return Int8Weight.from_float(torch.randn(4, 6))


def with_zero_point() -> Int8Weight:
    return Int8Weight(*(int8_weight().__dict__[name] for name in ("codes", "scale")), torch.rand(4, 1) * 9)


def quant_aware() -> QuantAwareWeight:
    return QuantAwareWeight(torch.randn(4, 6))


OURS: dict[str, tuple[Callable[[], Any], dict[tuple[int, str], str]]] = {
    "TwoTensor": (two_tensor, {}),
    "Int8Weight": (int8_weight, {}),
    "Int8Weight with a zero point": (with_zero_point, {}),
    "Int8Weight, transposed": (lambda: int8_weight().t(), {}),
    "Int8Weight in bfloat16": (lambda: Int8Weight.from_float(torch.randn(4, 6).bfloat16()), {}),
    "QuantAwareWeight": (quant_aware, PRODUCTS),
}


class Held(torch.Tensor):
    """One tensor and a note, by hand: right, and the base of classes that are not."""

    def __init_subclass__(cls, safe: bool = True) -> None:
        if safe:
            torch.serialization.add_safe_globals([cls])

    def __new__(cls, held: torch.Tensor, note: Any = "") -> Any:
        if held.requires_grad or held.is_neg() or held.is_conj():
            raise ValueError("held must not require grad, nor have the negative or conjugate bit")
        return torch.Tensor._make_wrapper_subclass(
            cls, held.shape, held.stride(), held.storage_offset(), dtype=held.dtype, device=held.device
        )

    def __init__(self, held: torch.Tensor, note: Any = "") -> None:
        self.held, self.note = held, note

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        return ["held"], self.note

    @classmethod
    def __tensor_unflatten__(cls, inner: dict[str, Any], context: Any, size: Any, stride: Any) -> Any:
        return cls(inner["held"], context)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(hasattr(other, "__tensor_flatten__") and not issubclass(other, Held) for other in types):
            return NotImplemented
        notes: list[Any] = []

        def unwrapped(tensor: Any) -> Any:
            notes.append(tensor.note)
            return tensor.held

        kwargs = kwargs or {}
        inner, inner_kwargs = tree_map_only(Held, unwrapped, (args, kwargs))
        out = tree_map_only(torch.Tensor, lambda x: cls(x, notes[0]), func(*inner, **inner_kwargs))
        return return_and_correct_aliasing(func, args, kwargs, out)

    def __repr__(self, *, tensor_contents: object = None) -> str:
        return "Held"

    def share_memory_(self) -> Any:
        raise NotImplementedError("torch ends the process here")

    @property
    def data(self) -> Any:
        return self.detach()

    @data.setter
    def data(self, other: Any) -> None:
        self.held = other.held

    __torch_function__ = torch._C._disabled_torch_function_impl


torch.serialization.add_safe_globals([Held])


class Scaled(WrapperTensor, views="broadcast"):
    """Codes and a scale for each row: right, and the base of classes that are not."""

    codes: torch.Tensor
    scale: torch.Tensor

    def outer_metadata(self) -> Outer:
        return Outer.like(self.codes, dtype=self.scale.dtype)

    def to_plain(self) -> torch.Tensor:
        return self.codes * self.scale

    def from_plain(self, plain: torch.Tensor) -> Any:
        return type(self)(plain.clone(), torch.ones_like(self.scale))


class Signed(WrapperTensor, views="broadcast"):
    """A tensor, or its negative as the context has it: right, and the base of a class that is not."""

    codes: torch.Tensor
    negated: bool = False

    def outer_metadata(self) -> Outer:
        return Outer.like(self.codes)

    def to_plain(self) -> torch.Tensor:
        return -self.codes if self.negated else self.codes * 1

    def from_plain(self, plain: torch.Tensor) -> Any:
        return type(self)(-plain if self.negated else plain.clone(), self.negated)


def signed(cls: type) -> Callable[..., Any]:
    def make(negated: bool = False) -> Any:
        return cls(torch.randn(4, 6), negated)

    return make


def scaled(cls: type, *size: int) -> Callable[[], Any]:
    rows, columns = size or (4, 6)
    return lambda: cls(torch.randn(rows, columns), torch.rand(rows, 1) + 0.5)


def held(cls: type, note: Callable[[], Any] = str) -> Callable[[], Any]:
    return lambda: cls(torch.randn(4, 6), note())


def broken(make: Callable[[], Any], only: Sequence[int], readings: Any = None) -> dict[str, str]:
    """What the kit finds to mend, by name, with what it says.

    Another process cannot import a lambda, so no pair of ranks is started: `test_processes.py` does.
    """
    report = check_subclass(lambda: make(), readings, only)
    return {finding.clause.name: finding.why for finding in report.broken}
