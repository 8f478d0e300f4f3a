"""Switches of the thread or of the process, for the time of a block."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch

from subclass_aot.base._torch.dispatch import (
    PassOn,
    disable_current_modes,
    without_function_modes,
    without_transforms,
)
from subclass_aot.base._torch.stand_ins import has_value
from subclass_aot.base.put_back import PutBack


class Switch:
    """A flag of the process that is on while anybody, in any thread, has it on."""

    def __init__(self, read: Callable[[], bool], write: Callable[[bool], None]) -> None:
        self._read, self._write = read, write
        self._lock, self._before = threading.Lock(), False
        self._users: set[object] = set()

    @contextmanager
    def __call__(self) -> Iterator[None]:
        user = object()
        with PutBack(partial(self._leave, user)):
            with self._lock:
                if not self._users:
                    self._before = self._read()
                self._users.add(user)
                self._write(True)
            yield

    def _leave(self, user: object) -> None:
        with self._lock:
            if self._users == {user}:
                self._write(self._before)
            self._users.discard(user)


has_value(torch.compiler, "_is_compiling_flag", True)
"""In a trace, `torch.compiler.is_compiling()` is true. Only torch's own exporter sets what it reads."""

_literals_are_moved_late = Switch(torch._C._only_lift_cpu_tensors, torch._C._set_only_lift_cpu_tensors)
"""Within the block the memory of `torch.tensor(literal, device=...)` is on the CPU until modes have seen the tensor."""


class Shield(PassOn):
    """Stands where torch looks for a mode of fake tensors."""

    def __init__(self) -> None:
        super().__init__()
        self._mode_key = torch._C._TorchDispatchModeKey.FAKE


def mode_of_fake_tensors() -> Any:
    """Returns the mode of fake tensors that is on in this thread; None if there is none. It has no public query."""
    mode: Any = torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE)
    return None if type(mode) is Shield else mode


def are_fake(types: Collection[type]) -> bool:
    """Returns whether all of these are the class of fake tensors."""
    return all(issubclass(cls, torch._subclasses.FakeTensor) for cls in types)


@contextmanager
def devices_untouched() -> Iterator[None]:
    """Runs the block so that no device is started because a program names it: none need be there.

    Torch starts a device before any mode sees the operator, except where it knows that tensors are fake.
    """
    fake: Any = torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE)
    with _literals_are_moved_late(), Shield() if fake is None else nullcontext():
        yield


@contextmanager
def without_cudnn() -> Iterator[None]:
    """Runs the block without kernels of cuDNN; the public form warns of what machines do not have.

    The switch is the process's: what other threads run meanwhile is computed by other kernels, too.
    """
    with PutBack(partial(torch._C._set_cudnn_enabled, torch._C._get_cudnn_enabled())):
        torch._C._set_cudnn_enabled(False)
        yield


def is_cudnn_enabled() -> bool:
    """Returns whether kernels of cuDNN may run. The public form is a property of a module, which Dynamo takes over."""
    return bool(torch._C._get_cudnn_enabled())


is_any_autocast_enabled: Callable[[], bool] = torch._C._is_any_autocast_enabled
"""Whether autocast is on for any device, at a tenth of the time of a query for one. When it goes: query each."""

disable_autocast: Any = torch._C._DisableAutocast
"""Runs a block without autocast on any device; the public form is per device, and slow."""


@contextmanager
def as_recorded() -> Iterator[None]:
    """Runs a block in which an operator does what it did when it was recorded, whatever is around the block.

    What is around a program has had its part by then: autocast has cast, autograd has recorded what it keeps, a default
    device is an argument, a transform has made its batches, and modes of the user have seen the operator. None of that
    may happen to it a second time. So whatever runs recorded operators again enters this block first, and goes on with
    modes and transforms of its own.
    """
    with ExitStack() as stack:
        stack.enter_context(disable_current_modes())
        stack.enter_context(without_function_modes())
        stack.enter_context(without_transforms())
        stack.enter_context(disable_autocast())
        stack.enter_context(torch.no_grad())
        yield
