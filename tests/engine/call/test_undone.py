"""Where a trace fails, modules have the hooks and classes that they had."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from subclass_aot.engine.call.undone import undone_if_it_fails


def changed(layer: Any, fails: bool) -> None:
    with undone_if_it_fails([layer]):
        layer.handle.remove()
        layer.register_forward_hook(lambda module, args, result: result * 2)
        layer.register_full_backward_hook(lambda module, given, gradients: None)
        parametrizations.orthogonal(layer, use_trivialization=False)
        if fails:
            raise ZeroDivisionError


def seen(layer: Any) -> Any:
    hooks = [dict(getattr(layer, name)) for name in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks")]
    return type(layer), hooks, layer._is_full_backward_hook


def made() -> Any:
    layer: Any = nn.Linear(2, 2)
    layer.handle = layer.register_forward_pre_hook(lambda module, args: None)
    return layer


def test_hooks_and_classes_come_back() -> None:
    layer = made()
    before = seen(layer)
    with pytest.raises(ZeroDivisionError):
        changed(layer, True)
    assert seen(layer) == before and type(layer) is nn.Linear
    layer.handle.remove()
    assert not layer._forward_pre_hooks, "handles go on holding the very dicts"


def test_they_stay_where_nothing_fails() -> None:
    layer = made()
    before = seen(layer)
    changed(layer, False)
    assert seen(layer) != before and type(layer) is not nn.Linear
    layer(torch.ones(1, 2))
