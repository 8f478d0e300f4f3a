"""(h) Fields of several tensors; and a class that counts what is done with it."""

import collections

import torch

import subclass_aot as sa


class Parts(sa.WrapperTensor):
    """A matrix that is kept as blocks of rows, with statistics by name and an optional bias."""

    blocks: list[torch.Tensor]
    stats: dict[str, torch.Tensor]
    bias: torch.Tensor | None = None
    label: str = "x"

    def outer_metadata(self):
        return sa.Outer.like(self.blocks[0], size=(self.stats["gain"].shape[0], self.blocks[0].shape[1]))

    def to_plain(self):
        return torch.cat(self.blocks) * self.stats["gain"] + (0 if self.bias is None else self.bias)

    def from_plain(self, plain):
        blocks = list(plain.split([block.shape[0] for block in self.blocks]))
        bias = None if self.bias is None else torch.zeros_like(self.bias)
        return Parts(blocks, {**self.stats, "gain": torch.ones_like(self.stats["gain"])}, bias, self.label)


class Counting(sa.WrapperTensor, fallback="each"):
    """A tensor that counts the operators that reach it."""

    value: torch.Tensor
    counts = collections.Counter()

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        cls.counts[str(func)] += 1
        return super().__torch_dispatch__(func, types, args, kwargs)
