"""Names of classes and functions with their modules."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest
import torch

from subclass_aot.base.named import full_name, named


@pytest.mark.parametrize("thing", [full_name, types.SimpleNamespace, torch.nn.Module, torch.nn.Module.forward])
def test_what_is_named_is_found(thing: Any) -> None:
    assert named(full_name(thing)) is thing


@pytest.mark.parametrize(
    "name", ["", "sys", "nowhere:x", "subclass_aot.base.named:none", "subclass_aot.base.named:named.none"]
)
def test_nothing_is_found(name: str) -> None:
    assert named(name) is None


def test_a_module_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("asked")
    module.__getattr__ = lambda name: pytest.fail("it was asked")  # type: ignore[method-assign]
    monkeypatch.setitem(sys.modules, "asked", module)
    assert named("asked:x") is None
