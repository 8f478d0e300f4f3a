"""Every operator comes by, in the order in which it runs: those that no leaf carries, too."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from subclass_aot import MetaTensor
from subclass_aot.errors import TraceError
from subclass_aot.meta import Stream

aten = torch.ops.aten


class Names(Stream):
    """Writes down what runs; knows the values of the tensors in `values`."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.names: list[str] = []
        self.values: dict[int, torch.Tensor] = {}

    def on_operator(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        self.names.append(str(func).removeprefix("aten."))

    def value_of(self, leaf: MetaTensor) -> torch.Tensor | None:
        return self.values.get(id(leaf))


def test_factories_and_real_tensors_make_leaves() -> None:
    real = torch.ones(2)
    with Names() as stream:
        made = torch.zeros(2)
        result = real + made
        alone = real * 2
    assert stream.names == ["zeros.default", "add.Tensor", "mul.Tensor"]
    assert type(made) is type(result) is type(alone) is MetaTensor


def test_what_stands_for_a_real_tensor_is_the_streams_choice() -> None:
    class Lifting(Names):
        def lift(self, tensor: torch.Tensor) -> MetaTensor:
            return MetaTensor(tensor, device="cuda")

    real = torch.ones(2)
    with Lifting():
        assert (real + 1).device.type == "cuda"


def test_a_decomposition_takes_the_place_of_an_operator() -> None:
    x = MetaTensor(torch.ones(2))

    def silu(x: torch.Tensor) -> torch.Tensor:
        return x * x.sigmoid()

    with Names({aten.silu.default: silu}) as stream:
        torch.nn.functional.silu(x)
    assert stream.names == ["sigmoid.default", "mul.Tensor"]


def test_one_that_passes_leaves_the_operator_as_it_is() -> None:
    x = MetaTensor(torch.ones(2))
    with Names({aten.silu.default: lambda x: NotImplemented}) as stream:
        torch.nn.functional.silu(x)
    assert stream.names == ["silu.default"]


def test_inference_mode_takes_composite_operators_apart() -> None:
    x = MetaTensor(torch.ones(2, 3))
    with Names() as stream, torch.inference_mode():
        torch.nn.functional.linear(x, x)
    assert "linear.default" not in stream.names and "mm.default" in stream.names


def test_known_values_answer() -> None:
    x, y = MetaTensor(torch.ones(2)), MetaTensor(torch.ones(()))
    stream = Names()
    stream.values = {id(x): torch.tensor([0.0, 3.0]), id(y): torch.tensor(2.5)}
    with stream:
        assert y.item() == 2.5
        assert type(positions := x.nonzero()) is MetaTensor and positions.shape == (1, 1)
    assert stream.names == []


def test_names_for_a_profiler_are_no_operators() -> None:
    x = MetaTensor(torch.ones(2))
    with Names() as stream, torch.profiler.record_function("part"):
        torch.neg(x)
    assert stream.names == ["neg.default"]


def test_operators_that_take_functions_are_refused_by_name() -> None:
    x = MetaTensor(torch.ones(2))
    with Names(), pytest.raises(TraceError, match=r"`cond` is an operator that takes functions.*\n  Your line:  /"):
        torch.ops.higher_order.cond(True, torch.sin, torch.cos, (x,))
