"""(e) Rows of different lengths."""

import torch

import subclass_aot as sa

aten = torch.ops.aten


class Jagged(sa.WrapperTensor):
    """A batch `[B, longest, D]`, as if it were padded with zeros. Two that are added have the same lengths."""

    flat: torch.Tensor  # [total, D]
    offsets: torch.Tensor = sa.structure()  # int64[B + 1]
    longest: int = 0

    def outer_metadata(self):
        return sa.Outer.like(self.flat, size=(self.offsets.shape[0] - 1, self.longest, *self.flat.shape[1:]))

    def places(self):
        each = torch.arange(self.flat.shape[0], device=self.flat.device)
        rows = torch.bucketize(each, self.offsets[1:], right=True)
        return rows, each - self.offsets[rows]

    def to_plain(self):
        return self.flat.new_zeros(self.shape).index_put(self.places(), self.flat)

    def from_plain(self, plain):
        return Jagged(plain[self.places()], self.offsets, self.longest)

    @classmethod
    def of(cls, *rows):
        return cls(torch.cat(rows), torch.tensor([0, *map(len, rows)]).cumsum(0), max(map(len, rows)))


@Jagged.implements(sa.ops.pointwise)
def _(op, *args, **kwargs):
    like = next(a for a in args if isinstance(a, Jagged))

    def flat(a):
        return a.flat if isinstance(a, Jagged) else a.expand(like.shape)[like.places()] if a.dim() else a

    out = op(*(flat(a) if isinstance(a, torch.Tensor) else a for a in args), **kwargs)
    return Jagged(out, like.offsets.clone(), like.longest)


@Jagged.implements(sa.ops.reductions)
def _(op, x, dim=(), *options, **kwargs):
    if dim == () and not kwargs:
        return op(x.flat)
    if op is not aten.sum.dim_IntList or [d % x.dim() for d in dim or ()] != [1] or options or kwargs:
        return NotImplemented
    return x.flat.new_zeros(x.shape[0], *x.shape[2:]).index_add(0, x.places()[0], x.flat)
