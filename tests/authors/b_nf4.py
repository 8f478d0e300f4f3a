"""(b) Four bits for quantiles of the normal distribution, with scales that are quantized, too."""

import torch

import subclass_aot as sa

LEVELS = (
    *(-1.0, -0.6962, -0.5251, -0.3949, -0.2844, -0.1848, -0.0911, 0.0),
    *(0.0796, 0.1609, 0.2461, 0.3379, 0.4407, 0.5626, 0.723, 1.0),
)


class NF4Weight(sa.WrapperTensor, views={"packed": "blocks", "scales": "blocks"}):
    """A weight `[M, N]` of which each block has one scale: the mean of its row's scales, and the difference from it."""

    packed: torch.Tensor  # uint8[M, N / 2]
    scales: sa.Int8Weight  # float[M, N / block]
    center: torch.Tensor  # float[M, 1]

    def outer_metadata(self):
        rows, half = self.packed.shape
        return sa.Outer.like(self.packed, size=(rows, 2 * half), dtype=self.center.dtype)

    def to_plain(self):
        codes = torch.stack([self.packed >> 4, self.packed & 15], -1).flatten(1).int()
        levels = torch.tensor(LEVELS, dtype=self.dtype, device=self.device)[codes]
        return (levels.unflatten(1, (self.scales.shape[1], -1)) * (self.scales + self.center)[..., None]).flatten(1)

    def from_plain(self, plain):
        return NF4Weight.quantize(plain, plain.shape[1] // self.scales.shape[1])

    @classmethod
    def quantize(cls, weight, block=64):
        blocks = weight.detach().unflatten(1, (-1, block))
        largest = blocks.abs().amax(-1)
        center = largest.mean(1, keepdim=True)
        scales = sa.Int8Weight.from_float(largest - center)
        levels = torch.tensor(LEVELS, device=weight.device) * (scales + center).clamp(min=1e-12)[..., None, None]
        codes = (blocks[..., None] - levels).abs().argmin(-1).flatten(1).to(torch.uint8)
        return cls(codes[:, ::2] << 4 | codes[:, 1::2], scales, center)
