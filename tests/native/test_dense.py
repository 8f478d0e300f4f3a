"""Dense weights of those in four bits, in C++: those of torch's operators, to the last bit."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch

import subclass_aot as sa
from subclass_aot.backends.one_by_one import write_graph
from subclass_aot.base import _torch, hooks
from subclass_aot.base.written_out import WRITTEN_OUT
from subclass_aot.tensors import Int4Tiles, NF4Weight, products
from subclass_aot.tensors.nf4_weight import LEVELS, Scales
from tests.native.places import run_natively, say_dense_is_fast

int4_dense, nf4_dense = _torch.quantized.int4_dense, _torch.quantized.nf4_dense


@pytest.fixture(autouse=True)
def kernels(built: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    run_natively(monkeypatch, built, "products")
    if hooks.products is None:
        pytest.skip("this processor has no such kernels")


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """Values as integers, not a number as one."""
    return tensor.nan_to_num(nan=12345.0).view(torch.int16)


def agree(op: Any, *args: Any) -> torch.Tensor:
    found, expected = op(*args), WRITTEN_OUT[op](*args)
    assert (found.shape, found.stride(), found.dtype) == (expected.shape, expected.stride(), expected.dtype)
    assert torch.equal(bits(found), bits(expected))
    return found  # type: ignore[no-any-return]


@pytest.mark.parametrize("tile", [32, 64, 96])
@pytest.mark.parametrize("rows, columns, group", [(1, 32, 32), (2, 64, 16), (3, 40, 8), (1, 3, 1), (5, 256, 128)])
def test_int4(tile: int, rows: int, columns: int, group: int) -> None:
    generator = torch.Generator().manual_seed(rows * columns)
    packed = torch.randint(0, 256, (rows, columns, tile // 2), generator=generator, dtype=torch.uint8)
    scales = torch.randn(columns // group, rows * tile, 2, generator=generator).bfloat16()
    agree(int4_dense, packed, scales)


@pytest.mark.parametrize("rows, blocks, block", [(1, 1, 32), (3, 2, 32), (7, 4, 64), (2, 1, 96), (33, 8, 128)])
def test_nf4(rows: int, blocks: int, block: int) -> None:
    generator = torch.Generator().manual_seed(rows * block)
    packed = torch.randint(0, 256, (rows, blocks * block // 2), generator=generator, dtype=torch.uint8)
    codes = torch.randint(-128, 128, (rows, blocks), generator=generator, dtype=torch.int8)
    step, center = torch.randn(2, rows, 1, generator=generator).bfloat16()
    agree(nf4_dense, packed, codes, step, center, LEVELS)


def test_each_byte() -> None:
    every = torch.arange(256).to(torch.uint8)
    agree(int4_dense, every.view(1, 16, 16), torch.rand(2, 32, 2).bfloat16())
    agree(nf4_dense, every.view(1, 256), *nf4_scales(1, 16), LEVELS)


def nf4_scales(rows: int, blocks: int) -> tuple[torch.Tensor, ...]:
    codes = torch.arange(rows * blocks).remainder(255).sub(127).to(torch.int8).view(rows, blocks)
    return codes, torch.full((rows, 1), 0.0123).bfloat16(), torch.full((rows, 1), 1.7).bfloat16()


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, 3e38, 1e-40, 0.0, -0.0])
def test_scales_that_are_no_usual_numbers(value: float) -> None:
    packed = torch.arange(256).to(torch.uint8).view(1, 16, 16)
    scales = torch.randn(1, 32, 2).bfloat16()
    scales[0, ::3, 0] = value
    scales[0, 1::5, 1] = value
    agree(int4_dense, packed, scales)
    codes, step, center = nf4_scales(1, 16)
    agree(nf4_dense, packed.view(1, 256), codes, torch.full_like(step, value), center, LEVELS)
    agree(nf4_dense, packed.view(1, 256), codes, step, torch.full_like(center, value), LEVELS)


def test_several_threads() -> None:
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            test_int4(64, 5, 256, 128)
            test_nf4(1023, 8, 32)
    finally:
        torch.set_num_threads(before)


@pytest.mark.skipif(_torch.quantized.CAPABILITY != "AVX512", reason="it has no wider registers than the others")
def test_registers_of_eight_floats() -> None:
    names = ("test_int4", "test_nf4", "test_each_byte", "test_scales_that_are_no_usual_numbers", "test_several_threads")
    command = [sys.executable, "-m", "pytest", "-q", __file__, "-k", " or ".join(names)]
    narrow = {**os.environ, "ATEN_CPU_CAPABILITY": "avx2"}
    found = subprocess.run(command, env=narrow, capture_output=True, text=True, check=False)
    assert found.returncode == 0 and " passed" in found.stdout, found.stdout[-2000:]


@pytest.mark.parametrize(
    "args",
    [
        (torch.zeros(1, 32, 8, dtype=torch.uint8), torch.zeros(1, 16, 2).bfloat16()),
        (torch.zeros(1, 32, 16, dtype=torch.uint8), torch.zeros(1, 64, 2).bfloat16()),
        (torch.zeros(1, 32, 16, dtype=torch.int8), torch.zeros(1, 32, 2).bfloat16()),
        (torch.zeros(1, 32, 32, dtype=torch.uint8)[..., ::2], torch.zeros(1, 32, 2).bfloat16()),
        (torch.zeros(1, 32, 16, dtype=torch.uint8), torch.zeros(5, 32, 2).bfloat16()),
        (torch.zeros(1, 32, 16, dtype=torch.uint8), torch.zeros(1, 32, 2)),
        (torch.zeros(1, 32, 16, dtype=torch.uint8), torch.zeros(0, 32, 2).bfloat16()),
        (torch.zeros(32, 16, dtype=torch.uint8), torch.zeros(1, 32, 2).bfloat16()),
    ],
)
def test_what_it_does_not_read_is_refused(args: Any) -> None:
    with pytest.raises(RuntimeError, match="these are no tiles"):
        int4_dense(*args)


def test_blocks_that_it_does_not_read_are_refused() -> None:
    packed, (codes, step, center) = torch.zeros(1, 256, dtype=torch.uint8), nf4_scales(1, 16)
    for given in (
        (packed[:, ::2], codes, step, center),
        (packed, codes[:, :15], step, center),
        (packed, codes, step.float(), center),
        (packed, codes, step, center.expand(2, 1)),
        (packed, nf4_scales(1, 32)[0], step, center),
    ):
        with pytest.raises(RuntimeError, match="this is no weight in blocks"):
            nf4_dense(*given, LEVELS)


MAKERS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "int4": lambda dense: Int4Tiles.from_float(dense, 32, 32),
    "nf4": lambda dense: NF4Weight.from_float(dense, 32),
}


class TestWhoCallsThem:
    @pytest.fixture(autouse=True)
    def of_many_rows(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Has products of many rows be those with dense weights."""
        say_dense_is_fast(monkeypatch)

    def model(self, kind: str, dtype: torch.dtype = torch.bfloat16) -> torch.nn.Module:
        torch.manual_seed(0)
        made = torch.nn.Sequential(torch.nn.Linear(64, 96), torch.nn.SiLU(), torch.nn.Linear(96, 32)).to(dtype)
        for layer in (made[0], made[2]):
            layer.weight = torch.nn.Parameter(MAKERS[kind](layer.weight.detach()), requires_grad=False)
        return made

    def operators(self, function: Callable[..., Any], *args: Any) -> set[str]:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as found:
            function(*args)
        return {event.name for event in found.events() if event.name.startswith("subclass_aot::")}  # type: ignore[union-attr]

    @pytest.mark.parametrize("kind", MAKERS)
    def test_eager_mode_and_eager(self, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
        model, x = self.model(kind), torch.randn(40, 64).bfloat16()
        compiled = sa.aot_compile(model)
        with torch.no_grad():
            compiled(x)
            for function in (model, compiled):
                assert self.operators(function, x) == {f"subclass_aot::{kind}_dense"}
            found = model(x), compiled(x)
            monkeypatch.setattr(hooks, "products", None)
            assert self.operators(model, x) == set()
            assert torch.equal(found[0], model(x)) and torch.equal(found[1], model(x))

    @pytest.mark.parametrize("kind", MAKERS)
    @pytest.mark.parametrize("compiler", ["inductor", sa.inductor("default")], ids=["name", "mode"])
    def test_inductor(self, kind: str, compiler: Any) -> None:
        model = self.model(kind)
        compiled = sa.aot_compile(model, fw_compiler=compiler, dynamic=True)
        for rows in (40, 24):
            x = torch.randn(rows, 64).bfloat16().requires_grad_()
            gradients = []
            for function in (compiled, model):
                (gradient,) = torch.autograd.grad(function(x).float().square().sum(), x)
                gradients.append(gradient)
            torch.testing.assert_close(*gradients, rtol=0.02, atol=0.02)
        with torch.no_grad():
            compiled(x)
            assert self.operators(compiled, x) == {f"subclass_aot::{kind}_dense"}

    @pytest.mark.parametrize("kind", MAKERS)
    def test_other_compilers_get_operators_of_torch(self, kind: str) -> None:
        seen: list[Any] = []

        def compiler(graph: Any, inputs: Any) -> Any:
            seen.extend(node.target for node in graph.graph.nodes if node.op == "call_function")
            return graph.forward

        model, x = self.model(kind), torch.randn(40, 64, requires_grad=True, dtype=torch.bfloat16)
        sa.aot_compile(model, fw_compiler=compiler)(x).sum().backward()
        sa.aot_compile(model, bw_compiler=compiler)(x).sum().backward()
        joint = sa.trace_joint(model, x).graph_module
        seen.extend(node.target for node in joint.graph.nodes if node.op == "call_function")
        assert len(seen) > 40 and not any("dense" in str(target) for target in seen)

    @pytest.mark.parametrize("kind", MAKERS)
    def test_they_are_in_runs_of_operators(self, kind: str, built: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
        model, x = self.model(kind), torch.randn(40, 64).bfloat16()
        run_natively(monkeypatch, built)
        compiled = sa.aot_compile(model)
        with torch.no_grad():
            found = compiled(x)
            assert self.operators(compiled, x) == {f"subclass_aot::{kind}_dense"}
            assert torch.equal(found, model(x))
        text = write_graph(compiled._specializations.latest.graphs.forward).__source__  # type: ignore[attr-defined]
        assert text.count("run(") == 1 and text.count("_dense(") == 2

    @pytest.mark.parametrize("kind", MAKERS)
    def test_gradients(self, kind: str) -> None:
        model = self.model(kind)
        gradients = []
        for function in (model, sa.aot_compile(model)):
            x = torch.randn(40, 64, generator=torch.Generator().manual_seed(2)).bfloat16().requires_grad_()
            function(x).square().sum().backward()
            gradients.append(x.grad)
        torch.testing.assert_close(*gradients)

    def test_scales_that_are_trained_keep_their_gradient(self) -> None:
        packed = torch.zeros(1, 32, 16, dtype=torch.uint8)
        scales = torch.randn(1, 32, 2).bfloat16().requires_grad_()
        products.dense(int4_dense, packed, 32, scales).sum().backward()
        assert scales.grad is not None

    @pytest.mark.parametrize("kind", MAKERS)
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
    def test_other_dtypes_are_computed_by_torch(self, kind: str, dtype: torch.dtype) -> None:
        model, x = self.model(kind, dtype), torch.randn(40, 64).to(dtype)
        with torch.no_grad():
            assert self.operators(model, x) == set()

    @pytest.mark.parametrize("part", ["codes", "step", "center"])
    def test_scales_in_another_form_are_computed_by_torch(self, part: str) -> None:
        """Codes column by column, and one step or center for all rows."""
        weight: Any = MAKERS["nf4"](torch.randn(96, 64).bfloat16())
        codes, step, center = weight.scales.codes, weight.scales.step, weight.scales.center
        forms = {
            "codes": (codes.t().contiguous().t(), step, center),
            "step": (codes, step[:1], center),
            "center": (codes, step, center[:1]),
        }
        expected = WRITTEN_OUT[nf4_dense](weight.packed, *forms[part], LEVELS)
        for function in (lambda w: w.to_plain(), sa.aot_compile(lambda w: w.to_plain() * 1)):
            assert torch.equal(function(NF4Weight(weight.packed, Scales(*forms[part]))), expected)

    @pytest.mark.parametrize("kind", MAKERS)
    def test_a_file_runs_without_the_kernel(self, kind: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        model, x = self.model(kind), torch.randn(40, 64).bfloat16()
        with torch.no_grad():
            compiled = sa.aot_compile(model)
            expected = compiled(x)
            compiled.save(tmp_path / "model")
            monkeypatch.setattr(hooks, "products", None)
            assert torch.equal(sa.load_compiled(tmp_path / "model", self.model(kind), trust=True)(x), expected)

    @pytest.mark.parametrize("kind", MAKERS)
    def test_an_export_has_operators_of_torch(self, kind: str) -> None:
        model, x = self.model(kind), torch.randn(40, 64).bfloat16()
        with torch.no_grad():
            program = sa.export_forward(sa.aot_compile(model), (x,))
        assert not any("dense" in str(node.target) for node in program.graph.nodes)
