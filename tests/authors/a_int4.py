"""(a) Four bits in groups: two codes in a byte, a scale and a zero point for each group of a row."""

import torch

import subclass_aot as sa

aten = torch.ops.aten


class Int4(sa.WrapperTensor, views="blocks"):
    """A weight whose rows are cut into groups; or the transpose of one, then `along` is 0."""

    packed: torch.Tensor  # uint8[M, N / 2]
    scale: torch.Tensor  # float[M, N / group]
    zero: torch.Tensor  # float[M, N / group]
    along: int = 1

    def outer(self):
        size = [2 * n if dim == self.along else n for dim, n in enumerate(self.packed.shape)]
        stride = [n if dim == self.along else 2 * n for dim, n in enumerate(self.packed.stride())]
        return sa.Outer.like(self.packed, size=size, stride=stride, dtype=self.scale.dtype)

    def groups(self):
        codes = torch.stack([self.packed & 15, self.packed >> 4], self.along + 1).flatten(self.along, self.along + 1)
        return codes.unflatten(self.along, (self.scale.shape[self.along], -1)) - self.zero.unsqueeze(self.along + 1)

    def to_plain(self):
        return (self.groups() * self.scale.unsqueeze(self.along + 1)).flatten(self.along, self.along + 1)

    def from_plain(self, plain):
        group = plain.shape[self.along] // self.scale.shape[self.along]
        return Int4.quantize(plain, group) if self.along else Int4.quantize(plain.t(), group).t()

    @classmethod
    def quantize(cls, weight, group=32):
        groups = weight.detach().unflatten(1, (-1, group))
        low, high = groups.aminmax(dim=-1, keepdim=True)
        scale = ((high - low) / 15).clamp(min=1e-8)
        zero = (-low / scale).round()
        codes = (groups / scale + zero).round().clamp(0, 15).to(torch.uint8).flatten(1)
        return cls(codes[:, ::2] | codes[:, 1::2] << 4, scale[..., 0], zero[..., 0])


@Int4.implements(aten.t.default)
def _(w):
    return Int4(w.packed.t(), w.scale.t(), w.zero.t(), 1 - w.along)


@Int4.implements(aten.mm.default)
def _(x, w):
    if isinstance(x, Int4) or w.along:
        return NotImplemented
    return torch.einsum("bgk,gkm,gm->bm", x.unflatten(1, (w.scale.shape[0], -1)), w.groups(), w.scale)
