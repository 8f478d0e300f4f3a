"""Compiling a backward graph when it is first needed, as if it were compiled with the forward graph.

A call whose gradients nobody asks for then pays nothing for them. What the program was traced under (grad mode,
default dtype and device, ...) may have changed until then, and compilers look at it: so it is put back meanwhile.
Autocast is off for every compilation: what it casts was cast when the graph was recorded. Logs have it under the
compilation by `torch.compile` that the graph belongs to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.base._stack import pass_on_interruption
from subclass_aot.base.put_back import PutBack
from subclass_aot.engine.compilers import BoxedFunction
from subclass_aot.engine.trace import one_at_a_time

_WHERE = """This happened when the backward graph of {name} was compiled: when a gradient was first computed.
  Compiled for: {line}
  To have it at that call: aot_compile(..., lazy_backward=False) compiles both graphs together."""


class LazyFunction:
    """A compiled graph that is compiled at its first call.

    Args:
        compile: Compiles it.
        name: What was traced, for errors.
        line: The line of the call that it was traced for.
    """

    def __init__(self, compile: Callable[[], BoxedFunction], name: str, line: str) -> None:
        self._run: BoxedFunction | None = None
        self._compile: Callable[[], BoxedFunction] | None = compile
        self._modes = _Modes()
        self._compilation = _torch.dynamo.current_compilation()
        self._name = name
        self._line = line

    def __call__(self, inputs: list[Any]) -> Sequence[Any]:
        run = self._run
        return (self.compiled() if run is None else run)(inputs)

    @property
    def is_compiled(self) -> bool:
        """Whether it was compiled by now."""
        return self._run is not None

    def compiled(self) -> BoxedFunction:
        """Returns the compiled graph; compiles it unless that was done, also by another thread while this one
        waited.
        """
        with one_at_a_time:
            if self._run is None:
                assert self._compile is not None
                try:
                    with self._modes.restored(), _torch.dynamo.as_part_of(self._compilation):
                        self._run = self._compile()
                except Exception as error:  # the compiler raised it
                    pass_on_interruption(error)
                    error.add_note(_WHERE.format(name=self._name, line=self._line))
                    raise
                self._compile = None
            return self._run


class _Modes:
    """The modes of torch that a compiler may look at, as they are now."""

    def __init__(self) -> None:
        self._grad = torch.is_grad_enabled()
        self._dtype = torch.get_default_dtype()
        self._deterministic = _deterministic()
        self._devices = [mode for mode in _torch.dispatch.function_modes() if isinstance(mode, torch.device)]

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Runs the block with the modes as they were; modes that see operators or calls of torch are left out."""
        with ExitStack() as stack:
            stack.enter_context(torch.inference_mode(False))
            stack.enter_context(torch.set_grad_enabled(self._grad))
            stack.enter_context(_torch.dispatch.disable_current_modes())
            stack.enter_context(_torch.dispatch.without_function_modes())
            for device in self._devices:
                stack.enter_context(device)
            stack.enter_context(PutBack(partial(torch.set_default_dtype, torch.get_default_dtype())))
            stack.enter_context(PutBack(partial(_set_deterministic, _deterministic())))
            _set_deterministic(self._deterministic)
            torch.set_default_dtype(self._dtype)
            yield


def _deterministic() -> tuple[int, bool]:
    fills = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    return torch.get_deterministic_debug_mode(), fills


def _set_deterministic(state: tuple[int, bool]) -> None:
    if state != _deterministic():
        torch.set_deterministic_debug_mode(state[0])
        torch.utils.deterministic.fill_uninitialized_memory = state[1]  # type: ignore[attr-defined]
