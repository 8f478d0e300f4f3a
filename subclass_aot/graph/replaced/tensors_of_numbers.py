"""`torch.tensor` of numbers that are symbols: torch would read them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from subclass_aot.graph.recorder import Recorder


def _tensor(recorder: Recorder, data: Any, *, dtype: Any = None, device: Any = None, **options: Any) -> Any:
    """Makes a tensor of floating-point numbers, or of a list of them, of which some are symbols."""
    parts = data if type(data) is list or type(data) is tuple else [data]
    has_symbols = any(isinstance(part, torch.SymFloat) for part in parts)
    if not has_symbols or any(type(part) not in (torch.SymFloat, float) for part in parts):
        return NotImplemented
    made = [torch.full((), part, dtype=dtype or torch.get_default_dtype(), device=device) for part in parts]
    result = made[0] if parts is not data else torch.stack(made)
    return result.requires_grad_() if options.get("requires_grad") else result


TENSORS_OF_NUMBERS: dict[Any, Callable[..., Any]] = {torch.tensor: _tensor}
"""What is called in place of functions of torch, with the recorder as first argument."""
