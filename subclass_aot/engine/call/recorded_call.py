"""A call that was traced, made once more on other tensors."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from subclass_aot.base.generators_elsewhere import drawn_elsewhere, states_elsewhere
from subclass_aot.base.put_back import PutBack, attributes_put_back
from subclass_aot.engine.call.arguments import Arguments
from subclass_aot.engine.outcome import OlderObjects, read_outcome

AUTOCAST_DEVICES = ("cpu",) + (
    (torch.accelerator.current_accelerator().type,) if torch.accelerator.is_available() else ()  # type: ignore[union-attr]
)
"""Kinds of devices for which autocast may be on."""


@dataclass(frozen=True, slots=True, eq=False)
class RecordedCall:
    """Calls a function as it was called before, but on other tensors. Holds none itself.

    Attributes:
        fn: The function or module.
        arguments: The call, its tensors taken out.
        training: The mode of each of its modules then.
        autocast: The dtype of autocast then for each kind of device, None where it was off.
        default_dtype: The default dtype then.
    """

    fn: Callable[..., Any]
    arguments: Arguments
    training: tuple[bool, ...]
    autocast: tuple[torch.dtype | None, ...]
    default_dtype: torch.dtype

    @staticmethod
    def of(fn: Callable[..., Any], arguments: Arguments) -> RecordedCall:
        """Records the call of `fn` with `arguments` that is made now."""
        leaves = [None if isinstance(x, torch.Tensor) else x for x in arguments.leaves]
        training = tuple(module.training for _, module in arguments.modules)
        ids = tuple(map(id, arguments.values))
        bare = dataclasses.replace(arguments, leaves=leaves, values=(), ids=ids)
        return RecordedCall(fn, bare, training, _autocast_now(), torch.get_default_dtype())

    def __call__(self, values: Sequence[Any]) -> list[Any]:
        """Returns the flattened results for `values`, one for each tensor of the call."""
        with self.arguments.replaced(list(values)) as call, self._modes():
            args, kwargs = call
            seen, elsewhere = self.arguments.seen(call, values), states_elsewhere()
            with OlderObjects() as older:
                result = self.fn(*args, **kwargs)
                seen.refuse_changed(drawn_elsewhere(elsewhere))
                return read_outcome(seen, result, older)[0]

    @contextmanager
    def _modes(self) -> Iterator[None]:
        """Runs the block with the modes of the recorded call, which runs again when a gradient is wanted."""
        modules = [module for _, module in self.arguments.modules]
        with ExitStack() as stack:
            for device, before, current in zip(AUTOCAST_DEVICES, self.autocast, _autocast_now(), strict=True):
                if before != current:
                    on = before is not None
                    stack.enter_context(torch.autocast(device, dtype=before, enabled=on))
            stack.enter_context(PutBack(attributes_put_back((module, "training") for module in modules)))
            stack.enter_context(PutBack(partial(torch.set_default_dtype, torch.get_default_dtype())))
            for module, mode in zip(modules, self.training, strict=True):
                module.training = mode
            torch.set_default_dtype(self.default_dtype)
            yield


def _autocast_now() -> tuple[torch.dtype | None, ...]:
    return tuple(torch.get_autocast_dtype(d) if torch.is_autocast_enabled(d) else None for d in AUTOCAST_DEVICES)
