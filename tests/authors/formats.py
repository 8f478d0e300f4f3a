"""Eight formats, written from the documentation alone."""

import functools

import torch

import subclass_aot as sa

aten = torch.ops.aten


class Q8_0(sa.WrapperTensor):
    """GGUF: rows of blocks of 34 bytes, a scale in float16 and 32 codes."""

    blocks: torch.Tensor  # uint8[M, N / 32, 34]
    outside: torch.dtype = torch.float32

    def outer_metadata(self):
        rows, blocks, _ = self.blocks.shape
        return sa.Outer.like(self.blocks, size=(rows, 32 * blocks), dtype=self.outside)

    def to_plain(self):
        scale, codes = self.blocks.split([2, 32], -1)
        scale = scale.contiguous().view(torch.float16).to(self.outside)
        return (codes.contiguous().view(torch.int8) * scale).flatten(1)

    def from_plain(self, plain):
        blocks = plain.float().unflatten(1, (-1, 32))
        scale = (blocks.abs().amax(-1, keepdim=True) / 127).half()
        codes = (blocks / scale.float().clamp(min=1e-9)).round().clamp(-127, 127).to(torch.int8)
        return Q8_0(torch.cat([scale.view(torch.uint8), codes.view(torch.uint8)], -1), plain.dtype)


LEVELS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


class MXFP4(sa.WrapperTensor, views="blocks"):
    """Two numbers of four bits in a byte, and an exponent for each 32 of a row."""

    pairs: torch.Tensor  # uint8[M, N / 2]
    exponents: torch.Tensor  # uint8[M, N / 32]
    outside: torch.dtype = torch.float32

    def outer_metadata(self):
        rows, half = self.pairs.shape
        return sa.Outer.like(self.pairs, size=(rows, 2 * half), dtype=self.outside)

    def to_plain(self):
        levels = torch.tensor([*LEVELS, *(-level for level in LEVELS)], dtype=self.outside, device=self.device)
        codes = torch.stack([self.pairs & 15, self.pairs >> 4], -1).flatten(1)
        scale = torch.exp2(self.exponents.to(self.outside) - 127)
        return (levels[codes.int()].unflatten(1, (scale.shape[1], -1)) * scale[..., None]).flatten(1)

    def from_plain(self, plain):
        groups = plain.double().unflatten(1, (-1, 32))
        exponents = (groups.abs().amax(-1).clamp(min=1e-30).log2().floor() - 2).clamp(-127, 127)
        scaled = groups * torch.exp2(-exponents)[..., None]
        levels = torch.tensor(LEVELS, dtype=scaled.dtype, device=plain.device)
        codes = torch.bucketize(scaled.abs(), (levels[1:] + levels[:-1]) / 2) + 8 * (scaled < 0)
        codes = codes.flatten(1).to(torch.uint8)
        return MXFP4(codes[:, ::2] | codes[:, 1::2] << 4, (exponents + 127).to(torch.uint8), plain.dtype)


ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


class AWQ(sa.WrapperTensor):
    """Eight codes of four bits in an int32, interleaved and transposed; a scale and a zero point for each group."""

    packed: torch.Tensor  # int32[N, M / 8]
    scale: torch.Tensor  # float[N / group, M]
    zero: torch.Tensor  # int32[N / group, M / 8]

    def outer_metadata(self):
        return sa.Outer.like(self.packed, size=(self.scale.shape[1], self.packed.shape[0]), dtype=self.scale.dtype)

    def to_plain(self):
        codes, zero = unpacked(self.packed), unpacked(self.zero)
        groups = (codes.unflatten(0, (zero.shape[0], -1)) - zero[:, None]) * self.scale[:, None]
        return groups.flatten(0, 1).t().contiguous()

    def from_plain(self, plain):
        groups = plain.t().unflatten(0, (self.scale.shape[0], -1))
        low, high = groups.amin(1).clamp(max=0), groups.amax(1).clamp(min=0)
        scale = ((high - low) / 15).clamp(min=1e-9)
        zero = (-low / scale).round()
        codes = (groups / scale[:, None] + zero[:, None]).round().clamp(0, 15)
        return AWQ(packed(codes.flatten(0, 1)), scale, packed(zero))


def packed(codes):
    eight = codes.int().unflatten(1, (-1, 8))
    return sum(eight[..., place] << 4 * at for at, place in enumerate(ORDER)).int()


def unpacked(words):
    eight = [words >> 4 * ORDER.index(place) & 15 for place in range(8)]
    return torch.stack(eight, -1).flatten(1)


class BSR(sa.WrapperTensor):
    """Blocks of a sparse matrix; a block that is not there is zero."""

    blocks: torch.Tensor  # float[K, R, C]
    columns_: torch.Tensor = sa.structure()  # int64[K]
    rows_: torch.Tensor = sa.structure()  # int64[M / R + 1]
    width: int = 0

    def outer_metadata(self):
        _, high, _ = self.blocks.shape
        return sa.Outer.like(self.blocks, size=((self.rows_.shape[0] - 1) * high, self.width))

    def places(self):
        each = torch.arange(self.blocks.shape[0], device=self.device)
        return torch.bucketize(each, self.rows_[1:], right=True), self.columns_

    def to_plain(self):
        _, high, wide = self.blocks.shape
        grid = self.blocks.new_zeros(self.shape[0] // high, self.width // wide, high, wide)
        return grid.index_put(self.places(), self.blocks).transpose(1, 2).flatten(0, 1).flatten(1)

    def from_plain(self, plain):
        _, high, wide = self.blocks.shape
        grid = plain.unflatten(1, (-1, wide)).unflatten(0, (-1, high)).transpose(1, 2)
        return BSR(grid[self.places()], self.columns_, self.rows_, self.width)


class State8(sa.WrapperTensor, views="broadcast"):
    """The state of an optimizer in eight bits: codes of a table of levels that are denser near zero."""

    codes: torch.Tensor  # uint8[M, N]
    most: torch.Tensor  # float[M, 1]

    def outer_metadata(self):
        return sa.Outer.like(self.codes, dtype=self.most.dtype)

    def levels(self):
        steps = torch.linspace(-1, 1, 255, dtype=torch.float64, device=self.device)
        return (steps * steps.abs()).to(self.most.dtype)

    def to_plain(self):
        return self.levels()[self.codes.int()] * self.most

    def from_plain(self, plain):
        shared = [dim for dim in range(plain.dim()) if self.most.shape[dim] == 1]
        most = (plain.abs().amax(shared, keepdim=True) if shared else plain.abs()).clamp(min=1e-30)
        levels = self.levels()
        return State8(torch.bucketize(plain / most, (levels[1:] + levels[:-1]) / 2).to(torch.uint8), most)


class KV8(sa.WrapperTensor, views="broadcast"):
    """A cache in eight bits, with a scale for each token."""

    codes: torch.Tensor  # int8[B, T, D]
    scale: torch.Tensor  # float[B, T, 1]

    def outer_metadata(self):
        return sa.Outer.like(self.codes, dtype=self.scale.dtype)

    def to_plain(self):
        return self.codes * self.scale

    def from_plain(self, plain):
        shared = [dim for dim in range(plain.dim()) if self.scale.shape[dim] == 1]
        scale = (plain.abs().amax(shared, keepdim=True) if shared else plain.abs()).clamp(min=1e-9) / 127
        return KV8((plain / scale).round().clamp(-127, 127).to(torch.int8), scale)  # 127.5, in bfloat16


class Shards(sa.WrapperTensor):
    """One tensor in parts, cut along one dim."""

    parts: list[torch.Tensor]
    cut: int = 0

    def outer_metadata(self):
        size = list(self.parts[0].shape)
        size[self.cut] = sum(part.shape[self.cut] for part in self.parts)
        return sa.Outer.like(self.parts[0], size=size)

    def to_plain(self):
        return torch.cat(self.parts, self.cut)

    def from_plain(self, plain):
        sizes = [part.shape[self.cut] for part in self.parts]
        return Shards([part.clone() for part in plain.split(sizes, self.cut)], self.cut)


class Dual(sa.WrapperTensor, views="broadcast"):
    """A value and its derivative. No transform of `torch.func` runs in a rule, so the rules are those of a textbook."""

    value: torch.Tensor
    slope: torch.Tensor


def pair(x):
    return (x.value, x.slope) if isinstance(x, Dual) else (x, x * 0)


def alike(op, x, *args, **kwargs):
    return Dual(op(x.value, *args, **kwargs), op(x.slope, *args, **kwargs))


def added(op, x, y, **kwargs):
    (x, dx), (y, dy) = pair(x), pair(y)
    return Dual(op(x, y, **kwargs), op(dx, dy, **kwargs))


def product(op, x, y):
    (x, dx), (y, dy) = pair(x), pair(y)
    return Dual(op(x, y), op(dx, y) + op(x, dy))


RULES = {alike: (aten.neg, aten.sum, aten.mean), added: (aten.add, aten.sub), product: (aten.mul, aten.mm)}
for rule, packets in RULES.items():
    for op in packets:
        Dual.implements(op)(functools.partial(rule, op))


def normal(*size, seed=0):
    """Random numbers, the same every time."""
    return torch.randn(*size, generator=torch.Generator().manual_seed(seed))


MAKES = {
    "Q8_0": lambda: Q8_0(torch.zeros(6, 2, 34, dtype=torch.uint8)).from_plain(normal(6, 64)),
    "MXFP4": lambda: MXFP4(torch.zeros(6, 32), torch.zeros(6, 2)).from_plain(normal(6, 64)),
    "AWQ": lambda: AWQ(torch.zeros(32, 3), torch.zeros(2, 24), torch.zeros(2, 3)).from_plain(normal(24, 32)),
    "BSR": lambda: BSR(normal(3, 2, 4), torch.tensor([0, 2, 1]), torch.tensor([0, 2, 2, 3]), 12),
    "State8": lambda: State8(torch.zeros(4, 6), torch.ones(4, 1)).from_plain(normal(4, 6)),
    "KV8": lambda: KV8(torch.zeros(2, 3, 4), torch.ones(2, 3, 1)).from_plain(normal(2, 3, 4)),
    "Shards": lambda: Shards([normal(4, 2), normal(4, 3, seed=1)], 1),
    "Dual": lambda: Dual(normal(4, 6).double(), normal(4, 6, seed=1).double()),
}
