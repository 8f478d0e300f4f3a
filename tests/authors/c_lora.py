"""(c) A frozen weight beside a product of two thin matrices, which are trained."""

import torch

import subclass_aot as sa


class Lora(sa.WrapperTensor):
    """A weight `base + b @ a`."""

    base: torch.Tensor  # [M, N]; may be a wrapper
    a: torch.Tensor  # [R, N]
    b: torch.Tensor  # [M, R]

    def outer_metadata(self):
        return sa.Outer.like(self.base, dtype=self.a.dtype)

    def to_plain(self):
        return self.base + self.b @ self.a

    def from_plain(self, plain):  # `a` may be memory that was never written
        return Lora(plain, self.a.nan_to_num(), torch.zeros_like(self.b))
