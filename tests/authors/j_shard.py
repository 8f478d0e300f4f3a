"""(j) A float weight that FSDP2 gathers in eight bits, and a tensor whose rows lie on several ranks."""

import torch
from torch.distributed import group
from torch.distributed._functional_collectives import all_gather_tensor

import subclass_aot as sa


class Int8Gathered(sa.WrapperTensor, fallback="each"):
    """A float weight; the layer sees it rounded."""

    value: torch.Tensor

    def fsdp_pre_all_gather(self, mesh):
        weight = sa.Int8Weight.from_float(self.value)
        return (weight.codes, weight.scale), None

    def fsdp_post_all_gather(self, outputs, metadata, param_dtype, *, out=None):
        return None if out is not None else (sa.Int8Weight(*outputs), outputs)


class Shard(sa.WrapperTensor):
    """The rows of one rank, which look as if they were those of all."""

    local: torch.Tensor
    rank: int
    ranks: int

    def outer_metadata(self):
        return sa.Outer.like(self.local, size=(self.ranks * self.local.shape[0], *self.local.shape[1:]))

    def to_plain(self):
        return all_gather_tensor(self.local, 0, group.WORLD)

    def from_plain(self, plain):
        return Shard(plain.chunk(self.ranks)[self.rank].contiguous(), self.rank, self.ranks)
