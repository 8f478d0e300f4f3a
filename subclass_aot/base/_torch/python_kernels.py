"""Kernels in Python, which the Python dispatcher takes for composite operators in place of those in C++."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from subclass_aot.base.put_back import PutBack

_KEYS = (torch._C.DispatchKey.CompositeImplicitAutograd, torch._C.DispatchKey.Autograd)
"""The keys that torch has such kernels for. Where there is one for the first, the same stands for the second."""

Kernel = Callable[..., Any]


def in_cpp(func: torch._ops.OpOverload) -> Kernel:
    """Returns the kernel in C++ of a composite operator, which `decompose` calls where there is none in Python."""
    return lambda *args, **kwargs: func._op_dk(_KEYS[0], *args, **kwargs)


@contextmanager
def python_kernels(kernels: Mapping[Any, Callable[[Kernel], Kernel]]) -> Iterator[None]:
    """Gives this thread other kernels in Python within the block, made of those that torch has.

    Torch's tables are the process's, so what stands there meanwhile does in other threads what it did before. There is
    no public door. When torch computes with symbolic sizes what its kernels in C++ compute: call nothing.

    Args:
        kernels: For each operator, what makes the kernel of torch's.
    """
    before = [(func, key, func.py_kernels[key]) for func in kernels for key in _KEYS if key in func.py_kernels]

    def put_back() -> None:
        for func, key, kernel in before:
            func.py_kernels[key] = kernel
            func._dispatch_cache.clear()

    with PutBack(put_back):
        for func, key, kernel in before:
            func.py_kernels[key] = in_this_thread(kernels[func](kernel), kernel)
            func._dispatch_cache.clear()
        yield


def in_this_thread(function: Callable[..., Any], others: Callable[..., Any]) -> Callable[..., Any]:
    """Returns what calls one function in this thread, and another one in other threads."""
    thread = threading.get_ident()

    def chosen(*args: object, **kwargs: object) -> Any:
        return (function if threading.get_ident() == thread else others)(*args, **kwargs)

    return chosen
