"""(g) A number with a unit."""

import torch

import subclass_aot as sa

aten = torch.ops.aten


NONE = (0, 0, 0)
SIGNS = {"mul": (1, 1), "mm": (1, 1), "bmm": (1, 1), "div": (1, -1), "fill": (1, 0), "reciprocal": (-1,)}
SAME = "add sub neg abs maximum sum mean amax max sgn eq ne lt le gt equal cat stack index zero _local_scalar_dense"
OTHERS = [getattr(aten, name) for name in "mm bmm cat stack index equal zero fill _local_scalar_dense".split()]


class UnitError(ValueError):
    """Units do not fit together."""


class Quantity(sa.WrapperTensor, views="broadcast"):
    """A number, with the powers of metre, kilogram and second that are its unit."""

    number: torch.Tensor
    unit: tuple[float, ...] = NONE

    def from_plain(self, plain):
        return Quantity(plain.clone(), self.unit)


def number(a):
    return a.number if isinstance(a, Quantity) else [*map(number, a)] if isinstance(a, list) else a


@Quantity.implements(sa.ops.pointwise, sa.ops.reductions, sa.ops.factories, *OTHERS)
def _(op, *args, **kwargs):
    tensors = args[0] if isinstance(args[0], list) else [a for a in args if isinstance(a, torch.Tensor)]
    units, name = [getattr(a, "unit", NONE) for a in tensors], op.overloadpacket.__name__
    same = not any(units[0]) or name in SAME.split() or op in sa.ops.factories
    if name in SIGNS:
        factors = [[sign * n for n in unit] for sign, unit in zip(SIGNS[name], units, strict=False)]
        unit = tuple(map(sum, zip(*factors, strict=True)))
    elif name == "pow":
        unit = tuple(n * args[1] for n in units[0])
    elif units.count(units[0]) < len(units) or not same:
        raise UnitError(f"{op} of {units}")
    else:
        unit = NONE if name in ("ones_like", "sgn") else units[0]
    out = op(*map(number, args), **kwargs)
    return Quantity(out, unit) if isinstance(out, torch.Tensor) and out.dtype != torch.bool else out
