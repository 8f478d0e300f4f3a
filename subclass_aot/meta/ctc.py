"""The loss of connectionist temporal classification, whose kernel wants lengths as numbers."""

from __future__ import annotations

from typing import Any

import torch

from subclass_aot.meta.packed import Values

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
    given, wanted = values.known(input_lengths), values.known(target_lengths)
    if given is None or wanted is None:
        return None
    return _aten._ctc_loss.default(log_probs, targets, given.tolist(), wanted.tolist(), blank, zero_infinity)
