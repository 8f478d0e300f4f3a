"""Running something with the kernels and in Python alone, and describing all that a program can see of the tensors."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import optree
import torch

from subclass_aot.base import _torch
from subclass_aot.kit.wrapper.serve import kernels

Seen = list[Any]


def bits(tensor: torch.Tensor) -> Any:
    """The values of a dense tensor, such that not a number is equal to itself."""
    if tensor.is_meta:
        return None
    if tensor._is_zerotensor():
        tensor = tensor.clone()
    return repr(tensor.detach().resolve_conj().resolve_neg().contiguous().view(-1).tolist())


def describe(tensors: Iterable[torch.Tensor], values: bool = True) -> Seen:
    """What can be seen of tensors and of what they hold; memory and bases by who else has them."""
    known: dict[int, int] = {}
    ids: dict[int, int] = {}
    held: list[Any] = []

    def number(table: dict[int, int], key: int) -> int:
        return table.setdefault(key, len(table))

    def look(tensor: Any, is_outer: bool) -> Seen:
        held.append(tensor)
        storage = tensor.untyped_storage()
        held.append(storage)
        seen = [
            type(tensor).__name__,
            number(ids, id(tensor)),
            (*tensor.shape,),
            tensor.stride(),
            tensor.storage_offset(),
            tensor.dtype,
            str(tensor.device),
            tensor.layout,
            storage.nbytes(),
            number(known, storage._cdata),
            str(_torch.wrappers.dispatch_keys(tensor)),
            tensor.requires_grad,
            tensor.is_leaf,
            tensor.is_inference(),
            None if tensor.is_inference() else tensor._version,
            tensor._is_view(),
            None if tensor.grad_fn is None else tensor.grad_fn.name(),
        ]
        if tensor._base is not None:
            held.append(tensor._base)
            seen.append(("base", number(ids, id(tensor._base))))
        if not hasattr(tensor, "__tensor_flatten__"):
            return [*seen, bits(tensor) if values else None]
        for name, value in tensor.__dict__.items():
            is_tensor = isinstance(value, torch.Tensor)
            seen.append((name, look(value, False) if is_tensor else (type(value).__name__, repr(value))))
        return seen

    return [look(tensor, True) for tensor in tensors]


def tensors_in(tree: Any) -> list[Any]:
    return [leaf for leaf in optree.tree_leaves(tree, none_is_leaf=True) if isinstance(leaf, torch.Tensor)]


def outcome(program: Callable[[], Any], values: bool = True) -> Any:
    """What a program gives, described; or what it raises."""
    torch.manual_seed(0)
    try:
        result = program()
    except Exception as error:
        return type(error), str(error)
    rest = [leaf for leaf in optree.tree_leaves(result) if not isinstance(leaf, torch.Tensor)]
    return describe(tensors_in(result), values), rest, torch.rand(1).item()  # random numbers go on from the same place


def served(program: Callable[[], Any], values: bool = True) -> Counter[str]:
    """Checks that a program gives the same in Python, and then with kernels; returns what these served."""
    with kernels.without_kernels():
        before = kernels.hits()
        python = outcome(program, values)  # and finds what serves each operator
        assert kernels.hits() == before
    native = outcome(program, values)
    assert native == python
    return kernels.hits() - before


def in_threads(work: Callable[[], None], count: int = 4) -> None:
    """Runs something in several threads at once."""
    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
