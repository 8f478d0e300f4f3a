"""Jagged tensors, of which one dimension is ragged.

Note [Jagged tensors]
~~~~~~~~~~~~~~~~~~~~~
Torch's jagged tensor is a wrapper around its elements (`_values`) and tensors that say where each row begins and ends:
its structure. The size of the ragged dimension is a nested int. It stands for no number: torch keeps, in a registry of
the process, one for each tensor of offsets (of lengths, where there are some), by its identity. Two jagged tensors are
of one shape if they hold the same tensor of offsets, whatever stands in it. So

- inputs that hold one tensor of offsets do so in the trace (whether they do is part of the signature), and a result
  with the offsets of an input is given that very tensor;
- a gradient has the shape of what it belongs to, so it has the structure of it, too: only `_values` is an input of the
  backward graph, or an output;
- a nested int is never a number of the graph, since it would be that of the call which was traced;
- offsets are data. Where a program reads their values (`unbind`), the trace is for these values: they become a
  part of the signature.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

import torch
from torch.overrides import TorchFunctionMode

from subclass_aot import _torch
from subclass_aot._stack import user_line
from subclass_aot.errors import TraceError
from subclass_aot.flatten import FlattenPlan, IndexMap, SubclassCreationMeta, ValueMeta


def structure_slots(metas: Sequence[ValueMeta], index_map: IndexMap) -> tuple[int, ...]:
    """Returns the flat slots that hold the structure of jagged values."""
    jagged = {
        i for i, m in enumerate(metas) if isinstance(m, SubclassCreationMeta) and _torch.wrappers.is_jagged(m.cls)
    }
    values = (SubclassCreationMeta.step(_torch.wrappers.JAGGED_VALUES),)
    return tuple(s.flat for s in index_map.slots if s.outer in jagged and s.kind == "leaf" and s.path[:1] != values)


def structure_of(plan: FlattenPlan, values: Sequence[Any]) -> dict[int, Any]:
    """Returns the structure of those of `values` that are planned to be jagged, by flat slot of the plan."""
    slots = structure_slots(plan.metas, plan.index_map)
    found: dict[int, Any] = {}
    for slot in slots:
        step = plan.index_map.slots[slot]
        found[slot] = getattr(values[step.outer], step.path[0].removeprefix("."))
    return found


class _Jagged(Protocol):
    """The attributes that are read of torch's jagged tensors, whose class has no public name."""

    device: torch.device

    def dim(self) -> int: ...
    def lengths(self) -> torch.Tensor | None: ...
    def offsets(self) -> torch.Tensor: ...
    def to_padded_tensor(self, padding: float) -> torch.Tensor: ...
    def transpose(self, dim0: int, dim1: int) -> _Jagged: ...
    def values(self) -> torch.Tensor: ...
    def __tensor_flatten__(self) -> tuple[list[str], dict[str, Any]]: ...
    @staticmethod
    def __tensor_unflatten__(inner: dict[str, Any], context: Any, size: None, stride: None) -> torch.Tensor: ...


def with_structure_of(like: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    """Makes a gradient of `like`, both jagged, that has its structure, as the same tensors."""
    own, found = cast(_Jagged, like), cast(_Jagged, gradient)
    names, _ = own.__tensor_flatten__()
    _, context = found.__tensor_flatten__()
    values, _ = _torch.wrappers.parts_of_jagged(found)
    inner = {name: getattr(own, name) for name in names} | {_torch.wrappers.JAGGED_VALUES: values.detach()}
    return own.__tensor_unflatten__(inner, _torch.wrappers.context_of_new(type(like), context), None, None)


def with_known_structure(
    blank: torch.Tensor, traced: torch.Tensor, known: Callable[[torch.Tensor], torch.Tensor | None]
) -> torch.Tensor:
    """Makes a jagged tensor of no trace whose structure has the values that a program may have read.

    Args:
        blank: One whose structure has no values; any other tensor is returned as it is.
        traced: The tensor that it is like.
        known: Returns the values of a traced tensor.
    """
    if not _torch.wrappers.is_jagged(type(blank)):
        return blank
    own, like = cast(_Jagged, blank), cast(_Jagged, traced)
    names, context = own.__tensor_flatten__()
    inner = {name: getattr(own, name) for name in names}
    for name in names:
        if name != _torch.wrappers.JAGGED_VALUES and (values := known(getattr(like, name))) is not None:
            inner[name] = values
    return own.__tensor_unflatten__(inner, context, None, None)


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
