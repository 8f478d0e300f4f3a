"""Which products are computed of the codes, and that they are those with the dense weights."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import subclass_aot as sa
from subclass_aot.base import hooks
from subclass_aot.tensors import Float8Weight, Int4Weight, LoraWeight, NF4Weight, Sparse24Weight
from tests.native.places import run_natively, say_dense_is_fast

CLASSES: dict[str, Any] = {cls.__name__: cls for cls in (Float8Weight, Int4Weight, NF4Weight, Sparse24Weight)}
EACH = pytest.mark.parametrize("name", CLASSES)
OPERATOR = "subclass_aot::weight_mm"


@pytest.fixture
def own(built: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has the kernels of the accelerator be there, on a CPU whose dense products are slow."""
    run_natively(monkeypatch, built, "products")
    if hooks.products is None:
        pytest.skip("this processor has no such kernels")
    say_dense_is_fast(monkeypatch, is_fast=False)


@pytest.fixture(params=[True, False], ids=["accelerator", "torch"])
def either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the accelerator is there."""
    if request.param:
        request.getfixturevalue("own")
    else:
        run_natively(monkeypatch, None)
    return bool(request.param)


def model(name: str, dtype: torch.dtype = torch.bfloat16, columns: int = 128) -> nn.Module:
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(columns, 96), nn.SiLU(), nn.Linear(96, 32, bias=False)).to(dtype)
    for layer in (layers[0], layers[2]):
        group = {"group": 32} if name == "Int4Weight" else {"block": 32} if name == "NF4Weight" else {}
        made = CLASSES[name].from_float(layer.weight.detach(), **group)
        layer.weight = nn.Parameter(made, requires_grad=False)
    return layers


def dense(layers: Any, x: torch.Tensor) -> torch.Tensor:
    hidden = F.silu(F.linear(x, layers[0].weight.to_plain(), layers[0].bias))
    return F.linear(hidden, layers[2].weight.to_plain())


def near(found: torch.Tensor, expected: torch.Tensor) -> None:
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert (found.double() - expected.double()).norm() <= 0.01 * expected.double().norm()


def products_in(function: Callable[..., Any], *args: Any) -> int:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as found:
        function(*args)
    return [event.name for event in found.events()].count(OPERATOR)  # type: ignore[union-attr]


@EACH
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float16], ids=str)
def test_each_way_to_call_it(name: str, dtype: torch.dtype, either: bool) -> None:
    net: Any = model(name, dtype)
    compiled = sa.aot_compile(net)
    with torch.no_grad():
        for size in ((1,), (2, 3), (40,)):
            x = torch.randn(*size, 128).to(dtype)
            for function in (net, compiled):
                near(function(x), dense(net, x))
                assert products_in(function, x) == 2 * either


@EACH
@pytest.mark.usefixtures("own")
def test_inductor(name: str) -> None:
    net: Any = model(name)
    compiled = sa.aot_compile(net, fw_compiler="inductor")
    x = torch.randn(3, 128).bfloat16()
    with torch.no_grad():
        near(compiled(x), dense(net, x))
        assert products_in(compiled, x) == 2


@EACH
def test_gradients_of_the_input(name: str, either: bool) -> None:
    net: Any = model(name)
    found = []
    for function in (net, sa.aot_compile(net), lambda x: dense(net, x)):
        x = torch.randn(5, 128, generator=torch.Generator().manual_seed(1)).bfloat16().requires_grad_()
        function(x).float().square().sum().backward()
        found.append(x.grad)
    for gradient in found[:2]:
        near(gradient, found[2])  # type: ignore[arg-type]


@EACH
@pytest.mark.usefixtures("own")
def test_many_rows_where_dense_products_are_fast(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    say_dense_is_fast(monkeypatch)
    net: Any = model(name)
    with torch.no_grad():
        for rows, count in ((1, 2), (4, 2), (5, 0), (40, 0)):
            x = torch.randn(rows, 128).bfloat16()
            near(net(x), dense(net, x))
            assert products_in(net, x) == count


@EACH
@pytest.mark.usefixtures("own")
def test_other_compilers_get_operators_of_torch(name: str) -> None:
    seen: list[str] = []

    def compiler(graph: Any, inputs: Any) -> Any:
        seen.extend(str(node.target) for node in graph.graph.nodes)
        return graph.forward

    net: Any = model(name)
    x = torch.randn(3, 128).bfloat16()
    with torch.no_grad():
        near(sa.aot_compile(net, fw_compiler=compiler)(x), dense(net, x))
    seen.extend(str(node.target) for node in sa.trace_joint(net, x.requires_grad_()).graph_module.graph.nodes)
    assert seen and not any("subclass_aot" in target for target in seen)


@EACH
@pytest.mark.usefixtures("own")
def test_a_file_runs_without_the_kernel(name: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    net: Any = model(name)
    x = torch.randn(3, 128).bfloat16()
    with torch.no_grad():
        compiled = sa.aot_compile(net)
        expected = compiled(x)
        compiled.save(tmp_path / "file.sa")
        run_natively(monkeypatch, None)
        again = sa.load_compiled(tmp_path / "file.sa", net, trust=True)
        near(again(x), expected)
        assert not again.recompiles


@EACH
@pytest.mark.usefixtures("own")
def test_modes_and_transforms(name: str) -> None:
    net: Any = model(name)
    x = torch.randn(3, 128).bfloat16()
    near(torch.func.vmap(net)(x), dense(net, x))
    with torch.inference_mode():
        near(net(x), dense(net, x))
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        near(net(x.float()), dense(net, x))


def test_other_forms_are_dense_products(either: bool) -> None:
    """Of one scale for all rows, of groups that the kernel does not take, and of what stands on the left."""
    x, plain = torch.randn(3, 96), torch.randn(64, 96)
    several = Float8Weight.from_float(plain)
    weights: list[Any] = [
        Float8Weight(several.codes, several.scale[:1]),
        Float8Weight(several.codes[:, :40].clone(), several.scale),
        Int4Weight.from_float(plain, group=16),
        NF4Weight.from_float(plain, block=48),
        Sparse24Weight.from_float(plain[:, :20]),
    ]
    for weight in weights:
        part = x[:, : weight.shape[1]]
        for function in (F.linear, sa.aot_compile(F.linear)):
            near(function(part, weight), F.linear(part, weight.to_plain()))
        near(weight @ part.t(), weight.to_plain() @ part.t())
        near(part[0] @ weight.t(), part[0] @ weight.to_plain().t())


@EACH
def test_the_base_of_an_adapter(name: str, either: bool) -> None:
    base = model(name)[0].weight.detach()  # type: ignore[index]
    weight = LoraWeight.beside(base, rank=4)
    with torch.no_grad():
        weight.left.normal_(), weight.right.normal_()
    x = torch.randn(3, 128).bfloat16()
    near(F.linear(x, weight), F.linear(x, weight.to_plain()))


def test_scales_that_are_trained_have_their_gradient(either: bool) -> None:
    codes, x = torch.randint(0, 256, (8, 32), dtype=torch.uint8), torch.randn(3, 64)
    found = []
    for function in (lambda w: F.linear(x, w), lambda w: F.linear(x, w.to_plain())):
        scale, zero = torch.rand(8, 2, generator=torch.Generator().manual_seed(0)).requires_grad_(), torch.ones(8, 2)
        function(Int4Weight(codes, scale, zero)).square().sum().backward()
        found.append(scale.grad)
    torch.testing.assert_close(*found)
