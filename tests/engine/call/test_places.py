"""Where tensors stand: some places are equal by what they say, those in modules are not."""

from __future__ import annotations

import torch

from subclass_aot.engine.call import ArgumentPlace, Arguments, HeldPlace, ModulePlace


def test_each_kind_of_place_of_a_call() -> None:
    linear, held, x = torch.nn.Linear(1, 1, bias=False), [torch.ones(1)], torch.ones(1)

    def program(x: torch.Tensor, holder: list[torch.Tensor]) -> torch.Tensor:
        return linear(x) + held[0] + holder[0]

    class Mine(list[torch.Tensor]):
        pass

    places = Arguments.of(program, (x, Mine([x])), {}).places
    assert [(type(place), place.path) for place in places] == [
        (ArgumentPlace, "args[0]"), (ModulePlace, "linear.weight"), (HeldPlace, "held[0]"), (HeldPlace, "args[1][0]")
    ]  # fmt: skip
    argument, weight, first, second = places
    assert isinstance(argument, ArgumentPlace) and argument.leaf == 0
    assert isinstance(weight, ModulePlace) and (weight.module, weight.table, weight.name) == (
        linear, "_parameters", "weight"
    )  # fmt: skip
    assert isinstance(first, HeldPlace) and isinstance(second, HeldPlace)
    assert (first.pinned, second.pinned) == (True, False) and {first.number, second.number} == {0, 1}


def test_places_are_compared_by_what_they_say() -> None:
    module = torch.nn.Module()
    assert ArgumentPlace(0, "x") == ArgumentPlace(0, "x") and HeldPlace(0, "x", True) != HeldPlace(0, "x", False)
    assert ModulePlace(module, "_buffers", "a", "x") != ModulePlace(module, "_buffers", "a", "x")
