"""Packed sequences, whose lengths are values: known where a program gives them as Python numbers or makes them itself.

The kernels themselves say where each element goes: they are run on positions in place of elements. Packing is then one
`index_select`, and padding one `index_copy`. The sizes of the steps are a real tensor, which C++ reads: layers for
packed sequences, and backward.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.base._stack import user_line
from subclass_aot.errors import DataDependentError
from subclass_aot.meta import MetaTensor, Values, places, spec

_UNKNOWN = """The sizes of the steps of a PackedSequence are not known, so it cannot {do}.
  Your line:  {line}
  They are known where the sequence is packed by the same function, with lengths that are Python numbers.
  Instead: pack it there, or {instead}."""

_aten = torch.ops.aten


@places.pack_sequences.put
def pack(
    values: Values, input: torch.Tensor, lengths: torch.Tensor, batch_first: bool
) -> tuple[Any, torch.Tensor] | None:
    """Returns what `_pack_padded_sequence` gives, or None where the lengths are not known.

    Args:
        values: Knows them.
        input: The padded sequences, `[batch, time, ...]` or `[time, batch, ...]`.
        lengths: The length of each, in decreasing order.
        batch_first: Which of the two.
    """
    known = values.lengths(lengths, input.shape[1 if batch_first else 0])
    if known is None:
        return None
    with _torch.dispatch.disable_current_modes():
        positions, steps = _aten._pack_padded_sequence(_positions(input.shape[:2]), known, batch_first)
    packed = input.reshape(-1, *input.shape[2:]).index_select(0, _beside(positions.flatten(), input))
    return packed, values.literal(steps)


@places.pad_sequences.put
def pad(
    values: Values,
    data: torch.Tensor,
    steps: torch.Tensor,
    batch_first: bool,
    padding_value: float,
    total_length: int,
) -> tuple[Any, torch.Tensor]:
    """Returns what `_pad_packed_sequence` gives.

    Args:
        values: Knows the sizes of the steps.
        data: The packed sequences.
        steps: How many sequences go on, at each time.
        batch_first: Whether the result is `[batch, time, ...]` and not `[time, batch, ...]`.
        padding_value: What fills the rest.
        total_length: The length of the result.

    Raises:
        DataDependentError: Nobody knows the sizes of the steps.
    """
    known = values.known(steps)
    if known is None:
        instead = "pad it outside the traced function, and pass the padded tensor"
        raise DataDependentError(_UNKNOWN.format(do="be padded", line=user_line(), instead=instead))
    with _torch.dispatch.disable_current_modes(), _torch.dispatch.without_function_modes():
        rank = torch.arange(1, int(known.sum()) + 1).view(-1, 1)  # zero is what is padded
        ranks, lengths = _torch.modules.pad_packed_sequence(rank, known, False, 0, total_length)
        places = ranks.flatten().sort(stable=True).indices[-len(rank) :]
    padded = data.new_full((ranks.shape[0] * ranks.shape[1], *data.shape[1:]), padding_value)
    padded = padded.index_copy(0, _beside(places, data), data).view(*ranks.shape[:2], *data.shape[1:])
    return padded.transpose(0, 1) if batch_first else padded, values.literal(lengths)


@places.recurrent_layer.put
def layer(
    of: Callable[..., Any], with_cudnn: bool, values: Values, data: torch.Tensor, steps: Any, *others: Any
) -> Any:
    """Runs a recurrent layer with what is known of the sizes of the steps, if it is given some.

    In a trace on CUDA it is made of operators, step by step: cuDNN takes weights that lie in one memory, which it
    finds by their pointers, and draws dropout between layers from a state of its own.

    Args:
        of: Takes `(data, sizes of steps, state, parameters, ...)`, or `(sequences, state, parameters, ...)`.
        with_cudnn: Whether cuDNN's may run, where nothing runs later.
        values: Has the sizes of the steps.
        data: The packed sequences, or the sequences.
        steps: How many sequences go on, at each time; or the state.
        others: The other arguments of `of`.

    Returns:
        The layer's results; `NotImplemented` where it is to run as it is.

    Raises:
        DataDependentError: Nobody has the sizes of the steps.
    """
    devices = {x.device for x in _tensors_in(others)}
    if data.device.type == "meta" and len(devices - {data.device}) == 1:  # it claims nothing, and they are compared
        (device,) = devices - {data.device}
        return of(*_on_device(device, [data, steps, *others]))  # which comes here once more
    if data.device.type == "cuda" and not with_cudnn and _torch.switches.is_cudnn_enabled():
        with _torch.switches.without_cudnn():
            return of(data, steps, *others)  # which comes here once more
    is_packed = len(others) > 1 and isinstance(others[1], list | tuple)
    if not is_packed or type(steps) is not MetaTensor:
        return NotImplemented
    known = values.known(steps)
    if known is None:
        instead = "call the layer outside the traced function"
        raise DataDependentError(_UNKNOWN.format(do="go through a layer", line=user_line(), instead=instead))
    return of(data, values.literal(known), *others)


def _beside(positions: torch.Tensor, data: torch.Tensor) -> torch.Tensor:
    """Returns positions on the device of data, if that is only claimed: what they were computed on is there."""
    return positions if spec.native_device(data.device) == data.device else positions.to(data.device)


def _tensors_in(values: Sequence[Any]) -> list[torch.Tensor]:
    return [
        x
        for value in values
        for x in (value if isinstance(value, list | tuple) else [value])
        if isinstance(x, torch.Tensor)
    ]


def _on_device(device: torch.device, values: Sequence[Any]) -> list[Any]:
    """Returns values of which tensors that claim nothing claim a device."""
    return [
        _on_device(device, value)
        if isinstance(value, list | tuple)
        else value.to(device)
        if isinstance(value, torch.Tensor) and value.device.type == "meta"
        else value
        for value in values
    ]


def _positions(size: Sequence[int]) -> torch.Tensor:
    return torch.arange(size[0] * size[1]).view(*size, 1)
