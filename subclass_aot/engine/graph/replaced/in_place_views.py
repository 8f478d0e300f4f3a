"""Operators that change the sizes or strides of a dense view in place, in a trace: autograd is to know of the change.

What it remembers of a view is how operators made it, and `t_` is none of those (see Note [Mutated views]). So `t` is
run as well, and the object that the program holds becomes what that gave. `t_` itself runs for all that it does
besides: it may be refused, it counts, and it is noted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.engine.graph.recorder import Recorder
from subclass_aot.meta import MetaTensor

_NAMES = ("as_strided", "squeeze", "swapaxes", "swapdims", "t", "transpose", "unsqueeze")
_aten = torch.ops.aten


def _rule(operator: Callable[..., Any], of_views: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the function that is called in place of `operator`, which does in place what `of_views` does."""

    def in_place_view(recorder: Recorder, x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(x, MetaTensor) or not _can_become_another(recorder, x):
            return NotImplemented
        base, rules = _torch.autograd.base_of(x), _torch.autograd.view_rules(x)
        with _torch.dispatch.without_function_modes():
            with torch.inference_mode(False), torch.no_grad():  # autograd would make the history of `x` anew
                view = of_views(x, *args, **kwargs)
            if not x.meta_spec.has_places_of(view.meta_spec):  # see Note [Mutated views]
                return NotImplemented
            operator(x, *args, **kwargs)
        if _torch.autograd.base_of(view) is base:  # not so below autograd, in a rule of a wrapper
            _torch.autograd.set_view_rules(view, rules)
            _torch.autograd.exchange(x, view)
            recorder.listeners.mutated_views.forget_base(x)
            with torch.inference_mode(False):
                x.grad_fn  # noqa: B018  # is made now: until a view has one, operators in place take it for a leaf
        return x

    return in_place_view


def _can_become_another(recorder: Recorder, x: MetaTensor) -> bool:
    """Returns whether it is a view of which autograd knows how it was made, and nothing else: no hooks, and no leaf."""
    if _torch.autograd.base_of(x) is None or not _torch.autograd.can_regenerate(x):
        return False
    if _torch.autograd.has_hooks(x) or x.retains_grad or recorder.listeners.mutated_views.has_sibling(x):
        return False
    return torch.is_grad_enabled() or not (x.requires_grad and x.is_leaf)  # with autograd, operators refuse leaves


def _by_all_names() -> dict[Any, Callable[..., Any]]:
    """Returns the rules by whatever a program may call."""
    rules: dict[Any, Callable[..., Any]] = {}
    for name in _NAMES:
        rules[getattr(torch.Tensor, f"{name}_")] = _rule(getattr(torch.Tensor, f"{name}_"), getattr(torch.Tensor, name))
        packet, of_views = getattr(_aten, f"{name}_"), getattr(_aten, name)
        for operator in (packet, *(getattr(packet, each) for each in packet.overloads())):
            rules[operator] = _rule(operator, of_views)
    return rules


IN_PLACE_VIEWS = _by_all_names()
"""What is called in their place, with the recorder as first argument."""
