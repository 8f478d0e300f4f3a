"""Operators that torch has registered to do more than their schemas say."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch

from subclass_aot.base._torch.operators import Operator, has_meta_kernel


def has_side_effect(func: Operator) -> bool:
    """Returns whether an operator was registered to have an effect, so that it runs though nobody reads its result.

    Torch has two lists: one of `register_effect`, and one of `torch.fx.node.has_side_effect`, which may be given all
    overloads of an operator as well. `torch._library.utils.is_impure` looks into both, and says the same of operators
    that write or draw. When they go: what takes their place there.
    """
    listed = torch.fx.node._side_effectful_functions
    known = _known.get(id(func))
    if known is None or known.listed != len(listed):
        is_listed = func in listed or func.overloadpacket in listed
        known = _known[id(func)] = _Known(func, len(listed), is_listed, _entry_of(func._name).effect)
    return known.is_listed or known.holder.effect is not None


class _Known(NamedTuple):
    """What torch says of an operator: it is asked for each node, and has its hash in Python.

    Attributes:
        func: The operator; its id is of what lives.
        listed: How many operators were in the list of `torch.fx.node.has_side_effect` then; it only grows.
        is_listed: Whether it was one of them.
        holder: Where `register_effect` notes its effect.
    """

    func: Operator
    listed: int
    is_listed: bool
    holder: Any


_known: dict[int, _Known] = {}


def has_effect(func: Operator) -> bool:
    """Returns whether an operator was registered to have an effect by `register_effect` or its kin."""
    return _effect_of(func) is not None


def note_side_effect(func: Operator) -> None:
    """Registers that an operator has an effect, for as long as there is the operator."""
    _register(func, torch._library.effects.EffectType.ORDERED)


@contextmanager
def registered(operators: Iterable[Operator]) -> Iterator[None]:
    """Registers in the block that operators have effects, so that inductor keeps them, and their order.

    One that gives nothing gets a kernel without data, if it has none: inductor would run the one with the effect.
    """
    with ExitStack() as stack:
        for func in operators:
            if not has_effect(func):
                stack.callback(_register(func, torch._library.effects.EffectType.ORDERED).destroy)
            if not func._schema.returns and not has_meta_kernel(func):
                library = stack.enter_context(torch.library._scoped_library(func.namespace, "FRAGMENT"))
                library.impl(func, lambda *args, **kwargs: None, "Meta")
        yield


_effects: Any = torch._higher_order_ops.effects
_effect_of: Callable[[Operator], object] = _effects._get_effect
_entry_of: Callable[[str], Any] = torch._library.simple_registry.singleton.find
_register: Callable[[Operator, object], Any] = _effects._register_effectful_op
