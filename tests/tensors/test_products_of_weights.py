"""Products by torch's kernels for codes, against those with what the weights stand for."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import subclass_aot as sa
from subclass_aot.base import _torch
from tests.native.places import say_dense_is_fast
from tests.tensors.checks import layer

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of torch's own compiler
    pytest.mark.skipif(not _torch.quantized.TILE, reason="this processor has no such kernels"),
]

KERNELS = {
    "Int8Weight": (sa.Int8Weight.from_float, ("aten::_weight_int8pack_mm", "subclass_aot::int8_mm"), 8),
    "Int4Tiles": (functools.partial(sa.Int4Tiles.from_float, group=32), ("aten::_weight_int4pack_mm_for_cpu",), 16),
}
CLASSES = pytest.mark.parametrize("name", KERNELS)
FEW = {name: few for name, (_, _, few) in KERNELS.items()}


def made(name: str, dtype: torch.dtype = torch.bfloat16, seed: int = 0) -> Any:
    generator = torch.Generator().manual_seed(seed)
    return KERNELS[name][0](torch.randn(128, 96, generator=generator).to(dtype))


def input_of(*size: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.randn(*size, generator=torch.Generator().manual_seed(1)).to(dtype)


def near(found: torch.Tensor, expected: torch.Tensor) -> None:
    """Equal within the rounding of bfloat16, which the kernels and the dense product do at other places."""
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    off = (found.double() - expected.double()).norm()
    assert off <= 0.01 * expected.double().norm()


def uses_kernel(name: str, function: Callable[..., Any], *args: Any) -> bool:
    """Whether the kernel of the class runs in a call."""
    with torch.autograd.profiler.profile() as profile:
        function(*args)
    return any(event.name in KERNELS[name][1] for event in profile.function_events)


@CLASSES
@pytest.mark.parametrize("size", [(1,), (0,), (2, 3), (2, 0)], ids=str)
@pytest.mark.parametrize("bias", [False, True])
def test_linear(name: str, size: tuple[int, ...], bias: bool) -> None:
    weight, x = made(name), input_of(*size, 96)
    b = input_of(128) if bias else None
    near(F.linear(x, weight, b), F.linear(x, weight.to_plain(), b))
    near(sa.aot_compile(F.linear)(x, weight, b), F.linear(x, weight, b))


@CLASSES
@pytest.mark.parametrize("is_fast", [True, False])
def test_few_rows_are_the_kernels(name: str, is_fast: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """And all are, where dense products are slow."""
    say_dense_is_fast(monkeypatch, is_fast)
    weight, few = made(name), FEW[name]
    for rows in (1, few, few + 1):
        x = input_of(rows, 96)
        assert uses_kernel(name, F.linear, x, weight) == (rows <= few or not is_fast)
        near(x @ weight.t(), x @ weight.to_plain().t())
    near(weight @ input_of(96, 3), weight.to_plain() @ input_of(96, 3))
    near(torch.addmm(input_of(128), x, weight.t(), beta=0.5, alpha=2),
         torch.addmm(input_of(128), x, weight.to_plain().t(), beta=0.5, alpha=2))  # fmt: skip


@CLASSES
def test_of_an_input_that_is_not_contiguous(name: str) -> None:
    weight = made(name)
    for x in (input_of(96, 2).t(), input_of(2, 192)[:, ::2], input_of(1, 96).expand(3, 96)):
        near(F.linear(x, weight), F.linear(x, weight.to_plain()))


@CLASSES
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64], ids=str)
def test_of_other_dtypes(name: str, dtype: torch.dtype) -> None:
    for weight in (made(name, dtype), made(name).to(dtype)):
        x = input_of(2, 96, dtype=dtype)
        assert weight.dtype == dtype and not uses_kernel(name, F.linear, x, weight)
        near(F.linear(x, weight), F.linear(x, weight.to_plain()))
    assert uses_kernel(name, F.linear, input_of(2, 96), made(name, dtype).to(torch.bfloat16))


@CLASSES
@pytest.mark.parametrize("compiler", ["eager mode", "aot_compile"])
def test_gradients(name: str, compiler: str) -> None:
    weight, bias = made(name), input_of(128)

    def loss(x: torch.Tensor, w: Any, b: torch.Tensor) -> torch.Tensor:
        return F.linear(x, w, b).float().square().mean()

    run = sa.aot_compile(loss) if compiler == "aot_compile" else loss
    found = []
    for function, w in ((run, weight), (loss, weight.to_plain())):
        x, b = input_of(2, 96).requires_grad_(), bias.clone().requires_grad_()
        function(x, w, b).backward()
        found.append((x.grad, b.grad))
    for mine, expected in zip(*found, strict=True):
        near(mine, expected)


@CLASSES
def test_under_autocast(name: str) -> None:
    weight, x = made(name), input_of(2, 96, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        assert uses_kernel(name, F.linear, x, weight)
        near(F.linear(x, weight), F.linear(x, weight.to_plain()))
        near(sa.aot_compile(F.linear)(x, weight), F.linear(x, weight))


@CLASSES
def test_other_modes(name: str) -> None:
    weight, x = made(name), input_of(2, 96)
    with torch.inference_mode():
        near(F.linear(x, weight), F.linear(x, weight.to_plain()))
    near(torch.compile(F.linear, backend="aot_eager")(x, weight), F.linear(x, weight))
    near(torch.func.vmap(lambda row: F.linear(row, weight))(x), F.linear(x, weight))


@CLASSES
@pytest.mark.parametrize("is_fast", [True, False])
def test_two_programs_serve_all_counts_of_rows(name: str, is_fast: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of few rows and that of more; a single row is a constant to a program."""
    say_dense_is_fast(monkeypatch, is_fast)
    weight, few = made(name), FEW[name]
    compiled = sa.aot_compile(F.linear)
    for rows in (2, 3, few, few + 1, few + 9, 5, 40):
        x = input_of(rows, 96)
        sa.mark_dynamic(x, 0)
        near(compiled(x, weight), F.linear(x, weight.to_plain()))
    assert len(compiled.recompiles) == is_fast, compiled.recompiles


@CLASSES
def test_weights_of_many_sizes_have_one_program(name: str) -> None:
    """What a kernel asks of sizes would be a guard each, so it is not asked of symbols."""
    compiled = sa.aot_compile(F.linear, dynamic=True)
    for rows, columns in ((128, 96), (256, 160), (192, 64)):
        weight, x = KERNELS[name][0](torch.randn(rows, columns, dtype=torch.bfloat16)), input_of(3, columns)
        near(compiled(x, weight), F.linear(x, weight))
    assert not compiled.recompiles


@CLASSES
@pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.`")  # torch's own
def test_an_export_is_for_all_counts_of_rows(name: str) -> None:
    """So it has no guard, and not the kernel for a few."""
    model = layer(made(name))
    exported = torch.export.export(model, (input_of(3, 96),), dynamic_shapes=({0: torch.export.Dim("rows")},)).module()
    for rows in (1, 3, 40):
        near(exported(input_of(rows, 96)), model(input_of(rows, 96)))
    assert uses_kernel(name, torch.export.export(model, (input_of(3, 96),)).module(), input_of(3, 96))


@CLASSES
def test_after_writes(name: str) -> None:
    x, other = input_of(2, 96), made(name, seed=1)
    for source in (other, other.to_plain()):
        weight = made(name)
        compiled = sa.aot_compile(F.linear)
        compiled(x, weight)
        with torch.no_grad():
            weight.copy_(source)
        near(F.linear(x, weight), F.linear(x, weight.to_plain()))
        near(compiled(x, weight), F.linear(x, weight))
        assert (weight.to_plain() - other.to_plain()).norm() < 0.05 * other.to_plain().norm()
        with torch.no_grad():
            weight.narrow(0, 32, 32).zero_()
        near(F.linear(x, weight), F.linear(x, weight.to_plain()))
        assert not F.linear(x, weight)[:, 32:64].any()
    target = layer(made(name))
    target.load_state_dict(layer(other).state_dict() | {"bias": target.bias.detach()})
    near(target(x), F.linear(x, other.to_plain(), target.bias))
    assert uses_kernel(name, copy.deepcopy(target), x)


@CLASSES
def test_what_it_costs_is_the_product(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a run without data, which goes the same way."""
    say_dense_is_fast(monkeypatch)
    for rows in (2, 40):
        report = sa.profile(F.linear, input_of(rows, 96), made(name))
        assert report.flops() == 2 * rows * 96 * 128
        assert (KERNELS[name][1][0] in [f"aten::{work.operator}" for work in report.timeline.work]) == (rows == 2)


@pytest.mark.long
@CLASSES
def test_with_inductor(name: str) -> None:
    """Of many rows, too: inductor takes a float product of int8 codes for that of the kernel if it looks like it."""
    compiled = sa.aot_compile(nn.Sequential(layer(made(name))), fw_compiler="inductor")
    with torch.no_grad():
        for rows in (2, 40):
            model = compiled.fn
            near(compiled(input_of(rows, 96)), model(input_of(rows, 96)))
