"""(i) Eight bits of floating point, and a layer whose scale is that of its last call."""

import torch

import subclass_aot as sa


class Float8(sa.WrapperTensor, views={"scale": "keep"}):
    """A tensor `bits * scale`."""

    bits: torch.Tensor  # float8_e4m3fn
    scale: torch.Tensor  # float[]

    def outer_metadata(self):
        return sa.Outer.like(self.bits, dtype=self.scale.dtype)

    def to_plain(self):
        return self.bits.to(self.scale.dtype) * self.scale

    def from_plain(self, plain):
        return Float8.quantize(plain, torch.nn.functional.pad(plain.abs().flatten(), (0, 1)).amax())

    @classmethod
    def quantize(cls, x, amax):
        scale = (amax / 448).clamp(min=1e-12).to(x.dtype)
        return cls((x / scale).clamp(-448, 448).to(torch.float8_e4m3fn), scale)


@Float8.implements(torch.ops.aten.mm.default)
def _(a, b):
    if not (isinstance(a, Float8) and isinstance(b, Float8)) or a.dtype is torch.float64:
        return NotImplemented
    return torch._scaled_mm(a.bits, b.bits, scale_a=a.scale.float(), scale_b=b.scale.float(), out_dtype=a.dtype)


class ToFloat8(torch.autograd.Function):
    """Rounds, and passes gradients on as they are."""

    forward = staticmethod(lambda ctx, x, amax: Float8.quantize(x, amax))
    backward = staticmethod(lambda ctx, gradient: (gradient, None))


class Float8Linear(torch.nn.Linear):
    """Rounds `x` with the largest number of the last call, and notes that of this one."""

    def __init__(self, *sizes):
        super().__init__(*sizes, bias=False)
        self.register_buffer("amax", torch.ones(()))

    def forward(self, x):
        seen = self.amax.clone()
        self.amax.copy_(x.detach().abs().amax())
        return ToFloat8.apply(x, seen) @ ToFloat8.apply(self.weight, self.weight.detach().abs().amax()).t()
