"""Kernels without data that authors registered for custom operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from subclass_aot.base._torch.dispatch import DispatchMode
from subclass_aot.base._torch.operators import Operator


def fake_kernel_of(func: Operator) -> Callable[..., Any] | None:
    """Returns what `torch.library.register_fake` was given for an operator, or None.

    Torch registers it for meta tensors, too, but there it may not make sizes that depend on data. No public name
    leads to it; when it goes: operators whose sizes depend on data are refused.
    """
    from torch._library.simple_registry import singleton

    kernel = singleton.find(func.name()).fake_impl.kernel
    return None if kernel is None else kernel.func


class NewSizes:
    """The object that `torch.library.get_ctx()` gives within a fake kernel: it makes sizes that depend on data.

    Args:
        new: Makes one, of which a least and a greatest value are known, or None for the latter.
    """

    def __init__(self, new: Callable[[int, int | None], Any]) -> None:
        self._new = new

    def new_dynamic_size(self, *, min: int | torch.SymInt = 0, max: int | torch.SymInt | None = None) -> Any:
        """Makes a size that depends on data.

        Raises:
            ValueError: A bound depends on the call, or a size could be negative.
        """
        if isinstance(min, torch.SymInt) or isinstance(max, torch.SymInt):
            raise ValueError(f"new_dynamic_size(min={min}, max={max}): bounds have to be numbers that are known")
        if min < 0:
            raise ValueError(f"new_dynamic_size(min={min}): a size is not negative")
        return self._new(min, max)

    def create_unbacked_symint(self, *, min: int | torch.SymInt = 2, max: int | torch.SymInt | None = None) -> Any:
        """Makes one under the name that was earlier torch's."""
        return self.new_dynamic_size(min=min, max=max)


def call_fake_kernel(
    kernel: Callable[..., Any], sizes: NewSizes, inside: DispatchMode, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Calls what `register_fake` was given.

    Args:
        kernel: What was given.
        sizes: What `torch.library.get_ctx()` gives within it.
        inside: Runs the operators in it.
        args: Its arguments.
        kwargs: Its keyword arguments.
    """
    from torch._library.fake_impl import set_ctx_getter

    with set_ctx_getter(lambda: sizes), inside:
        return kernel(*args, **kwargs)
