"""Rules of AOTAutograd that have private names only."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch


@functools.cache
def descriptors() -> Any:
    """Returns AOTAutograd's own descriptors of graph inputs and outputs, for tools that read them.

    It has no public name.
    """
    from torch._functorch._aot_autograd import descriptors as torchs

    return torchs


def memory_format_meta(tensor: torch.Tensor) -> Any:
    """Returns what AOTAutograd notes of the strides that a tangent like a tensor is expected to have.

    It has no public name. Where it goes, metas have no `memory_format`.
    """
    from torch._functorch._aot_autograd.schemas import MemoryFormatMeta

    return MemoryFormatMeta.from_tensor(tensor)


def plain_meta(position: int) -> Any:
    """Returns AOTAutograd's own meta of a value that is one slot.

    It has no public name, and is in metas that users bring.
    """
    from torch._functorch._aot_autograd.schemas import PlainTensorMeta

    return PlainTensorMeta(position)


def mirror_autograd(source: torch.Tensor, target: torch.Tensor) -> None:
    """Gives a tensor the `requires_grad` and the place in autograd's graph of another, as AOTAutograd does.

    It has no public name. Where it goes, `target.requires_grad_(source.requires_grad)` is what matters of it.
    """
    torch._mirror_autograd_meta_to(source, target)  # type: ignore[attr-defined]


def within_tracing(mode: Any) -> Any:
    """Returns a block in which torch's partitioners find the fake mode of a trace; they need it to save states of
    random numbers.

    It has no public name. Where it goes, so does the need: the partitioners look at the inputs that they are given.
    """
    return torch._guards.tracing(torch._guards.TracingContext(mode))


def held_input(path: str, number: int) -> Any:
    """Returns a descriptor of torch's kind for a tensor that an object holds. AOTAutograd has none that may have a
    gradient.

    AOTAutograd has none that may have a gradient.
    """
    return _further()[0](path, number)


def live_input(base: Any) -> Any:
    """Returns a descriptor of torch's kind for an input as it is when backward runs. AOTAutograd has no such input."""
    return _further()[1](base)


@functools.cache
def _further() -> tuple[Any, Any]:
    """Returns kinds of inputs that AOTAutograd does not have, in its own classes, by which its helpers sort them."""
    torchs = descriptors()

    @dataclass(frozen=True)
    class HeldAOTInput(torchs.DifferentiableAOTInput):  # type: ignore[misc, name-defined]
        __qualname__ = "HeldAOTInput"
        path: str
        number: int

        def expr(self) -> str:
            return self.path

    @dataclass(frozen=True)
    class LiveAOTInput(torchs.AOTInput):  # type: ignore[misc, name-defined]
        __qualname__ = "LiveAOTInput"
        base: Any

        def expr(self) -> str:
            return f"{self.base.expr()} when backward runs"

    return HeldAOTInput, LiveAOTInput


BOXED = "_boxed_call"
"""The attribute by which a function says whether it takes its arguments as one list, which AOTAutograd made a rule."""


def unboxed(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns what `functorch.compile.make_boxed_func` was given, if it made this function; else the function itself.

    It keeps that where `functools.wraps` does. When it does not: the function itself.
    """
    within = getattr(function, "__wrapped__", None)
    if within is None or not getattr(function, BOXED, False):
        return function
    from functorch.compile import make_boxed_func

    return within if getattr(function, "__code__", None) is make_boxed_func(len).__code__ else function
