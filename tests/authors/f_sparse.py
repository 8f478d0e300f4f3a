"""(f) Two of every four elements of a row are zero."""

import torch

import subclass_aot as sa


class Sparse24(sa.WrapperTensor):
    """A weight `[M, N]` that keeps its pattern."""

    kept: torch.Tensor  # float[M, N / 4, 2]
    places: torch.Tensor = sa.structure()  # int64[M, N / 4, 2], 0 to 3

    def outer_metadata(self):
        return sa.Outer.like(self.kept, size=(self.kept.shape[0], 4 * self.kept.shape[1]))

    def to_plain(self):
        return self.kept.new_zeros(*self.kept.shape[:2], 4).scatter(2, self.places, self.kept).flatten(1)

    def from_plain(self, plain):
        return Sparse24(plain.unflatten(1, (-1, 4)).gather(2, self.places), self.places)

    @classmethod
    def prune(cls, weight):
        groups = weight.detach().unflatten(1, (-1, 4))
        places = groups.abs().topk(2).indices
        return cls(groups.gather(2, places), places)
