"""Products with the weights of several experts are those of the dense ones, and make those dense that are visited."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch.utils._python_dispatch import TorchDispatchMode

import subclass_aot as sa

CLASSES: dict[str, Callable[[torch.Tensor], Any]] = {
    "Int8Weight": sa.Int8Weight.from_float,
    "with a zero point": lambda w: sa.Int8Weight(
        torch.randint(-9, 9, w.shape, dtype=torch.int8), torch.rand(*w.shape[:-1], 1), torch.ones(*w.shape[:-1], 1)
    ),
    "Int8DynamicWeight": sa.tensors.Int8DynamicWeight.from_float,
    "Float8Weight": sa.tensors.Float8Weight.from_float,
    "Int4Weight": sa.tensors.Int4Weight.from_float,
    "NF4Weight": sa.tensors.NF4Weight.from_float,
}
OFFS = {"some": [2, 2, 5, 6], "one": [0, 0, 6, 6], "fewer rows": [1, 2, 3, 4], "none": [0, 0, 0, 0]}


def grouped(x: torch.Tensor, weights: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
    return torch._grouped_mm(x, weights.transpose(-2, -1), offs=offs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("rows", OFFS)
@pytest.mark.parametrize("name", CLASSES)
def test_they_are_those_of_dense_weights(name: str, rows: str, dtype: torch.dtype) -> None:
    if name == "with a zero point":
        dtype = torch.float32
    weights, offs = CLASSES[name](torch.randn(4, 32, 64, dtype=dtype)), torch.tensor(OFFS[rows], dtype=torch.int32)
    x = torch.randn(6, 64, dtype=dtype, requires_grad=True)
    count = OFFS[rows][-1]
    expected = grouped(x, weights.to_plain(), offs)[:count]
    (gradient,) = torch.autograd.grad(expected.float().square().sum(), x)
    close = {"atol": 0.3, "rtol": 0.1} if dtype is torch.bfloat16 else {"atol": 1e-3, "rtol": 1e-3}
    for run in (grouped, sa.aot_compile(grouped)):
        found = run(x, weights, offs)[:count]
        torch.testing.assert_close(found, expected, **close)
        (own,) = torch.autograd.grad(found.float().square().sum(), x)
        torch.testing.assert_close(own[:count], gradient[:count], atol=30 * close["atol"], rtol=close["rtol"])


class Dense(TorchDispatchMode):
    """Counts the elements of floats that operators make."""

    elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if type(found) is torch.Tensor and found.is_floating_point():
            self.elements = max(self.elements, found.numel())
        return found


@pytest.mark.parametrize("name", CLASSES)
def test_a_graph_has_one_operator_and_its_products(name: str) -> None:
    weights, offs = CLASSES[name](torch.randn(4, 32, 64)), torch.tensor([2, 2, 5, 6], dtype=torch.int32)
    x = torch.randn(6, 64)
    compiled = sa.aot_compile(grouped)
    is_own = name != "Int8DynamicWeight"  # which rounds the other operand, and has a rule of its own
    text = str(compiled.stages(x, weights, offs).forward)
    assert ("subclass_aot_tensors.experts_mm" in text) == is_own and ("aten._grouped_mm" in text) != is_own
    if is_own:
        assert sa.profile(grouped, x, weights, offs).flops() == 2 * 6 * 64 * 32
        with Dense() as dense:
            grouped(x, weights, offs)
        assert dense.elements < 4 * 32 * 64


@pytest.mark.parametrize("cls", [sa.Int8Weight, sa.tensors.Int4Weight])
@pytest.mark.parametrize("how", ["eager", "grouped_mm", "batched_mm"])
def test_a_mixture_of_experts(how: str, cls: Any) -> None:
    config = transformers.OlmoeConfig(
        hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, vocab_size=100,
        num_experts=4, num_experts_per_tok=2, pad_token_id=0, eos_token_id=2,
    )  # fmt: skip
    torch.manual_seed(0)
    model: Any = transformers.OlmoeForCausalLM(config).eval()
    dense: Any = transformers.OlmoeForCausalLM(config).eval()
    sa.quantize_(model, {"*.experts.*": cls, "lm_head": None, "*": sa.Int8Weight})
    dense.load_state_dict(sa.files.dense_state_dict(model))
    for each in (model, dense):
        each.set_experts_implementation(how)
    words = torch.randint(3, 100, (2, 5))
    compiled = sa.aot_compile(model)
    for _ in range(2):
        torch.testing.assert_close(model(words).logits, dense(words).logits, atol=2e-3, rtol=2e-3)
        torch.testing.assert_close(compiled(words).logits, dense(words).logits, atol=2e-3, rtol=2e-3)
        words = torch.randint(3, 100, (2, 5))


def test_a_file_has_it(tmp_path: Path) -> None:
    weights, offs = sa.tensors.NF4Weight.from_float(torch.randn(4, 32, 64)), torch.tensor([2, 2, 5, 6])
    x, compiled = torch.randn(6, 64), sa.aot_compile(grouped)
    expected = compiled(x, weights, offs.int())
    compiled.save(tmp_path / "experts.sa")
    assert torch.equal(sa.load_compiled(tmp_path / "experts.sa", trust=True)(x, weights, offs.int()), expected)


def test_other_numbers_of_rows() -> None:
    weights, compiled = sa.Int8Weight.from_float(torch.randn(4, 32, 64)), sa.aot_compile(grouped)
    for rows in (6, 9, 3, 12):
        offs, x = torch.tensor([0, rows // 3, rows // 3, rows], dtype=torch.int32), torch.randn(rows, 64)
        torch.testing.assert_close(compiled(x, weights, offs), grouped(x, weights, offs))
    assert len(compiled.recompiles) == 1
