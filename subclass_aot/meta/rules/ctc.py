"""The loss of connectionist temporal classification, whose kernel wants lengths as numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from subclass_aot.meta.listener import Values

_aten = torch.ops.aten
CTC = _aten._ctc_loss.Tensor


def ctc_loss(
    values: Values,
    log_probs: torch.Tensor,
    targets: torch.Tensor,
    input_lengths: torch.Tensor,
    target_lengths: torch.Tensor,
    blank: int = 0,
    zero_infinity: bool = False,
) -> Any:
    """Gives what `_ctc_loss` gives, or None where the lengths are not known.

    Args:
        values: Knows them.
        log_probs: `[time, batch, classes]`.
        targets: `[batch, length]`, or all of them one after the other.
        input_lengths: For each of the batch, how much of `log_probs` counts.
        target_lengths: For each of the batch, how much of `targets` counts.
        blank: The class that stands for nothing.
        zero_infinity: Whether infinite losses count as zero.
    """
    each = targets.shape[1] if targets.dim() == 2 else targets.numel() // max(target_lengths.numel(), 1)
    given, wanted = values.lengths(input_lengths, log_probs.shape[0]), values.lengths(target_lengths, each)
    if given is None or wanted is None:
        return None
    return _aten._ctc_loss.default(log_probs, targets, given.tolist(), wanted.tolist(), blank, zero_infinity)


def _of_numbers(loss: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function in place of the loss: it makes lengths that are numbers tensors with values that are known.

    Torch makes a tensor of numbers, too, for the mean, and writes into it by a pointer.

    Args:
        loss: Takes either.
    """

    def call(values: Values, log_probs: Any, targets: Any, *others: Any, **options: Any) -> Any:
        names = "input_lengths", "target_lengths"
        given = {**dict(zip(names, others, strict=False)), **options}
        if not all(isinstance(given.get(name), list | tuple) for name in names):
            return NotImplemented
        options = {**options, **{name: torch.tensor(given[name]) for name in names}}
        lengths = [options.pop(name) for name in names]
        return loss(log_probs, targets, *lengths, *others[2:], **options)

    return call


LOSSES = {loss: _of_numbers(loss) for loss in (torch.ctc_loss, torch.nn.functional.ctc_loss)}
"""What is called in place of the losses, with what knows values as first argument."""
