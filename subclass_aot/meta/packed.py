"""Packed sequences, whose lengths are values: known where a program gives them as Python numbers or makes them itself.

The kernel itself says where each element goes: it is run on positions in place of elements. What is packed is then one
`index_select`. The sizes of the steps are a real tensor, which layers for packed sequences read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from subclass_aot import _torch

_aten = torch.ops.aten


class Values(Protocol):
    """What knows values: a `Stream`."""

    def known(self, tensor: Any) -> torch.Tensor | None:
        """The real tensor behind one, where it is known."""

    def literal(self, tensor: torch.Tensor) -> torch.Tensor:
        """Notes that the values of a real tensor are the same at each call."""


def pack(values: Values, input: Any, lengths: Any, batch_first: bool) -> Any:
    """`_pack_padded_sequence`, or `NotImplemented` where the lengths are not known.

    Args:
        values: Knows them.
        input: The padded sequences, `[batch, time, ...]` or `[time, batch, ...]`.
        lengths: The length of each, in decreasing order.
        batch_first: Which of the two.
    """
    known = values.known(lengths)
    if known is None:
        return NotImplemented
    with _torch.disable_current_modes():
        positions, steps = _aten._pack_padded_sequence(_positions(input.shape[:2]), known, batch_first)
    packed = input.reshape(-1, *input.shape[2:]).index_select(0, positions.flatten())
    return packed, values.literal(steps)


def pack_backward(
    values: Values, grad: Any, input_size: Sequence[int], batch_sizes: Any, batch_first: bool
) -> Any:
    """`_pack_padded_sequence_backward`, or `NotImplemented` where the sizes of the steps are not known.

    Args:
        values: Knows these.
        grad: The gradient of the packed elements.
        input_size: The size of the padded sequences, time first or batch first.
        batch_sizes: How many sequences each step has.
        batch_first: Which of the two.
    """
    known = values.known(batch_sizes)
    if known is None:
        return NotImplemented
    with _torch.disable_current_modes():
        batch = input_size[0 if batch_first else 1]
        lengths = (known > torch.arange(batch).unsqueeze(1)).sum(1)
        positions, _ = _aten._pack_padded_sequence(_positions(input_size[:2]), lengths, batch_first)
    count = input_size[0] * input_size[1]
    spread = grad.new_zeros([count, *input_size[2:]]).index_copy(0, positions.flatten(), grad)
    return spread.view(input_size)


def _positions(size: Sequence[int]) -> torch.Tensor:
    return torch.arange(size[0] * size[1]).view(*size, 1)


WITH_VALUES: dict[Any, Callable[..., Any]] = {
    _aten._pack_padded_sequence.default: pack,
    _aten._pack_padded_sequence_backward.default: pack_backward,
}
"""Operators that are taken apart where some of their arguments are known."""
