"""Attention among jagged tensors, as that of padded ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch.overrides import TorchFunctionMode

from subclass_aot.base import _torch
from subclass_aot.base._stack import user_line
from subclass_aot.errors import TraceError


class _Jagged(Protocol):
    """The attributes that are read of torch's jagged tensors, whose class has no public name."""

    device: torch.device

    def dim(self) -> int: ...
    def lengths(self) -> torch.Tensor | None: ...
    def offsets(self) -> torch.Tensor: ...
    def to_padded_tensor(self, padding: float) -> torch.Tensor: ...
    def transpose(self, dim0: int, dim1: int) -> _Jagged: ...
    def values(self) -> torch.Tensor: ...


class JaggedAttention(TorchFunctionMode):
    """While it is on, attention among jagged tensors is that of padded ones.

    Torch's own way on a CPU goes through nested tensors of C++, which hold memory.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func is torch.nn.functional.scaled_dot_product_attention:
            result = _attention(*args, **kwargs)
            if result is not NotImplemented:
                return result
        return func(*args, **kwargs)


def _attention(  # noqa: PLR0913  # those of torch's function
    query: _Jagged,
    key: _Jagged,
    value: _Jagged,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """Computes attention of padded tensors, if all are jagged; `NotImplemented` otherwise."""
    given = query, key, value
    jagged = all(
        _torch.wrappers.is_jagged(type(x)) and x.dim() == 4 and _torch.wrappers.ragged_dim_of(x) == 2 for x in given
    )
    if not jagged or query.device.type != "cpu" or attn_mask is not None or is_causal or enable_gqa:
        return NotImplemented
    if dropout_p or any(x.lengths() is not None for x in given):
        raise TraceError(_ATTENTION.format(line=user_line()))
    rows = [x.transpose(1, 2) for x in given]
    q, k, v = [x.to_padded_tensor(0.0).transpose(1, 2) for x in rows]
    size = key.offsets().diff()[:, None]
    # A row without keys has nothing to attend to; its result is not read, and must be a number for the gradients.
    mask = (torch.arange(k.shape[2], device=size.device) < size) | (size == 0)
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None], scale=scale)
    ends = query.offsets()[1:]
    place = torch.arange(rows[0].values().shape[0], device=ends.device)
    row = torch.searchsorted(ends, place, right=True).clamp(max=ends.shape[0] - 1)
    values = out.transpose(1, 2)[row, (place - query.offsets()[row]).clamp(max=out.shape[2] - 1)]
    lowest, highest = _torch.wrappers.known_lengths_of(query)
    made = torch.nested.nested_tensor_from_jagged(values, query.offsets(), min_seqlen=lowest, max_seqlen=highest)
    return made.transpose(1, 2)


_ATTENTION = """scaled_dot_product_attention of jagged tensors is compiled without dropout and without lengths() only.
  Your line:  {line}
  Instead: compute attention outside the compiled function, or pad the tensors, as in x.to_padded_tensor(0.0)."""
