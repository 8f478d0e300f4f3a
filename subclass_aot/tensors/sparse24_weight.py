"""A weight of which two of every four elements of a row are zero.

The pattern 2:4 of "Accelerating Sparse Deep Neural Networks" (Mishra et al., 2021, arXiv:2104.08378).
"""

from __future__ import annotations

import torch

from subclass_aot.kit.wrapper import Outer, ViewOf, WrapperTensor, structure


class Sparse24Weight(WrapperTensor):
    """A `[M, N]` weight that keeps its pattern: what is written into it is pruned to the places that it has.

    >>> weight = Sparse24Weight.from_float(torch.tensor([[1.0, -2.0, 0.5, 4.0]]))
    >>> weight.to_plain()
    tensor([[ 0., -2.,  0.,  4.]])
    >>> with torch.no_grad():
    ...     weight.add_(1).to_plain()
    tensor([[ 0., -1.,  0.,  5.]])
    """

    accepts = (ViewOf,)  # a product reads the codes of the whole

    kept: torch.Tensor  # float[M, N / 4, 2]
    places: torch.Tensor = structure()  # uint8[M, N / 4, 2]: which two of four

    def outer_metadata(self) -> Outer:
        kept, places = self.kept.shape, self.places.shape
        if Outer.are_known(self.kept, self.places) and not (len(kept) == 3 and kept[2] == 2 and places == kept):
            raise Outer.misfit(self, "kept and places[M, N / 4, 2]")
        rows, groups, _ = kept
        return Outer.like(self.kept, size=(rows, 4 * groups))

    def to_plain(self) -> torch.Tensor:
        rows, groups, _ = self.kept.shape
        return self.kept.new_zeros(rows, groups, 4).scatter(2, self.places.long(), self.kept).flatten(1)

    def from_plain(self, plain: torch.Tensor) -> Sparse24Weight:
        kept = plain.to(self.kept.dtype).unflatten(1, (-1, 4)).gather(2, self.places.long())
        return Sparse24Weight(kept, self.places.clone())  # written into, each has its own

    @classmethod
    def from_float(cls, weight: torch.Tensor) -> Sparse24Weight:
        """Keeps the two largest of every four elements of a row of a float weight `[M, N]`; 4 divides N."""
        if weight.dim() != 2 or weight.shape[1] % 4:
            raise ValueError(f"the rows of a weight of {tuple(weight.shape)} cannot be cut into groups of 4")
        groups = weight.detach().unflatten(1, (-1, 4))
        places = groups.abs().topk(2).indices.sort().values
        return cls(groups.gather(2, places), places.to(torch.uint8))
