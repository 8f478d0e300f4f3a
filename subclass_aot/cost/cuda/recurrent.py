"""Recurrent layers on CUDA: one operator of cuDNN for all layers and steps.

Source: `cudnn_is_acceptable` and the kernels in ATen's `native/RNN.cpp` and `native/cudnn/RNN.cpp`. The size of the
reserve, in which cuDNN keeps for backward what it computed, is its own business: the formula was found from 70 layers
on an H100 with torch 2.11. What it takes while it runs is not known: between 1 and 20 times the states of all steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.meta import infer, register_meta

Tensor = torch.Tensor
_aten = torch.ops.aten

_MODES = {"rnn_relu": 0, "rnn_tanh": 1, "lstm": 2, "gru": 3}
"""The layers by the numbers that cuDNN has for them."""
_KEPT = {0: 1, 1: 1, 2: 5, 3: 6}
"""Numbers that an H100 keeps for each step and each number of the state: gates, and what states were."""
_DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def layer_of(name: str, is_packed: bool) -> Callable[..., Any]:
    """Returns what a recurrent layer does on CUDA, by the name of its operator.

    The function returns `NotImplemented` where cuDNN does not take it.

    Args:
        name: As "lstm".
        is_packed: Whether it is that for packed sequences.
    """

    def dense(x: Tensor, hx: object, weights: Sequence[Tensor], has_biases: bool, *options: Any) -> Any:
        layers, dropout, train, bidirectional, batch_first = options
        return _run(name, x, hx, weights, (has_biases, layers, dropout, train, bidirectional, batch_first), ())

    def packed(x: Tensor, steps: Tensor, hx: object, weights: Sequence[Tensor], has_biases: bool, *options: Any) -> Any:
        layers, dropout, train, bidirectional = options
        lengths = steps.tolist()
        return _run(name, x, hx, weights, (has_biases, layers, dropout, train, bidirectional, False), lengths)

    return packed if is_packed else dense


def _run(
    name: str, x: Tensor, hx: Any, weights: Sequence[Tensor], options: tuple[Any, ...], lengths: Sequence[int]
) -> Any:
    has_biases, layers, dropout, train, bidirectional, batch_first = options
    if not _torch.switches.is_cudnn_enabled() or x.dtype not in _DTYPES or not x.numel():
        return NotImplemented
    hidden, cell = hx if name == "lstm" else (hx, None)
    width = hidden.shape[2] if cell is None else cell.shape[2]
    projected = hidden.shape[2] if hidden.shape[2] != width else 0
    stride = len(weights) // (layers * (2 if bidirectional else 1))  # weights of each layer and direction
    sizes = (_MODES[name], width, projected, layers, batch_first, dropout, train, bidirectional, lengths, None)
    result, last, last_cell, *_ = _aten._cudnn_rnn.default(x, weights, stride, None, hidden, cell, *sizes)
    return (result, last, last_cell) if name == "lstm" else (result, last)


@infer.corrects(_aten._cudnn_rnn.default, on_each_device=True)
def _(
    found: Any,
    x: Tensor,
    weights: Sequence[Tensor],
    stride: int,
    buffer: object,
    hx: Tensor,
    cx: Tensor | None,
    *args: Any,
) -> Any:
    output, last, last_cell, reserve, _ = found
    if args[4]:  # the kernel has steps first, and gives a view
        output = output.new_empty(output.shape[1], output.shape[0], output.shape[2]).transpose(0, 1)
    mode, width, projected, layers, _, dropout, train, bidirectional, lengths, _ = args
    rows = sum(lengths) if lengths else output.shape[0] * output.shape[1]
    directions = 2 if bidirectional else 1
    numbers = layers * _KEPT[mode] + layers - 1  # of each state, and the results between layers
    kept = rows * directions * width * numbers * x.element_size() + 256
    if projected:
        kept += rows * directions * layers * (width + projected) * x.element_size()
    if dropout:
        kept += rows * directions * (layers - 1) * width // 8
    kept = kept if train else 0
    # Torch lays the weights of a layer in one piece, but those in bfloat16, which a call copies, and keeps.
    packed = sum(w.numel() for w in weights) if x.dtype is torch.bfloat16 else 0
    return output, last, last_cell, reserve.new_empty(kept), x.new_empty(packed)


@register_meta(_aten._cudnn_rnn_backward.default)
def _(
    x: Tensor,
    weights: Sequence[Tensor],
    stride: int,
    buffer: Tensor,
    hx: Tensor,
    cx: Tensor | None,
    *args: object,
) -> tuple[Tensor, Tensor, Tensor | None, list[Tensor]]:
    of_cell = None if cx is None else cx.new_empty(cx.shape)
    return x.new_empty(x.shape), hx.new_empty(hx.shape), of_cell, [w.new_empty(w.shape) for w in weights]
