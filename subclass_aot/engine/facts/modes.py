"""The modes of torch that change what a program does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import torch

from subclass_aot.base import _torch, hooks
from subclass_aot.engine.call import AUTOCAST_DEVICES
from subclass_aot.engine.facts.constants import constant
from subclass_aot.engine.facts.fact import Constant, Fact, Kind

Modes = tuple[object, ...]
"""What `global_state` gives."""

MODES = (
    "grad mode",
    "inference mode",
    "default dtype",
    "deterministic debug mode",
    "deterministic fill of uninitialized memory",
    "autocast",
    "default device and function modes",
    "transforms of torch.func and forward-mode gradients",
)
"""The names of what `global_state` gives."""


def facts_of_modes(state: Modes) -> Iterator[Fact]:
    """Lists them as facts."""
    for name, mode in zip(MODES, state, strict=True):
        yield Fact(name, Kind.MODE, constant(mode))


def facts_of_settings(settings: Iterable[str]) -> Iterator[Fact]:
    """Lists settings of torch as facts.

    Args:
        settings: How a program reads them.
    """
    for setting in settings:
        yield Fact(setting, Kind.MODE, constant(_torch.flags.read(setting)))


def modes_in(facts: Iterable[Fact]) -> dict[str, object]:
    """Returns those among facts, by name, in the order of `MODES`; settings come after."""
    return {
        fact.place: fact.value.value for fact in facts if fact.kind is Kind.MODE and isinstance(fact.value, Constant)
    }


def _global_state() -> Modes:
    """Reads the modes. It runs on each call, so what is mostly off is read in a cheap way."""
    deterministic = torch.get_deterministic_debug_mode()
    fills = bool(deterministic) and torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    autocast: tuple[torch.dtype, ...] = ()
    if _torch.switches.is_any_autocast_enabled():
        autocast = tuple(torch.get_autocast_dtype(d) for d in AUTOCAST_DEVICES if torch.is_autocast_enabled(d))
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.get_default_dtype(),
        deterministic,
        fills,
        autocast,
        _torch.dispatch.function_modes() if _torch.dispatch.number_of_function_modes() else (),
        _torch.dispatch.inside_transform(),
    )


def _fastest() -> Callable[[], Modes]:
    return _global_state if hooks.read_modes is None else hooks.read_modes(_global_state)


global_state = _fastest()
"""Reads the modes, in the order of `MODES`."""
