"""(k) Complex numbers as two tensors."""

import functools

import torch

import subclass_aot as sa

aten = torch.ops.aten


class Complex(sa.WrapperTensor, views="broadcast"):
    """A tensor `real + 1j * imag`."""

    real: torch.Tensor
    imag: torch.Tensor

    def outer_metadata(self):
        return sa.Outer.like(self.real, dtype=self.real.dtype.to_complex())

    def to_plain(self):
        return torch.complex(self.real, self.imag)

    def from_plain(self, plain):
        return Complex(plain.real.clone(), plain.imag.clone())


def product(op, a, b):
    if not (isinstance(a, Complex) and isinstance(b, Complex)):
        return NotImplemented
    return Complex(op(a.real, b.real) - op(a.imag, b.imag), op(a.real, b.imag) + op(a.imag, b.real))


for op in (aten.mul.Tensor, aten.mm.default):
    Complex.implements(op)(functools.partial(product, op))
