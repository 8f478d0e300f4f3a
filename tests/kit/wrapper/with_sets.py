"""Classes whose rules are for sets of operators: a masked, a jagged and a physical tensor."""

from __future__ import annotations

import functools
from typing import Any

import torch

from subclass_aot import ops
from subclass_aot.kit.wrapper import Outer, WrapperTensor, structure

aten: Any = torch.ops.aten


class Masked(WrapperTensor, views="broadcast"):
    """A tensor of which only some elements count."""

    content: torch.Tensor
    mask: torch.Tensor = structure()


@Masked.implements(ops.pointwise)
def _(op: Any, *args: Any, **kwargs: Any) -> Masked:
    out = op(*[a.content if isinstance(a, Masked) else a for a in args], **kwargs)
    mask = functools.reduce(torch.logical_and, [a.mask for a in args if isinstance(a, Masked)])
    return Masked(out, mask.expand(out.shape).clone())


@Masked.implements(ops.factories)
def _(op: Any, x: Masked, *args: Any, **kwargs: Any) -> Any:
    out = op(x.content, *args, **kwargs)
    return Masked(out, x.mask.clone()) if out.shape == x.shape else NotImplemented


NEUTRAL = {aten.sum: 0, aten.mean: 0, aten.prod: 1, aten.amax: float("-inf"), aten.amin: float("inf")}


@Masked.implements(ops.reductions)
def _(op: Any, x: Masked, *args: Any, **kwargs: Any) -> Any:
    if op.overloadpacket not in NEUTRAL:
        return NotImplemented
    out = op(x.content.where(x.mask, NEUTRAL[op.overloadpacket]), *args, **kwargs)
    if op.overloadpacket is aten.mean:
        out = out / op(x.mask.to(out.dtype), *args, **kwargs)
    return Masked(out, x.mask.any(*args))


class Jagged(WrapperTensor):
    """A batch of rows of different lengths, which looks as if it were padded."""

    flat: torch.Tensor  # [total, D]
    offsets: torch.Tensor = structure()  # int64[B + 1]
    longest: int = 0

    def outer_metadata(self) -> Outer:
        return Outer.like(self.flat, size=(self.offsets.shape[0] - 1, self.longest, *self.flat.shape[1:]), stride=None)

    def places(self) -> tuple[torch.Tensor, torch.Tensor]:
        each = torch.arange(self.flat.shape[0])
        rows = torch.bucketize(each, self.offsets[1:], right=True)
        return rows, each - self.offsets[rows]

    def to_plain(self) -> torch.Tensor:
        return self.flat.new_zeros(self.shape).index_put(self.places(), self.flat)

    @classmethod
    def of(cls, *rows: torch.Tensor) -> Jagged:
        return cls(torch.cat(rows), torch.tensor([0, *map(len, rows)]).cumsum(0), max(map(len, rows)))


@Jagged.implements(ops.pointwise, ops.factories)
def _(op: Any, *args: Any, **kwargs: Any) -> Any:
    like = next(a for a in args if isinstance(a, Jagged))

    def flat(a: Any) -> Any:
        return a.flat if isinstance(a, Jagged) else a.expand(like.shape)[like.places()] if a.dim() else a

    out = op(*[flat(a) if isinstance(a, torch.Tensor) else a for a in args], **kwargs)
    return Jagged(out, like.offsets.clone(), like.longest) if out.shape == like.flat.shape else NotImplemented


@Jagged.implements(aten.sum.dim_IntList)
def _(x: Jagged, dim: list[int], *options: Any, **kwargs: Any) -> Any:
    if [d % x.dim() for d in dim] != [1] or options or kwargs:
        return NotImplemented
    return x.flat.new_zeros(x.shape[0], *x.shape[2:]).index_add(0, x.places()[0], x.flat)


class UnitError(ValueError):
    """Units do not fit together."""


class Quantity(WrapperTensor, views="broadcast"):
    """A number with a unit."""

    number: torch.Tensor
    unit: tuple[tuple[str, int], ...] = ()


def _product(*powers: tuple[tuple[tuple[str, int], ...], float]) -> tuple[tuple[str, int], ...]:
    names = sorted({name for unit, _ in powers for name, _ in unit})
    total = {name: sum(dict(unit).get(name, 0) * power for unit, power in powers) for name in names}
    return tuple((name, int(n)) for name, n in total.items() if n)


ALIKE = {aten.add, aten.sub, aten.maximum, aten.neg, aten.abs, aten.lerp, aten.sum, aten.mean, aten.amax}


@Quantity.implements(ops.pointwise, ops.reductions, ops.factories, aten.mm.default, aten.bmm.default, aten.cat.default)
def _(op: Any, *args: Any, **kwargs: Any) -> Quantity:
    tensors = args[0] if op is aten.cat.default else [a for a in args if isinstance(a, torch.Tensor)]
    units, name = [a.unit if isinstance(a, Quantity) else () for a in tensors], op.overloadpacket
    if name in (aten.mul, aten.mm, aten.bmm):
        unit = _product(*((u, 1) for u in units))
    elif name is aten.div:
        unit = _product(*((u, 1 if i == 0 else -1) for i, u in enumerate(units)))
    elif op is aten.pow.Tensor_Scalar:
        unit = _product((units[0], args[1]))
    elif len(set(units)) > 1 or units[0] and not (name in ALIKE or op in ops.factories or name is aten.cat):
        raise UnitError(f"{op} of {units}")
    else:
        unit = () if name is aten.ones_like else units[0]  # ones are the seed of a gradient, and have no unit
    plain = [[p.number for p in a] if a is tensors else a.number if isinstance(a, Quantity) else a for a in args]
    return Quantity(op(*plain, **kwargs), unit)
