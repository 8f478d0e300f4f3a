"""Random wrapper trees: classes that cover what a wrapper may be, and recipes that make tensors of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st

from subclass_aot.base import _torch
from subclass_aot.kit.wrapper import WrapperTensor
from subclass_aot.tensors import Int8Weight, LoraWeight, MaskedTensor, NF4Weight, QuantAwareWeight, TwoTensor

aten: Any = torch.ops.aten
ForeignTwoTensor = _torch.wrappers.foreign_two_tensor()


class Tagged(WrapperTensor, fallback="each"):
    """Has an optional inner tensor and a context."""

    value: torch.Tensor
    extra: torch.Tensor | None = None
    tag: int = 0


class Scaled(WrapperTensor, views="broadcast"):
    """Stands for `codes * scale`; its inner tensors have different sizes, and most operators give a dense tensor."""

    codes: torch.Tensor
    scale: torch.Tensor

    def to_plain(self) -> torch.Tensor:
        return self.codes * self.scale

    def from_plain(self, plain: torch.Tensor) -> Scaled:
        return Scaled(plain / self.scale, self.scale)


def _make_room(func: Callable[..., torch.Tensor]) -> None:
    """A new `Scaled` has scales of one, so that a value that is copied into it later is kept."""

    @Scaled.implements(func)
    def rule(self: Scaled, *args: object, **kwargs: object) -> Scaled:
        codes = func(self.codes, *args, **kwargs)
        return Scaled(codes, codes.new_ones((*codes.shape[:-1], 1) if codes.dim() else ()))


for _func in (aten.empty_like, aten.zeros_like, aten.new_empty, aten.new_zeros, aten.new_empty_strided):
    _make_room(_func.default)


class Parts(WrapperTensor, fallback="each"):
    """Has a list of inner tensors."""

    parts: list[torch.Tensor]


Fill = Callable[[tuple[int, ...]], torch.Tensor]


@dataclass(frozen=True)
class Tree:
    """A recipe for tensors of one class.

    Attributes:
        kind: A key of `KINDS` or `READY_MADE`, or "dense".
        inner: Recipes of the inner tensors.
        tag: The context, where the class has one.
    """

    kind: str
    inner: tuple[Tree, ...] = ()
    tag: int = 0

    def make(self, size: tuple[int, ...], fill: Fill) -> Any:
        """A tensor of `size`; `fill` makes its leaves."""
        if self.kind == "dense":
            return fill(size)
        return {**KINDS, **READY_MADE}[self.kind](self, size, fill)

    def __repr__(self) -> str:
        inside = [repr(tree) for tree in self.inner] + ([str(self.tag)] if self.tag else [])
        return f"{self.kind}({', '.join(inside)})" if inside else self.kind


def _two(tree: Tree, size: tuple[int, ...], fill: Fill) -> Any:
    return TwoTensor(*[inner.make(size, fill) for inner in tree.inner])


def _foreign(tree: Tree, size: tuple[int, ...], fill: Fill) -> Any:
    return ForeignTwoTensor(*[inner.make(size, fill) for inner in tree.inner])


def _tagged(tree: Tree, size: tuple[int, ...], fill: Fill) -> Any:
    value, *rest = [inner.make(size, fill) for inner in tree.inner]
    return Tagged(value, rest[0] if rest else None, tree.tag)


def _scaled(tree: Tree, size: tuple[int, ...], fill: Fill) -> Any:
    return Scaled(fill(size), fill((*size[:-1], 1) if size else ()))


def _parts(tree: Tree, size: tuple[int, ...], fill: Fill) -> Any:
    return Parts([inner.make(size, fill) for inner in tree.inner])


KINDS: dict[str, Callable[[Tree, tuple[int, ...], Fill], Any]] = {
    "TwoTensor": _two,
    "Tagged": _tagged,
    "Scaled": _scaled,
    "Parts": _parts,
    "ForeignTwoTensor": _foreign,
}
"""What makes a tensor of each kind of tree; tests may add classes of their own."""


def _of_matrix(make: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Tree, tuple[int, ...], Fill], Any]:
    """Returns what makes a tensor of `make` where it is a matrix of floats, and else a dense one."""

    def made(tree: Tree, size: tuple[int, ...], fill: Fill) -> Any:
        dense = fill(size)
        return make(dense) if dense.dim() == 2 and dense.is_floating_point() and 0 not in size else dense

    return made


def _lora(dense: torch.Tensor) -> torch.Tensor:
    rows, columns = dense.shape
    return LoraWeight(Int8Weight.from_float(dense), dense.new_ones(rows, 2), dense.new_full((2, columns), 0.5), 0.5)


READY_MADE: dict[str, Callable[[Tree, tuple[int, ...], Fill], Any]] = {
    "Int8Weight": _of_matrix(Int8Weight.from_float),
    "LoraWeight": _of_matrix(_lora),
    "NF4Weight": _of_matrix(lambda dense: dense if dense.shape[1] % 2 else NF4Weight.from_float(dense, 2)),
    "QuantAwareWeight": _of_matrix(lambda dense: QuantAwareWeight(dense)),
    "MaskedTensor": lambda tree, size, fill: MaskedTensor(fill(size), fill(size).abs() > 1),
}
"""The same for classes that people use, of which most hold codes: not each operator has a result of the class."""

_INNER_COUNT = {"Tagged": (1, 2), "Scaled": (0, 0), "Parts": (1, 3), **dict.fromkeys(READY_MADE, (0, 0))}


@st.composite
def trees(draw: st.DrawFn, depth: int = 2, ready_made: bool = False) -> Tree:
    """Recipes of up to `depth` wrappers inside each other; a third of them are dense.

    Args:
        draw: Hypothesis gives it.
        depth: The most wrappers inside each other.
        ready_made: Whether those of `READY_MADE` are drawn, too, which hold dense tensors alone.
    """
    if ready_made and draw(st.integers(0, 4)) == 0:
        return Tree(draw(st.sampled_from(sorted(READY_MADE))))
    kind = draw(st.sampled_from(["dense", "dense", "TwoTensor", *sorted(KINDS)])) if depth else "dense"
    if kind == "dense":
        return Tree(kind)
    count = draw(st.integers(*_INNER_COUNT.get(kind, (2, 2))))
    first = draw(trees(depth - 1)) if count and draw(st.integers(0, 3)) == 0 else Tree("dense")
    same = draw(st.booleans())
    inner = [first, *([first] if same else [Tree("dense")]) * (count - 1)][:count]
    return Tree(kind, tuple(inner), draw(st.integers(0, 1)) if kind == "Tagged" else 0)
