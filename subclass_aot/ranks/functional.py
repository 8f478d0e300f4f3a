"""Collectives that write into their arguments, as collectives that return their results, and writes.

`torch.distributed.all_reduce(x)` is an operator on a process group that returns a handle to wait for. A graph has
neither; it has `_c10d_functional.all_reduce` and `wait_tensor`, which name the group. Each collective is waited for
where it stands: what is asynchronous in eager mode is not so in a graph, and the handle has nothing left to wait for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.base._stack import user_line
from subclass_aot.base._torch.operators import Operator
from subclass_aot.errors import TraceError
from subclass_aot.meta import MetaTensor, Storage, forms_of

_NO_FUNCTIONAL_FORM = """`torch.distributed.{name}` cannot be part of a graph{why}.
  Your line:  {line}
  Instead: call it outside the compiled function, or use {others}."""

_OTHERS = "all_reduce, all_gather, all_gather_into_tensor, reduce_scatter_tensor, broadcast or all_to_all_single"


def _all_reduce(
    tensors: Sequence[torch.Tensor],
    group: torch.ScriptObject,
    op: torch.ScriptObject,
    sparse: object = None,
    *options: object,
) -> Any:
    name = _reduction(op, "all_reduce")
    for tensor in tensors:
        tensor.copy_(
            _wait(
                _torch.collectives.functional_collectives.all_reduce(
                    tensor, name, _torch.collectives.group_name_of(group)
                )
            )
        )
    return tensors, _torch.collectives.finished_work()


def _all_reduce_coalesced(
    tensors: Sequence[torch.Tensor], group: torch.ScriptObject, op: torch.ScriptObject, *options: object
) -> Any:
    return _all_reduce(tensors, group, op)[1]


def _broadcast(tensors: Sequence[torch.Tensor], group: torch.ScriptObject, root: int, *options: object) -> Any:
    for tensor in tensors:
        tensor.copy_(
            _wait(
                _torch.collectives.functional_collectives.broadcast(
                    tensor, root, _torch.collectives.group_name_of(group)
                )
            )
        )
    return tensors, _torch.collectives.finished_work()


def _gathered(tensor: torch.Tensor, group: torch.ScriptObject) -> Any:
    size, name = _torch.collectives.group_size_of(group), _torch.collectives.group_name_of(group)
    return _wait(_torch.collectives.functional_collectives.all_gather_into_tensor(tensor.contiguous(), size, name))


def _all_gather(
    outputs: Sequence[Sequence[torch.Tensor]],
    inputs: Sequence[torch.Tensor],
    group: torch.ScriptObject,
    *options: object,
) -> Any:
    for targets, tensor in zip(outputs, inputs, strict=True):
        if any(t.shape != tensor.shape for t in targets):
            raise _refused("all_gather", " where ranks have tensors of several shapes")
        flat = tensor.reshape(-1)
        for target, part in zip(
            targets, _gathered(flat, group).chunk(_torch.collectives.group_size_of(group)), strict=True
        ):
            target.copy_(part.view(target.shape))
    return outputs, _torch.collectives.finished_work()


def _all_gather_into(output: torch.Tensor, tensor: torch.Tensor, group: torch.ScriptObject, *options: object) -> Any:
    output.copy_(_gathered(tensor.reshape(-1), group).view(output.shape))
    return output, _torch.collectives.finished_work()


def _all_gather_into_coalesced(
    outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], group: torch.ScriptObject, *options: object
) -> Any:
    for output, tensor in zip(outputs, inputs, strict=True):
        _all_gather_into(output, tensor, group)
    return _torch.collectives.finished_work()


def _scattered(tensor: torch.Tensor, group: torch.ScriptObject, op: torch.ScriptObject) -> Any:
    size, name = _torch.collectives.group_size_of(group), _torch.collectives.group_name_of(group)
    reduction = _reduction(op, "reduce_scatter_tensor")
    return _wait(_torch.collectives.functional_collectives.reduce_scatter_tensor(tensor, reduction, size, name))


def _reduce_scatter(
    outputs: Sequence[torch.Tensor],
    inputs: Sequence[Sequence[torch.Tensor]],
    group: torch.ScriptObject,
    op: torch.ScriptObject,
    *options: object,
) -> Any:
    for output, tensors in zip(outputs, inputs, strict=True):
        whole = torch.cat([t.reshape(-1) for t in tensors])
        output.copy_(_scattered(whole, group, op).view(output.shape))
    return outputs, _torch.collectives.finished_work()


def _reduce_scatter_tensor(
    output: torch.Tensor, tensor: torch.Tensor, group: torch.ScriptObject, op: torch.ScriptObject, *options: object
) -> Any:
    output.copy_(_scattered(tensor.reshape(-1), group, op).view(output.shape))
    return output, _torch.collectives.finished_work()


def _reduce_scatter_coalesced(
    outputs: Sequence[torch.Tensor],
    inputs: Sequence[torch.Tensor],
    group: torch.ScriptObject,
    op: torch.ScriptObject,
    *options: object,
) -> Any:
    for output, tensor in zip(outputs, inputs, strict=True):
        _reduce_scatter_tensor(output, tensor, group, op)
    return _torch.collectives.finished_work()


def _all_to_all_single(
    output: torch.Tensor,
    tensor: torch.Tensor,
    group: torch.ScriptObject,
    output_sizes: Sequence[int],
    input_sizes: Sequence[int],
    *options: object,
) -> Any:
    count = _torch.collectives.group_size_of(group)
    received = list(output_sizes) or [output.shape[0] // count] * count
    sent = list(input_sizes) or [tensor.shape[0] // count] * count
    functional = _torch.collectives.functional_collectives.all_to_all_single
    output.copy_(_wait(functional(tensor.contiguous(), received, sent, _torch.collectives.group_name_of(group))))
    return _torch.collectives.finished_work()


def _reduction(op: torch.ScriptObject, name: str) -> str:
    reduction = _torch.collectives.reduction_of(op)
    if reduction is None:
        raise _refused(name, " with this reduction")
    return reduction


def _wait(tensor: torch.Tensor) -> Any:
    return _torch.collectives.functional_collectives.wait_tensor(tensor)


def _wait_for(tensor: torch.Tensor) -> Any:
    """Gives back a view of an input itself, as the operator does: a write into it is a write into the input.

    The guard has waited for inputs. What a collective gives in the graph is another value after this operator.
    """
    if not isinstance(tensor, MetaTensor):
        return NotImplemented
    owner = Storage.of(tensor).tag
    is_view_of_input = tensor.meta_tag is not owner and getattr(owner, "op", None) == "placeholder"
    return tensor if is_view_of_input else NotImplemented


def _refused(name: str, why: str = "") -> TraceError:
    return TraceError(_NO_FUNCTIONAL_FORM.format(name=name, why=why, line=user_line(), others=_OTHERS))


def _refusing(name: str) -> Callable[..., Any]:
    def refuse(*args: object, **kwargs: object) -> Any:
        raise _refused(name)

    return refuse


_FORMS: dict[str, Callable[..., Any]] = {
    "allreduce_": _all_reduce,
    "allreduce_coalesced_": _all_reduce_coalesced,
    "broadcast_": _broadcast,
    "allgather_": _all_gather,
    "_allgather_base_": _all_gather_into,
    "allgather_into_tensor_coalesced_": _all_gather_into_coalesced,
    "reduce_scatter_": _reduce_scatter,
    "_reduce_scatter_base_": _reduce_scatter_tensor,
    "reduce_scatter_tensor_coalesced_": _reduce_scatter_coalesced,
    "alltoall_base_": _all_to_all_single,
    "allgather_coalesced_": _refusing("all_gather_coalesced"),
    "reduce_": _refusing("reduce"),
    "gather_": _refusing("gather"),
    "scatter_": _refusing("scatter"),
    "alltoall_": _refusing("all_to_all"),
    "barrier": _refusing("barrier"),
    "monitored_barrier_": _refusing("monitored_barrier"),
    "send": _refusing("send"),
    "recv_": _refusing("recv"),
    "recv_any_source_": _refusing("recv"),
}


def in_eager_mode(func: Operator, args: tuple[Any, ...]) -> Any:
    """Returns what an operator that communicates gives in a run without data; NotImplemented for others.

    As in eager mode, it makes no tensor: collectives on process groups write their first argument, and `wait_tensor`
    gives back its own, and so does an operator of FSDP whose schema does not say it.
    """
    if func.namespace == "c10d":
        work = _torch.collectives.finished_work()
        return work if len(_torch.operators.schema_of(func).returns) == 1 else (args[0], work)
    if func is _torch.collectives.functional_collectives.wait_tensor.default:
        return args[0]
    if func.namespace == "fsdp" and func.overloadpacket.__name__ == "all_gather_copy_in":
        _, output, _, numel, rank = args
        return output.narrow(0, numel * rank, numel), output
    return NotImplemented


FUNCTIONAL_FORMS: dict[Any, Callable[..., Any]] = (
    {
        **{getattr(torch.ops.c10d, name).default: form for name, form in _FORMS.items()},
        **dict.fromkeys(_torch.collectives.LAZY_WAITS, _wait),
        _torch.collectives.functional_collectives.wait_tensor.default: _wait_for,
    }
    if torch.distributed.is_available()
    else {}
)
"""For each collective on process groups, what it is in a graph. Beside their results they return a handle."""
for _namespace in _torch.collectives.COLLECTIVES:
    forms_of[_namespace] = FUNCTIONAL_FORMS
