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
- offsets are data. Where a program asks for their values (`unbind`), the trace is for these values: they become a
  part of the signature.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from subclass_aot import _torch
from subclass_aot._stack import user_line
from subclass_aot.errors import TraceError
from subclass_aot.flatten import FlattenPlan, IndexMap, SubclassCreationMeta, ValueMeta


def structure_slots(metas: Sequence[ValueMeta], index_map: IndexMap) -> tuple[int, ...]:
    """The flat slots that hold the structure of jagged values."""
    jagged = {i for i, m in enumerate(metas) if isinstance(m, SubclassCreationMeta) and _torch.is_jagged(m.cls)}
    values = (SubclassCreationMeta.step(_torch.JAGGED_VALUES),)
    return tuple(s.flat for s in index_map.slots if s.outer in jagged and s.kind == "leaf" and s.path[:1] != values)


def structure_of(plan: FlattenPlan, values: Sequence[Any]) -> dict[int, Any]:
    """The structure of those of `values` that are planned to be jagged, by flat slot of the plan."""
    slots = structure_slots(plan.metas, plan.index_map)
    found: dict[int, Any] = {}
    for slot in slots:
        step = plan.index_map.slots[slot]
        found[slot] = getattr(values[step.outer], step.path[0].removeprefix("."))
    return found


def with_structure_of(like: Any, gradient: Any) -> torch.Tensor:
    """A gradient of `like` that has its structure, as the same tensors."""
    names, _ = like.__tensor_flatten__()
    _, context = gradient.__tensor_flatten__()
    inner = {name: getattr(like, name) for name in names} | {_torch.JAGGED_VALUES: gradient._values.detach()}
    context = _torch.context_of_new(type(like), context)
    made: torch.Tensor = type(like).__tensor_unflatten__(inner, context, None, None)
    return made


class JaggedAttention(TorchFunctionMode):
    """While it is on, attention among jagged tensors is that of padded ones.

    Torch's own way on a CPU goes through nested tensors of C++, which hold memory.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.nn.functional.scaled_dot_product_attention:
            result = _attention(*args, **kwargs)
            if result is not NotImplemented:
                return result
        return func(*args, **kwargs)


def _attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    given = query, key, value
    jagged = all(_torch.is_jagged(type(x)) and x.dim() == 4 and x._ragged_idx == 2 for x in given)
    if not jagged or query.device.type != "cpu" or attn_mask is not None or is_causal or enable_gqa:
        return NotImplemented
    if dropout_p or any(x.lengths() is not None for x in given):
        raise TraceError(_ATTENTION.format(line=user_line()))
    rows = [x.transpose(1, 2) for x in given]
    q, k, v = [x.to_padded_tensor(0.0).transpose(1, 2) for x in rows]
    size = key.offsets().diff()[:, None]
    # A row without keys has nothing to attend to; its result is not looked at, and must be a number for the gradients.
    mask = (torch.arange(k.shape[2], device=size.device) < size) | (size == 0)
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None], scale=scale)
    ends = query.offsets()[1:]
    place = torch.arange(rows[0].values().shape[0], device=ends.device)
    row = torch.searchsorted(ends, place, right=True).clamp(max=ends.shape[0] - 1)
    values = out.transpose(1, 2)[row, (place - query.offsets()[row]).clamp(max=out.shape[2] - 1)]
    lowest, highest = query._maybe_min_seqlen, query._maybe_max_seqlen
    made = torch.nested.nested_tensor_from_jagged(values, query.offsets(), min_seqlen=lowest, max_seqlen=highest)
    return made.transpose(1, 2)


_ATTENTION = """scaled_dot_product_attention of jagged tensors is compiled without dropout and without lengths() only.
  Your line:  {line}
  Instead: compute attention outside the compiled function, or pad the tensors, as in x.to_padded_tensor(0.0)."""
