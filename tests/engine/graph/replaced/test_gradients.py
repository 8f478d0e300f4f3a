"""A trace notes that a program asks for the `.grad` of an input, of whatever class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from subclass_aot import TwoTensor, aot_compile


class Plain(torch.Tensor): ...


ASKING: dict[str, Callable[[Any], Any]] = {
    "read": lambda x: x.grad is None,
    "assigned": lambda x: setattr(x, "grad", None),
    "deleted": lambda x: delattr(x, "grad"),
    "not at all": lambda x: x.sum(),
}
MAKES: dict[str, Callable[[], Any]] = {
    "dense": lambda: torch.ones(2),
    "wrapper": lambda: TwoTensor(torch.ones(2), torch.ones(2)),
    "plain subclass": lambda: torch.ones(2).as_subclass(Plain),
}


@pytest.mark.every_case
@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("made_of", MAKES)
@pytest.mark.parametrize("name", ASKING)
def test_it_is_noted(name: str, made_of: str, requires_grad: bool) -> None:
    compiled, x = aot_compile(ASKING[name], fw_compiler="eager"), MAKES[made_of]().requires_grad_(requires_grad)
    compiled(x)
    assert (".grad" in compiled.source) is (name != "not at all")


def test_others_are_not_noted() -> None:
    compiled = aot_compile(lambda x: x * 2 if (x * 2).detach().grad is None else x, fw_compiler="eager")
    compiled(torch.ones(2))
    assert ".grad" not in compiled.source
