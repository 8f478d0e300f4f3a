"""What wrappers hold beside inner tensors, before and after a function runs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor

from subclass_aot import WrapperTensor
from subclass_aot.engine.outcome import Context
from subclass_aot.engine.trace.contexts import contexts_of, unchanged_in_place
from subclass_aot.errors import MutationError


class Scaled(WrapperTensor):
    codes: torch.Tensor
    scale: int = 1

    def to_plain(self) -> torch.Tensor:
        return self.codes * self.scale


def found(*values: Any) -> list[tuple[str, Any, dict[str, Any]]]:
    contexts = contexts_of(values, [f"args[{i}]" for i in range(len(values))])
    return [(each.path, each.access_path.steps, dict(each.held)) for each in contexts]


def test_wrappers_inside_are_found_too() -> None:
    inner = Scaled(torch.ones(2), 3)
    assert found(torch.ones(2), inner, TwoTensor(inner, Scaled(torch.ones(2)))) == [
        ("args[1]", (1,), {"scale": 3}),
        ("args[2].a", (2, "a"), {"scale": 3}),
        ("args[2].b", (2, "b"), {"scale": 1}),
    ]


@pytest.mark.parametrize(
    "value",
    [
        torch.ones(2),
        TwoTensor(torch.ones(2), torch.ones(2)),
        torch.nested.nested_tensor([torch.ones(2)], layout=torch.jagged),
    ],
)
def test_what_torch_itself_notes_is_nobody_s_context(value: Any) -> None:
    assert found(value) == []


@pytest.mark.parametrize("public", [True, False])
def test_objects_get_back_what_they_held(public: bool) -> None:
    class Config:
        def __init__(self) -> None:
            self.bits, self._cache = 8, None

    config: Any = Config()
    (known,) = contexts_of([Scaled(torch.ones(2))], ["x"])
    contexts = [Context(known.access_path, "x", known.wrapper, {"config": config, "number": 3, "shape": (1, 2)})]
    if public:
        with pytest.raises(MutationError, match="x.config"), unchanged_in_place(contexts):
            config.bits = 4
        assert config.bits == 8
    else:
        with unchanged_in_place(contexts):
            config._cache = 1  # the business of its class


def test_an_error_of_the_function_comes_first() -> None:
    config: Any = {"bits": 8}
    (known,) = contexts_of([Scaled(torch.ones(2))], ["x"])
    contexts = [Context(known.access_path, "x", known.wrapper, {"config": config})]
    with pytest.raises(ZeroDivisionError), unchanged_in_place(contexts):
        config["bits"] = 1 // 0
    with pytest.raises(ZeroDivisionError), unchanged_in_place(contexts):
        config["bits"] = 4
        raise ZeroDivisionError
    assert config == {"bits": 8}
