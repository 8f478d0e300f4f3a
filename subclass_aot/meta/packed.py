"""Packed sequences, whose lengths are values: known where a program gives them as Python numbers or makes them itself.

The kernel itself says where each element goes: it is run on positions in place of elements. What is packed is then one
`index_select`. The sizes of the steps are a real tensor, which C++ reads: layers for packed sequences, and backward.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch

from subclass_aot import _torch

_aten = torch.ops.aten
PACK = _aten._pack_padded_sequence.default


class Values(Protocol):
    """What knows values: a `Stream`."""

    def known(self, tensor: Any) -> torch.Tensor | None:
        """The values of a tensor, where they are the same at each call."""

    def literal(self, tensor: torch.Tensor) -> torch.Tensor:
        """Notes that the values of a real tensor are the same at each call."""


def pack(values: Values, input: Any, lengths: Any, batch_first: bool) -> tuple[Any, torch.Tensor] | None:
    """What `_pack_padded_sequence` gives, or None where the lengths are not known.

    Args:
        values: Knows them.
        input: The padded sequences, `[batch, time, ...]` or `[time, batch, ...]`.
        lengths: The length of each, in decreasing order.
        batch_first: Which of the two.
    """
    known = values.known(lengths)
    if known is None:
        return None
    with _torch.disable_current_modes():
        positions, steps = _aten._pack_padded_sequence(_positions(input.shape[:2]), known, batch_first)
    packed = input.reshape(-1, *input.shape[2:]).index_select(0, positions.flatten())
    return packed, values.literal(steps)


def _positions(size: Sequence[int]) -> torch.Tensor:
    return torch.arange(size[0] * size[1]).view(*size, 1)
