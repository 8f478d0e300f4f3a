"""The modes of a thread, and how they are put back as they were."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from subclass_aot.base._torch.dispatch import dispatch_modes, leave_all_modes

_function_modes: Callable[[], list[Any]] = torch.overrides._get_current_function_mode_stack
"""The modes of this thread that see what a program calls in torch, innermost last."""


def modes_put_back() -> Callable[[], None]:
    """Returns what puts the modes of this thread back as they are now, and switches of autograd and of oneDNN.

    Torch's own modes may stay on when a signal comes: see Note [What a block puts back] in `put_back.py`. When
    the private functions go: they stay.

    >>> put_back = modes_put_back()
    >>> mode = torch.utils._python_dispatch.TorchDispatchMode().__enter__()
    >>> put_back(), dispatch_modes()
    (None, [])
    """
    dispatch, function = dispatch_modes(), _function_modes()
    grad, mkldnn = torch.is_grad_enabled(), torch._C._get_mkldnn_enabled()
    threads = torch._C._is_multithreading_enabled()
    includes_meta = torch._C._meta_in_tls_dispatch_include()
    transforms = torch._C._functorch.get_dynamic_layer_stack_depth()

    def put_back() -> None:
        if torch._C._functorch.get_dynamic_layer_stack_depth() > transforms:  # an error may leave those of torch.func
            torch._C._functorch.pop_dynamic_layer_stack_and_undo_to_depth(transforms)
        if not _same(dispatch, dispatch_modes()):
            leave_all_modes()
            for mode in dispatch:
                torch.utils._python_dispatch._push_mode(mode)
        if not _same(function, _function_modes()):
            while torch._C._len_torch_function_stack():
                torch._C._pop_torch_function_stack()
            for mode in function:
                torch._C._push_on_torch_function_stack(mode)
        torch._C._set_grad_enabled(grad)
        torch._C._set_multithreading_enabled(threads)
        torch._C._set_mkldnn_enabled(mkldnn)
        torch._C._set_meta_in_tls_dispatch_include(includes_meta)

    return put_back


def _same(modes: list[Any], others: list[Any]) -> bool:
    return len(modes) == len(others) and all(a is b for a, b in zip(modes, others, strict=True))
