"""(a) Four bits in groups: two codes in a byte, a scale and a zero point for each group of a row."""

import torch

import subclass_aot as sa


class Int4(sa.WrapperTensor, views="blocks"):
    """A weight `[M, N]` whose rows are cut into groups."""

    accepts = (sa.ViewOf,)
    packed: torch.Tensor  # uint8[M, N / 2]
    scale: torch.Tensor  # float[M, N / group]
    zero: torch.Tensor  # float[M, N / group]

    def outer_metadata(self):
        rows, half = self.packed.shape
        return sa.Outer.like(self.packed, size=(rows, 2 * half), dtype=self.scale.dtype)

    def groups(self):
        codes = torch.stack([self.packed & 15, self.packed >> 4], -1).flatten(1)
        return codes.unflatten(1, (self.scale.shape[1], -1)) - self.zero[..., None]

    def to_plain(self):
        return (self.groups() * self.scale[..., None]).flatten(1)

    def from_plain(self, plain):
        return Int4.quantize(plain, plain.shape[1] // self.scale.shape[1])

    @classmethod
    def quantize(cls, weight, group=32):
        groups = weight.detach().unflatten(1, (-1, group))
        low, high = groups.aminmax(dim=-1, keepdim=True)
        scale = ((high - low) / 15).clamp(min=1e-8)
        zero = (-low / scale).round()
        codes = (groups / scale + zero).round().clamp(0, 15).to(torch.uint8).flatten(1)
        return cls(codes[:, ::2] | codes[:, 1::2] << 4, scale[..., 0], zero[..., 0])


@Int4.implements(torch.ops.aten.mm.default)
def _(x, w):
    if not isinstance(w, sa.ViewOf) or not w.is_transposed or isinstance(x, sa.WrapperTensor):
        return NotImplemented
    groups = x.unflatten(1, (w.base.scale.shape[1], -1))
    return torch.einsum("bgk,mgk,mg->bm", groups, w.base.groups(), w.base.scale)
