"""The part of a guard that compares modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from subclass_aot.base.codegen import GuardedSource
from subclass_aot.engine.call import Arguments
from subclass_aot.engine.facts import ObjectReader
from subclass_aot.engine.guards.module_guards import refuse_other_modules

pytestmark = pytest.mark.usefixtures("either_way")


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))
        self.register_parameter("bias", None)
        self.register_buffer("mean", torch.ones(2))
        self.child = nn.ReLU()
        self.hooked = nn.ReLU()
        self.handle = self.hooked.register_forward_hook(lambda *_: None)


def guard_of(module: nn.Module) -> Callable[[], Any]:
    """Returns what gives True as long as modules are what they are now."""
    source = GuardedSource("guard", "", "", (None, "None"))
    objects = Arguments.of(module, (), {}).objects
    facts = ObjectReader(objects, [False] * len(objects.holders)).read()
    refuse_other_modules(source, objects.modules, tuple(facts))
    source.line("return True")
    return source.build()


CHANGES: dict[str, Callable[[Layer], Any]] = {
    "a parameter for None": lambda m: setattr(m, "bias", nn.Parameter(torch.ones(2))),
    "one more parameter": lambda m: m.register_parameter("other", nn.Parameter(torch.ones(2))),
    "a parameter less": lambda m: delattr(m, "weight"),
    "one more buffer": lambda m: m.register_buffer("other", torch.ones(2)),
    "the first parameter of a module": lambda m: m.child.register_parameter("w", nn.Parameter(torch.ones(2))),
    "the first buffer of a module": lambda m: m.child.register_buffer("b", torch.ones(2)),
    "the first submodule of a module": lambda m: m.child.add_module("c", nn.ReLU()),
    "another submodule": lambda m: setattr(m, "child", nn.ReLU()),
    "one more submodule": lambda m: m.add_module("other", nn.ReLU()),
    "a submodule less": lambda m: delattr(m, "child"),
    "the first hook of a module": lambda m: m.child.register_forward_hook(lambda *_: None),
    "the first hook before": lambda m: m.register_forward_pre_hook(lambda *_: None),
    "one more hook": lambda m: m.hooked.register_forward_hook(lambda *_: None),
    "a hook less": lambda m: m.handle.remove(),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_is_part_of_the_signature(name: str) -> None:
    module = Layer()
    fits = guard_of(module)
    assert fits() is True
    CHANGES[name](module)
    assert fits() is None


@pytest.mark.parametrize(
    "change",
    [
        lambda m: setattr(m, "weight", nn.Parameter(torch.zeros(3))),  # tensors are compared where they are read
        lambda m: setattr(m, "note", 1),  # attributes are those of an object
        lambda m: setattr(m, "mean", None),
        lambda m: m.eval(),
    ],
)
def test_what_others_compare(change: Callable[[Layer], Any]) -> None:
    module = Layer()
    fits = guard_of(module)
    change(module)
    assert fits() is True


def test_another_hook_in_place_of_one() -> None:
    """Each hook has a number that no other one of the process has."""
    module = Layer()
    fits = guard_of(module)
    module.handle.remove()
    module.handle = module.hooked.register_forward_hook(lambda *_: None)
    assert fits() is None
