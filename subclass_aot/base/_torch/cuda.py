"""What torch does on CUDA, brought to tensors that claim to be there where there is no such device."""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import Context, ContextVar
from functools import partial
from typing import Any

import torch
from torch.optim.optimizer import _foreach_supported_types as _of_optimizers
from torch.utils._foreach_utils import _foreach_supported_types as _of_clipping

from subclass_aot.base._torch.operators import Operator
from subclass_aot.base._torch.switches import Switch
from subclass_aot.base.put_back import PutBack

AUTOCAST = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCUDA)
"""The key by which autocast for CUDA gets the operators on a tensor. Torch gives it to tensors by the device that C++
has for them. When it goes: cast in a mode, which operators inside of others do not reach."""

without_autocast: Callable[[], Any] = functools.partial(torch._C._ExcludeDispatchKeyGuard, AUTOCAST)
"""Runs a block without autocast for CUDA, as torch's kernels for autocast run the operator itself."""

CHECKS_CUDNN_STRICTLY = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 13)
"""Whether torch gives cuDNN's attention no head wider than 128 and no dropout that is no multiple of 1/16, as it was
read in 2.13. What an H100 does with torch 2.11 has neither limit."""

_library = torch.library.Library("aten", "IMPL")
"""Keeps the kernels that are put into the dispatcher."""


@functools.cache
def accelerator_here() -> str | None:
    """Returns the type of the accelerator that this machine has; None if there is none, whatever a claim answers.

    Torch finds it out by functions of `torch.cuda`, which answer of a device that is claimed: see `answering`.
    """

    def find() -> str | None:
        found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        return None if found is None else found.type

    return Context().run(find)


def free_library_workspaces() -> None:
    """Frees what cuBLAS keeps for its products, so that the next one allocates it: a run is as the first of a process.

    Nothing public does so.
    """
    torch._C._cuda_clearCublasWorkspaces()


def has_no_cuda() -> bool:
    """Returns whether there is no CUDA device here: where there is one, its own kernels do what these do."""
    return accelerator_here() != "cuda"


def is_autocast(operator: str) -> bool:
    """Returns whether torch has a kernel for autocast on CUDA of an operator, by its name ("aten::mm")."""
    return torch._C._dispatch_has_kernel_for_dispatch_key(operator, "AutocastCUDA")


def put_kernel(operator: str, kernel: Callable[..., Any], key: str) -> None:
    """Puts a kernel for an operator into torch's dispatcher, for good.

    Args:
        operator: Its name, without the namespace.
        kernel: What is called.
        key: The dispatch key. Where torch has a kernel for it, that one is replaced.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns once that a kernel is replaced
        if key == "Meta":  # which `impl` refuses for what is composed elsewhere; with a kernel, it is not composed
            _library.m.impl(operator, key, kernel, False)  # type: ignore[union-attr]
        else:
            _library.impl(operator, kernel, key)


def composed(operator: Operator) -> Callable[..., Any]:
    """Returns the kernel by which torch composes an operator of others, in C++.

    `decompose` prefers one in Python, if there is one, and that is for Dynamo: it may compose something else.
    """
    return functools.partial(operator._op_dk, torch._C.DispatchKey.CompositeImplicitAutograd)


def foreach_takes(cls: type[torch.Tensor]) -> Switch:
    """Returns a block in which optimizers and `clip_grad_norm_` compute with lists of tensors of a class, too.

    They do where the device has that. They ask for the exact class, in two lists that have no public form.
    """

    def write(value: bool) -> None:
        for kinds in (_of_optimizers, _of_clipping):
            if value and cls not in kinds:
                kinds.append(cls)
            elif not value and cls in kinds:
                kinds.remove(cls)

    return Switch(lambda: cls in _of_clipping, write)


def group_by_claim(cls: type[torch.Tensor]) -> None:
    """Has lists of tensors of a class grouped by the device that they have in Python, which for C++ is another one."""
    group = torch._C._group_tensors_by_device_and_dtype

    @functools.wraps(group)
    def by_claim(lists: Any, with_indices: bool = False) -> Any:
        found = group(lists, with_indices)
        devices = [next((x.device for x in lists[0] if type(x) is cls), key[0]) for (lists, _), key in
                   zip(found.values(), found, strict=True)]  # fmt: skip
        return {(device, key[1]): found[key] for device, key in zip(devices, found, strict=True)}

    torch._C._group_tensors_by_device_and_dtype = by_claim  # type: ignore[assignment]


def attention_order() -> list[int]:
    """Returns the order in which torch tries the kernels for attention, by their numbers."""
    return list(torch._C._get_sdp_priority_order())


_answering: ContextVar[Mapping[str, Callable[..., Any]] | None] = ContextVar("answering", default=None)
"""What answers for `torch.cuda` in this thread; None if `torch.cuda` does it itself."""
_lock = threading.Lock()
_users: set[object] = set()
_originals: dict[tuple[Any, str], Any] = {}


@contextmanager
def answering(answers: Mapping[str, Callable[..., Any]]) -> Iterator[None]:
    """Runs the block so that functions of `torch.cuda` are others in this thread.

    The module has them for all threads, so while anybody is in such a block, what stands there finds out which thread
    calls it.

    Args:
        answers: By the name of a function of `torch.cuda`, what is called. "exchange_device" is that by which
            `torch.cuda.device(n)` changes the current one, and has no public name; "cudnn_is_acceptable" is that of
            `torch.backends.cudnn`, and "accelerator_is_available" that of `torch.accelerator`.
    """
    user = object()
    with PutBack(partial(_leave, user)), PutBack(partial(_answering.set, _answering.get())):
        with _lock:
            _users.add(user)
            for name in answers:
                place = _PLACES.get(name, (torch.cuda, name))
                if place not in _originals:
                    _originals[place] = getattr(*place)
                    setattr(*place, _by_thread(name, _originals[place]))
        _answering.set(answers)
        yield


_PLACES: dict[str, tuple[Any, str]] = {
    "exchange_device": (torch.cuda, "_exchange_device"),
    "maybe_exchange_device": (torch.cuda, "_maybe_exchange_device"),
    "cudnn_is_acceptable": (torch.backends.cudnn, "is_acceptable"),
    "accelerator_is_available": (torch.accelerator, "is_available"),
}


def _by_thread(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def ask(*args: Any, **kwargs: Any) -> Any:
        answer = (_answering.get() or {}).get(name)
        return original(*args, **kwargs) if answer is None else answer(*args, **kwargs)

    return ask


def _leave(user: object) -> None:
    with _lock:
        _users.discard(user)
        if not _users:
            for place, original in _originals.items():
                setattr(*place, original)
            _originals.clear()


def on_cleared_casts(forget: Callable[[], None]) -> None:
    """Calls a function, from now on, whenever torch forgets what autocast has cast.

    That is where the outermost autocast ends, and where a program asks for it. Torch has no place for such a function,
    so the one that forgets becomes another one.
    """
    clear = torch.clear_autocast_cache

    @functools.wraps(clear)
    def clear_both() -> None:
        forget()
        clear()

    torch.clear_autocast_cache = clear_both
