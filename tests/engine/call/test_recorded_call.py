"""A call that is made once more, as it was."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import torch

from subclass_aot.engine.call import Arguments, RecordedCall


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(2))

    def forward(self, x: Any, scale: int = 1) -> Any:
        product = x[None] @ x[:, None]
        return {"out": x * self.weight * scale, "training": torch.tensor(self.training), "product": product}


def test_other_tensors_in_the_places_of_the_first() -> None:
    layer = Layer()
    weight = layer.weight
    again = RecordedCall.of(layer, Arguments.of(layer, (torch.ones(2),), {"scale": 3}))
    results = again([torch.full((2,), 5.0), torch.full((2,), 2.0)])
    assert any(isinstance(r, torch.Tensor) and r.equal(torch.full((2,), 30.0)) for r in results)
    assert layer.weight is weight


def test_modes_are_those_of_the_first_call() -> None:
    layer = Layer()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        again = RecordedCall.of(layer, Arguments.of(layer, (torch.ones(2),), {}))
    layer.eval()

    def modes(again: RecordedCall) -> list[Any]:
        _, training, product = again([torch.ones(2), torch.ones(2)])
        return [product.dtype, bool(training)]

    assert modes(again) == [torch.bfloat16, True]
    assert not layer.training and not torch.is_autocast_enabled("cpu")
    with torch.autocast("cpu", dtype=torch.float16):
        assert modes(again) == [torch.bfloat16, True]
    again = RecordedCall.of(layer, Arguments.of(layer, (torch.ones(2),), {}))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert modes(again) == [torch.float32, False]


def test_it_holds_no_tensor() -> None:
    x = torch.ones(2)
    again, seen = RecordedCall.of(lambda x: x, Arguments.of(lambda x: x, (x,), {})), weakref.ref(x)
    del x
    gc.collect()
    assert seen() is None
    assert again([torch.ones(1)])[0].shape == (1,)
