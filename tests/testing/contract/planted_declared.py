"""Right declared classes, in which `planted.py` plants mistakes."""

from __future__ import annotations

from typing import Any

import torch

import subclass_aot as sa

aten: Any = torch.ops.aten
E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
LEVELS = (*E2M1, *(-x for x in E2M1))


class NVFP4(sa.WrapperTensor, views="blocks"):
    """E2M1 codes, a scale for each group of four."""

    codes: torch.Tensor  # uint8[M, N]
    scale: torch.Tensor  # float[M, N / 4]

    def outer_metadata(self) -> Any:
        return sa.Outer.like(self.codes, dtype=self.scale.dtype)

    def to_plain(self) -> Any:
        levels = torch.tensor(LEVELS, device=self.device, dtype=self.scale.dtype)
        return levels[self.codes.int()] * self.scale.repeat_interleave(4, -1)

    def from_plain(self, plain: Any) -> Any:
        groups = plain.unflatten(-1, (-1, 4))
        scale = (groups.abs().amax(-1) / 6).clamp(min=1e-12)
        levels = torch.tensor(LEVELS, device=plain.device, dtype=plain.dtype)
        codes = ((groups / scale[..., None]).unsqueeze(-1) - levels).abs().argmin(-1)
        return NVFP4(codes.flatten(-2).to(torch.uint8), scale)


class Ternary(sa.WrapperTensor, views="broadcast"):
    """-1, 0, 1 times a scale for each row."""

    codes: torch.Tensor  # int8
    scale: torch.Tensor  # float[M, 1]
    accepts = (sa.ViewOf,)

    def outer_metadata(self) -> Any:
        return sa.Outer.like(self.codes, dtype=self.scale.dtype)

    def to_plain(self) -> Any:
        return self.codes.to(self.scale.dtype) * self.scale

    def from_plain(self, plain: Any) -> Any:
        shared = [d for d in range(plain.dim()) if self.scale.shape[d] == 1]
        scale = (plain.abs().amax(shared, keepdim=True) if shared else plain.abs()).clamp(min=1e-12)
        return Ternary((plain / scale).round().clamp(-1, 1).to(torch.int8), scale)


@Ternary.implements(aten.mm.default)
def ternary_mm(a: Any, b: Any) -> Any:
    if not isinstance(b, Ternary) or isinstance(a, Ternary) or b.scale.shape[0] != 1:
        return NotImplemented
    return (a @ b.codes.to(a.dtype)) * b.scale


class Kron(sa.WrapperTensor):
    """A Kronecker product."""

    left: torch.Tensor
    right: torch.Tensor

    def outer_metadata(self) -> Any:
        (a, b), (c, d) = self.left.shape, self.right.shape
        return sa.Outer((a * c, b * d), None, dtype=self.left.dtype, device=self.left.device)

    def to_plain(self) -> Any:
        return torch.kron(self.left, self.right)


@Kron.implements(aten.t.default)
def kron_t(x: Any) -> Any:
    return NotImplemented


@Kron.implements(aten.mul.Tensor)
def kron_mul(a: Any, b: Any) -> Any:
    if not isinstance(a, Kron) or isinstance(b, torch.Tensor):
        return NotImplemented
    return Kron(a.left * b, a.right.clone())


class Triangle(sa.WrapperTensor):
    """A symmetric matrix by its lower triangle."""

    flat: torch.Tensor
    side: int

    def outer_metadata(self) -> Any:
        return sa.Outer((self.side, self.side), None, dtype=self.flat.dtype, device=self.flat.device)

    def to_plain(self) -> Any:
        i, j = torch.tril_indices(self.side, self.side, device=self.flat.device)
        out = self.flat.new_zeros(self.side, self.side)
        out[i, j] = self.flat
        out[j, i] = self.flat
        return out

    def from_plain(self, plain: Any) -> Any:
        i, j = torch.tril_indices(self.side, self.side, device=plain.device)
        return Triangle(((plain + plain.t()) / 2)[i, j], self.side)


class Permuted(sa.WrapperTensor):
    """Rows, and the order they come in."""

    rows: torch.Tensor
    order: torch.Tensor = sa.structure()

    def outer_metadata(self) -> Any:
        return sa.Outer.like(self.rows)

    def to_plain(self) -> Any:
        return self.rows[self.order]

    def from_plain(self, plain: Any) -> Any:
        return Permuted(plain[self.order.argsort()], self.order.clone())


class Circulant(sa.WrapperTensor):
    """A circulant matrix by its first column."""

    column: torch.Tensor

    def outer_metadata(self) -> Any:
        n = self.column.shape[0]
        return sa.Outer((n, n), None, dtype=self.column.dtype, device=self.column.device)

    def to_plain(self) -> Any:
        n = self.column.shape[0]
        at = torch.arange(n, device=self.column.device)
        return self.column[(at[:, None] - at) % n]

    def from_plain(self, plain: Any) -> Any:
        n = plain.shape[0]
        at = torch.arange(n, device=plain.device)
        return Circulant(plain[(at[:, None] + at) % n, at].mean(1))


@Circulant.implements(aten.mm.default)
def circulant_mm(a: Any, b: Any) -> Any:
    if not isinstance(a, Circulant) or isinstance(b, Circulant):
        return NotImplemented
    n = a.column.shape[0]
    if b.dtype not in (torch.float32, torch.float64):
        return NotImplemented
    return torch.fft.irfft(torch.fft.rfft(a.column)[:, None] * torch.fft.rfft(b, dim=0), n=n, dim=0)


class Paged(sa.WrapperTensor):
    """A cache in pages, and the table of them."""

    pages: torch.Tensor  # [P, S, D]
    table: torch.Tensor = sa.structure()

    def outer_metadata(self) -> Any:
        p, s, d = self.pages.shape
        return sa.Outer((self.table.shape[0] * s, d), None, dtype=self.pages.dtype, device=self.pages.device)

    def to_plain(self) -> Any:
        return self.pages[self.table].flatten(0, 1)

    def from_plain(self, plain: Any) -> Any:
        pages = torch.zeros_like(self.pages)
        pages[self.table] = plain.unflatten(0, (self.table.shape[0], -1)).to(pages.dtype)
        return Paged(pages, self.table.clone())


class Counted(sa.WrapperTensor, views="broadcast"):
    """Values, and whether each counts."""

    content: torch.Tensor
    mask: torch.Tensor = sa.structure()

    def to_plain(self) -> Any:
        return torch.where(self.mask, self.content, torch.zeros_like(self.content))

    def from_plain(self, plain: Any) -> Any:
        return Counted(plain.clone(), plain != 0)


@Counted.implements(sa.ops.pointwise)
def counted_pointwise(op: Any, *args: Any, **kwargs: Any) -> Any:
    plain = [a.to_plain() if isinstance(a, Counted) else a for a in args]
    out = op(*plain, **kwargs)
    return out


def m_nvfp4() -> Any:
    return NVFP4(torch.randint(0, 16, (4, 8), dtype=torch.uint8), torch.rand(4, 2) + 0.5)


def m_ternary() -> Any:
    return Ternary(torch.randint(-1, 2, (4, 6), dtype=torch.int8), torch.rand(4, 1) + 0.5)


def m_kron() -> Any:
    return Kron(torch.randn(2, 3), torch.randn(2, 2))


def m_triangle() -> Any:
    return Triangle(torch.randn(10), 4)


def m_permuted() -> Any:
    return Permuted(torch.randn(4, 6), torch.tensor([2, 0, 3, 1]))


def m_circulant() -> Any:
    return Circulant(torch.randn(6))


def m_paged() -> Any:
    return Paged(torch.randn(5, 2, 6), torch.tensor([3, 0]))


def m_counted() -> Any:
    return Counted(torch.randn(4, 6), torch.rand(4, 6) > 0.3)
