"""Collectives of `torch.distributed` on wrappers, which each rank has of the same layout (each a view, or none).

What moves tensors (`broadcast`, `all_gather`, `scatter`, `send`, ...) moves every inner tensor in turn. What adds them
up does so on inner tensors with `fallback="each"`, whose operators do; else on what the wrappers stand for, which then
take in the result by `from_plain`. Into dense tensors goes what wrappers stand for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.base._torch.operators import Operator
from subclass_aot.kit.wrapper.declare.construct import inner_tensors
from subclass_aot.kit.wrapper.kind import Wrapper
from subclass_aot.kit.wrapper.layout.shared_fields import is_part
from subclass_aot.kit.wrapper.serve import errors
from subclass_aot.kit.wrapper.serve.builtin import rebuild
from subclass_aot.kit.wrapper.serve.dense import dense
from subclass_aot.kit.wrapper.serve.planner import related

_REDUCING = {
    "allreduce_",
    "allreduce_coalesced_",
    "reduce_",
    "reduce_scatter_",
    "_reduce_scatter_base_",
    "reduce_scatter_tensor_coalesced_",
}

_IN_ROWS = {"_allgather_base_", "allgather_into_tensor_coalesced_", "alltoall_base_"}
"""Those of which one tensor is those of all ranks one after another, along the first dimension."""

_WRITTEN_ON_EACH_RANK = {
    "allgather_",
    "_allgather_base_",
    "scatter_",
    "reduce_scatter_",
    "_reduce_scatter_base_",
    "alltoall_",
}
"""Those of which every rank sees what it is to write: into dense tensors, what wrappers stand for may go."""

_PENDING: list[Any] = []
"""Handles of messages that are sent or expected, and are not over: without them they would be cancelled."""


def collective_handler(cls: type[Wrapper], func: Operator) -> Callable[..., Any]:
    """Returns the collective `func` on wrappers of `cls`, called as the operator is.

    Args:
        cls: The wrapper class.
        func: An operator on a process group.
    """
    name = func.overloadpacket.__name__
    by_meaning = cls.reads_through or (name in _REDUCING and cls.__wrapper_declaration__.fallback != "each")

    def is_wrapper(tensor: torch.Tensor) -> bool:
        return related(cls, type(tensor))

    def handler(*args: object, **kwargs: object) -> Any:
        tensors = list(_tensors((args, kwargs)))
        wrappers = [tensor for tensor in tensors if is_wrapper(tensor)]
        if len(wrappers) < len(tensors):
            if (
                name in _WRITTEN_ON_EACH_RANK
                and hasattr(cls, "to_plain")
                and not any(map(is_wrapper, _tensors(args[0])))
            ):
                as_dense = lambda tensor: dense(tensor) if is_wrapper(tensor) else tensor  # noqa: E731
                return func(*_mapped(as_dense, args), **_mapped(as_dense, kwargs))
            why = "it has dense tensors, too, and the inner tensors of a wrapper go one by one"
            raise errors.no_rule(cls, func, args, kwargs, why)
        names = wrappers[0].__tensor_flatten__()[0]
        for wrapper in wrappers:
            if wrapper.__tensor_flatten__() != wrappers[0].__tensor_flatten__():
                why = f"{_layout(wrappers[0])} and {_layout(wrapper)} do not have the same inner tensors and context"
                raise errors.no_rule(cls, func, args, kwargs, why)
        if by_meaning:
            return _on_meaning(cls, func, args, kwargs, wrappers)
        if name != "send" and any(is_part(tensor) or not _lies_in_order(tensor) for tensor in _tensors(args[0])):
            # Not into views, whose fields may be those of more than they show.
            return _on_copies(func, args, kwargs, {id(tensor): tensor for tensor in _tensors(args[0])})
        if name in _REDUCING:
            names = [inner for inner in names if not cls.__wrapper_declaration__.is_structure(inner)]
        elif name in _IN_ROWS:
            _check_rows(cls, func, args, kwargs, wrappers)
        return _in_turn(func, args, kwargs, names)

    return handler


def _in_turn(func: Operator, args: tuple[object, ...], kwargs: dict[str, object], names: list[str]) -> Any:
    """Runs the collective on every inner tensor; gives the handle of the last."""
    is_message = func.overloadpacket.__name__ in ("send", "recv_", "recv_any_source_")
    as_sent = _as_bytes if func.overloadpacket.__name__ not in _REDUCING else lambda tensor: tensor
    _PENDING[:] = [work for work in _PENDING if not work.is_completed()]
    for position, inner in enumerate(names):
        pick = lambda tensor, inner=inner: as_sent(getattr(tensor, inner)).contiguous()  # noqa: E731
        result = func(*_mapped(pick, args), **_mapped(pick, kwargs))
        work = result[-1] if isinstance(result, tuple) else result
        if position == len(names) - 1:
            return (args[0], *result[1:]) if isinstance(result, tuple) else result
        if is_message:  # both sides may send before they receive; messages between two ranks arrive in order
            _PENDING.append(_torch.collectives.work_of(work))
        else:
            work.wait()
    raise AssertionError("a wrapper without inner tensors")


def _lies_in_order(wrapper: Wrapper) -> bool:
    """Returns whether all inner tensors are contiguous; backends copy memory, and not all respect strides."""
    return all(getattr(wrapper, inner).is_contiguous() for inner in wrapper.__tensor_flatten__()[0])


def _on_copies(
    func: Operator, args: tuple[object, ...], kwargs: dict[str, object], tensors: dict[int, torch.Tensor]
) -> Any:
    """Runs the collective on copies, and writes them into what it writes.

    Args:
        func: The collective.
        args: Its arguments.
        kwargs: Its keyword arguments.
        tensors: What is copied in place of each, by ids.
    """
    copies = {of: tensor.clone(memory_format=torch.contiguous_format) for of, tensor in tensors.items()}
    pick = lambda tensor: copies.get(id(tensor), tensor)  # noqa: E731
    result = func(*_mapped(pick, args), **_mapped(pick, kwargs))
    if func.overloadpacket.__name__ == "send":  # not waited for: the other side may send, too, before it receives
        return result
    work = _waited(result)
    for written in _tensors(args[0]):
        written.copy_(copies[id(written)])
    return (args[0], work) if isinstance(result, tuple) else work


def _waited(result: Any) -> Any:
    """Waits for what a collective gave, and gives what may be waited for again: a message hangs the second time."""
    (result[-1] if isinstance(result, tuple) else result).wait()
    return _torch.collectives.finished_work()


def _as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the same memory as uint8 where it is float8: not all backends know that, and what is moved is not
    read.
    """
    return tensor.view(torch.uint8) if tensor.dtype.itemsize == 1 and tensor.dtype.is_floating_point else tensor


def _on_meaning(
    cls: type[Wrapper],
    func: Operator,
    args: tuple[object, ...],
    kwargs: dict[str, object],
    wrappers: list[Wrapper],
) -> Any:
    """Runs the collective on dense tensors, and writes them into the wrappers that it writes."""
    if not (hasattr(cls, "to_plain") and hasattr(cls, "from_plain")):
        why = f"it adds up what {cls.__name__} stands for, and without to_plain and from_plain nobody knows that"
        raise errors.no_rule(cls, func, args, kwargs, why)
    return _on_copies(func, args, kwargs, {id(wrapper): dense(wrapper) for wrapper in wrappers})


def _check_rows(
    cls: type[Wrapper],
    func: Operator,
    args: tuple[object, ...],
    kwargs: dict[str, object],
    wrappers: list[Wrapper],
) -> None:
    for wrapper in wrappers:
        for inner in wrapper.__tensor_flatten__()[0]:
            tensor = getattr(wrapper, inner)
            if not tensor.dim() or tensor.shape[0] != wrapper.shape[0]:
                why = f"{inner}{list(tensor.shape)} does not have the rows of a tensor of {list(wrapper.shape)}"
                raise errors.no_rule(cls, func, args, kwargs, why)


def _tensors(value: object) -> Iterator[Any]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for element in value:
            yield from _tensors(element)
    elif isinstance(value, dict):
        yield from _tensors(tuple(value.values()))


def _mapped(change: Callable[[Any], Any], value: object) -> Any:
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, list | tuple):
        return type(value)(_mapped(change, element) for element in value)
    return {key: _mapped(change, element) for key, element in value.items()} if isinstance(value, dict) else value


def _layout(wrapper: Wrapper) -> str:
    names, context = wrapper.__tensor_flatten__()
    return f"{names} with {context}" if context else f"{names}"


_MOVES_ROWS = {"all_gather_into_tensor", "all_to_all_single"}
_FUNCTIONAL_MOVES = {*_MOVES_ROWS, "broadcast"}
_WAITS = {"wait_tensor", "_wrap_tensor_autograd"}
"""What is done with a result of these, which some time later is there; that of wrappers is there at once."""


def functional_handler(cls: type[Wrapper], func: Operator) -> Callable[..., Any] | None:
    """Returns the collective `func`, which gives a new tensor, as `DTensor` does it, on every inner tensor.

    None for one that adds up, and for a class whose operators run on what wrappers stand for.

    Args:
        cls: The wrapper class.
        func: An operator that moves a tensor between ranks and gives a new one, or waits for one.
    """
    name = func.overloadpacket.__name__
    if name not in _FUNCTIONAL_MOVES | _WAITS or cls.__wrapper_declaration__.fallback == "plain":
        return None
    wait = _torch.collectives.functional_collectives.wait_tensor

    def handler(wrapper: Wrapper, *args: Any, **kwargs: Any) -> Any:
        if name in _WAITS:
            return rebuild(wrapper, inner_tensors(wrapper))
        if name in _MOVES_ROWS:
            _check_rows(cls, func, (wrapper, *args), kwargs, [wrapper])
        tensors = {}
        for inner, tensor in inner_tensors(wrapper).items():
            moved = wait(func(_as_bytes(tensor), *args, **kwargs))
            tensors[inner] = moved if moved.dtype == tensor.dtype else moved.view(tensor.dtype)
        return rebuild(wrapper, tensors)

    return handler
