"""What the weights of a model are: by class, how many, how many elements and how many bytes."""

from __future__ import annotations

import collections
from dataclasses import dataclass

import torch
from torch import nn

from subclass_aot.base import _torch


@dataclass(frozen=True)
class Weight:
    """A parameter or a buffer of a model.

    Attributes:
        names: Its names; several where it is tied.
        cls: The name of its class: "dense" of a plain one.
        elements: How many elements it has.
        nbytes: The bytes that it takes.
        dense_nbytes: Those that it would take as a dense tensor of its dtype.
    """

    names: tuple[str, ...]
    cls: str
    elements: int
    nbytes: int
    dense_nbytes: int


@dataclass(frozen=True)
class Weights:
    """The weights of a model. Printed, a table of their classes.

    Attributes:
        all: Each weight, in the order of the model.
    """

    all: tuple[Weight, ...]

    @property
    def dense(self) -> tuple[Weight, ...]:
        """Those that are plain tensors, the largest first."""
        return tuple(sorted((x for x in self.all if x.cls == "dense"), key=lambda x: -x.nbytes))

    @property
    def nbytes(self) -> int:
        """The bytes that all take."""
        return sum(x.nbytes for x in self.all)

    def __repr__(self) -> str:
        counts = collections.Counter(x.cls for x in self.all)
        return f"<Weights: {', '.join(f'{n:,} {cls}' for cls, n in counts.items())}, {self.nbytes:,} bytes>"

    def __str__(self) -> str:
        """Returns a line for each class, and one for all."""
        lines = [f"{'':18}{'weights':>9}{'elements':>16}{'bytes':>16}{'of dense':>10}"]
        for cls in dict.fromkeys(x.cls for x in self.all):
            lines.append(_line(cls, [x for x in self.all if x.cls == cls]))
        lines.append(_line("all", list(self.all)))
        if self.dense:
            largest = ", ".join(f"{x.names[0]} ({x.nbytes:,})" for x in self.dense[:3])
            lines.append(f"the largest dense ones: {largest}")
        return "\n".join(lines)


def _line(name: str, weights: list[Weight]) -> str:
    elements, nbytes = sum(x.elements for x in weights), sum(x.nbytes for x in weights)
    part = nbytes / max(sum(x.dense_nbytes for x in weights), 1)
    return f"{name:18}{len(weights):>9}{elements:>16,}{nbytes:>16,}{part:>10.0%}"


def weights_of(module: nn.Module) -> Weights:
    """Returns what the parameters and buffers of a model are.

    Args:
        module: Any module.

    >>> from subclass_aot import Int8Weight, quantize_
    >>> found = weights_of(quantize_(nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 8)), Int8Weight, "0"))
    >>> [(x.names, x.cls, x.nbytes) for x in found.all if x.elements > 64]
    [(('0.weight',), 'Int8Weight', 4352), (('1.weight',), 'dense', 2048)]
    """
    names: dict[int, list[str]] = {}
    tensors: dict[int, torch.Tensor] = {}
    named = *module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)
    for name, tensor in named:
        names.setdefault(id(tensor), []).append(name)
        tensors[id(tensor)] = tensor
    return Weights(tuple(_weight(names[key], tensor) for key, tensor in tensors.items()))


def _weight(names: list[str], tensor: torch.Tensor) -> Weight:
    is_wrapper = _torch.wrappers.is_traceable_wrapper_subclass(tensor)
    cls = type(tensor).__name__ if is_wrapper else "dense"
    return Weight(tuple(names), cls, tensor.numel(), _nbytes(tensor), tensor.numel() * tensor.dtype.itemsize)


def _nbytes(tensor: torch.Tensor) -> int:
    if not _torch.wrappers.is_traceable_wrapper_subclass(tensor):
        return tensor.numel() * tensor.dtype.itemsize
    inner = (getattr(tensor, name) for name in tensor.__tensor_flatten__()[0])
    return sum(_nbytes(x) for x in inner if isinstance(x, torch.Tensor))
