"""What inductor is told of graphs that belong together, where it makes CUDA graphs. It compiles nothing here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import fx
from torch._inductor import config as inductor_config
from torch._inductor.cudagraph_utils import BoxedDeviceIndex

from subclass_aot import TwoTensor, aot_compile

Told = list[dict[str, Any]]


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    """The options of each graph, of which those that are no backward note device 3, as inductor does on a GPU."""
    found: Told = []

    def noted(graph: fx.GraphModule, inputs: Any, **options: Any) -> Callable[[list[Any]], Any]:
        found.append(options)
        if not options["is_backward"]:
            options["boxed_forward_device_index"].set(3)
        return lambda flat: graph(*flat)

    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx_inner", noted)
    return found


def compiled(program: Callable[..., Any], how: str) -> Any:
    if how == "torch.compile":
        return torch.compile(program, backend="subclass_aot", mode="reduce-overhead")
    return aot_compile(program, fw_compiler="inductor")


@pytest.mark.usefixtures("fresh_dynamo")
@pytest.mark.parametrize("how", ["torch.compile", "aot_compile"])
def test_forward_and_backward_share_what_is_noted(how: str, told: Told) -> None:
    program = compiled(lambda s: (s * 2).sin(), how)
    for size in 3, 4:
        program(TwoTensor(torch.rand(size), torch.rand(size)).requires_grad_()).sum().backward()
    forward, backward, *again = told
    assert [options["is_backward"] for options in told] == [False, True, False, True]
    assert bool(forward["cudagraphs"]) == (how == "torch.compile")
    assert backward["boxed_forward_device_index"].value == 3
    for name in "boxed_forward_device_index", "cudagraphs":
        assert forward[name] is backward[name]
        assert again[0][name] is again[1][name]
        assert forward[name] is not again[0][name]
    assert forward["is_inference"] is False


@pytest.mark.usefixtures("fresh_dynamo")
def test_a_backward_for_other_gradients_shares_it_too(told: Told) -> None:
    out = compiled(lambda s: s * 2, "torch.compile")(TwoTensor(torch.rand(3), torch.rand(3)).requires_grad_())
    out.backward(torch.ones(3))  # no TwoTensor
    assert len(told) == 2
    assert told[0]["boxed_forward_device_index"] is told[1]["boxed_forward_device_index"]


def test_a_graph_without_a_backward_is_told_apart(told: Told) -> None:
    compiled(lambda x: x * 2, "aot_compile")(torch.rand(3))
    assert told[0]["is_inference"] is True


def test_a_forward_in_parts(told: Told) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        y = x.sin()
        return y[y.argsort()] * 2 if y.sum() > 0 else y

    compiled(program, "aot_compile")(torch.rand(3, requires_grad=True)).sum().backward()
    assert len(told) > 2
    assert len({id(options["boxed_forward_device_index"]) for options in told}) == 1


@pytest.mark.parametrize("is_eager", [False, True])
def test_a_backward_whose_forward_has_none_gets_none(is_eager: bool, told: Told, monkeypatch: Any) -> None:
    """Inductor would assert that there is a device: it has not compiled forward, or made no CUDA graph of it."""
    if not is_eager:
        monkeypatch.setattr(BoxedDeviceIndex, "set", lambda *args: None)
    program = aot_compile(lambda x: x.sin(), fw_compiler="eager" if is_eager else "inductor", bw_compiler="inductor")
    with inductor_config.patch({"triton.cudagraphs": True}):
        program(torch.rand(3, requires_grad=True)).sum().backward()
    assert told[-1]["is_backward"]
    assert not told[-1]["cudagraphs"]
