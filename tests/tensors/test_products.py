"""Which kernel computes a product with a weight in eight bits: in eager mode, under modes, and in graphs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.flop_counter import FlopCounterMode

import subclass_aot as sa
from subclass_aot.base import _torch, hooks
from subclass_aot.tensors import products
from tests.native.places import run_natively, say_dense_is_fast

pytestmark = pytest.mark.skipif(not _torch.quantized.TILE, reason="this processor has no such kernels")

TORCHS, OWN = "aten::_weight_int8pack_mm", "subclass_aot::int8_mm"


@pytest.fixture(params=["torch's", "the accelerator's"])
def wanted(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Runs a test with the kernels of each; gives the operator."""
    is_own = request.param != "torch's"
    run_natively(monkeypatch, request.getfixturevalue("built") if is_own else None, "products")
    assert (hooks.products is not None) == is_own
    return OWN if is_own else TORCHS


def model() -> nn.Module:
    torch.manual_seed(0)
    made = nn.Sequential(nn.Linear(64, 96), nn.SiLU(), nn.Linear(96, 32, bias=False)).bfloat16().eval()
    sa.quantize_(made, sa.Int8Weight)
    return made


def one_row() -> torch.Tensor:
    return torch.randn(1, 64, generator=torch.Generator().manual_seed(1)).bfloat16()


def products_in(function: Callable[..., Any], *args: Any) -> list[str]:
    with torch.autograd.profiler.profile() as profile:
        function(*args)
    return [event.name for event in profile.function_events if event.name in (TORCHS, OWN)]


def near(found: torch.Tensor, expected: torch.Tensor) -> None:
    assert found.dtype == expected.dtype
    assert (found.double() - expected.double()).norm() <= 0.01 * expected.double().norm()


def dense(x: torch.Tensor) -> torch.Tensor:
    made = model()
    for layer in made:
        if isinstance(layer, nn.Linear):
            layer.weight = nn.Parameter(layer.weight.data.to_plain())
    return made(x)  # type: ignore[no-any-return]


def test_eager_mode(wanted: str) -> None:
    net, x = model(), one_row()
    assert products_in(net, x) == [wanted] * 2
    near(net(x), dense(x))


@pytest.mark.parametrize("compiler", ["eager", "inductor"])
@pytest.mark.parametrize("dynamic", [None, True])
def test_compiled(wanted: str, compiler: str, dynamic: bool | None) -> None:
    compiled = sa.aot_compile(model(), fw_compiler=compiler, dynamic=dynamic)
    for rows in (1, 2, 1):
        x = one_row().repeat(rows, 1)
        near(compiled(x), dense(x))
    assert products_in(compiled, one_row()) == [wanted] * 2


@pytest.mark.parametrize("is_fast", [True, False])
def test_inductor_has_its_own_ways_for_more_rows(wanted: str, is_fast: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    say_dense_is_fast(monkeypatch, is_fast)
    compiled = sa.aot_compile(model(), fw_compiler="inductor", dynamic=False)
    for rows, expected in ((1, wanted), (2, TORCHS if is_fast else wanted)):
        x = one_row().repeat(rows, 1)
        near(compiled(x), dense(x))
        assert products_in(compiled, x)[:2] == [expected] * 2


@pytest.mark.usefixtures("fresh_dynamo")
def test_behind_torch_compile(wanted: str) -> None:
    compiled = torch.compile(model(), backend="subclass_aot")
    near(compiled(one_row()), dense(one_row()))
    assert products_in(compiled, one_row()) == [wanted] * 2


def test_backward(wanted: str) -> None:
    grads = []
    for function in (sa.aot_compile(model()), model(), dense):
        x = one_row().requires_grad_()
        function(x).float().square().sum().backward()
        grads.append(x.grad)
    near(grads[0], grads[2])  # type: ignore[arg-type]
    near(grads[1], grads[2])  # type: ignore[arg-type]


@pytest.mark.usefixtures("wanted")
def test_graphs_and_modes_have_torchs_operator() -> None:
    net, x = model(), one_row()
    with FlopCounterMode(display=False):
        near(net(x), dense(x))
    traced = make_fx(net)(x)
    assert "_weight_int8pack_mm" in traced.code and "int8_mm.default" not in traced.code
    assert "_weight_int8pack_mm" in sa.aot_compile(net).stages(x).forward
    assert "_weight_int8pack_mm" in [work.operator for work in sa.profile(net, x).timeline.work]


@pytest.mark.usefixtures("wanted")
def test_transforms() -> None:
    net, x = model(), torch.cat([one_row(), -one_row()])
    near(torch.func.vmap(net)(x), dense(x))
    near(torch.func.vmap(net)(x[:, None])[:, 0], dense(x))


_LOADS = """
import sys, torch, subclass_aot as sa
from subclass_aot import hooks
from tests.tensors.test_products import dense, model, near, one_row
assert hooks.products is None
compiled = sa.load_compiled(sys.argv[1], model(), trust=True)
with torch.no_grad():
    near(compiled(one_row()), dense(one_row()))
assert not compiled.recompiles
"""


@pytest.mark.parametrize("compiler", ["eager", "inductor"])
@pytest.mark.usefixtures("wanted")
def test_a_file_is_read_where_there_is_no_accelerator(compiler: str, tmp_path: Path) -> None:
    compiled = sa.aot_compile(model(), fw_compiler=compiler)
    with torch.no_grad():
        compiled(one_row())
    compiled.save(tmp_path / "saved")
    command = [sys.executable, "-c", _LOADS, str(tmp_path / "saved")]
    done = subprocess.run(command, env={**os.environ, "SUBCLASS_AOT_NATIVE": "0"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_other_operators_stay() -> None:
    assert products.fastest(torch.ops.aten.mm.default) is torch.ops.aten.mm.default
