"""(d) A tensor of which only some elements count."""

import math

import torch

import subclass_aot as sa

aten = torch.ops.aten
NEUTRAL = {aten.sum: 0, aten.mean: 0, aten.all: True, aten.amax: -math.inf, aten.max: -math.inf, aten.amin: math.inf}


class Masked(sa.WrapperTensor, views="broadcast"):
    """Operators that know nothing of masks see zeros where an element does not count."""

    values: torch.Tensor
    mask: torch.Tensor = sa.structure()

    def to_plain(self):
        return self.values.masked_fill(~self.mask, 0)

    def from_plain(self, plain):
        return Masked(plain.clone(), self.mask)


@Masked.implements(sa.ops.pointwise, aten.ones_like)
def _(op, *args, **kwargs):
    out = op(*(a.values if isinstance(a, Masked) else a for a in args), **kwargs)
    masks = torch.broadcast_tensors(out, *(a.mask for a in args if isinstance(a, Masked)))[1:]
    return Masked(out, torch.stack(masks).all(0))


@Masked.implements(sa.ops.reductions - {aten.linalg_vector_norm, aten.max.dim, aten.min.dim})
def _(op, x, *args, **kwargs):
    filled = x.values.masked_fill(~x.mask, NEUTRAL[op.overloadpacket])  # of others, nobody has said what they are
    out = op(filled, *args, **kwargs)
    if op.overloadpacket is aten.mean:
        out = out / op(x.mask.to(out.dtype), *args)
    return Masked(out, x.mask.any(*(None if a == [] else a for a in args)))  # all dims, by another name
