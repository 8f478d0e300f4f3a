"""Modes of a thread, put back where a signal leaves a block in the middle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from subclass_aot._torch.dispatch import dispatch_modes, leave_all_modes


class EnteredModes:
    """Puts the modes of this thread back, and grad mode, where an error or a signal leaves the block.

    Python handles a signal before the first line of an `__exit__` that is written in Python, and before a line of a
    `finally`: what the handler raises leaves that block, and what the block has set stays. Nothing that the block does
    can change that, so whoever sets much stands within this one. Torch's own modes have the same gap. When the private
    functions go: it stays.

    Args:
        others: Put back what else is set in the block.

    >>> import contextlib
    >>> with contextlib.suppress(KeyboardInterrupt), EnteredModes():
    ...     mode = torch.utils._python_dispatch.TorchDispatchMode().__enter__()
    ...     raise KeyboardInterrupt
    >>> dispatch_modes()
    []
    """

    def __init__(self, *others: Callable[[], object]) -> None:
        self._others = others

    def __enter__(self) -> None:
        self._dispatch, self._function = dispatch_modes(), _function_modes()
        self._grad, self._mkldnn = torch.is_grad_enabled(), torch._C._get_mkldnn_enabled()

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is None:  # then each was left
            return
        if not _same(self._dispatch, dispatch_modes()):
            leave_all_modes()
            for mode in self._dispatch:
                torch.utils._python_dispatch._push_mode(mode)
        if not _same(self._function, _function_modes()):
            while torch._C._len_torch_function_stack():
                torch._C._pop_torch_function_stack()
            for mode in self._function:
                torch._C._push_on_torch_function_stack(mode)
        torch._C._set_grad_enabled(self._grad)
        torch._C._set_mkldnn_enabled(self._mkldnn)
        for put_back in self._others:
            put_back()


def _function_modes() -> list[Any]:
    return [torch._C._get_function_stack_at(i) for i in range(torch._C._len_torch_function_stack())]


def _same(modes: list[Any], others: list[Any]) -> bool:
    return len(modes) == len(others) and all(a is b for a, b in zip(modes, others, strict=True))
