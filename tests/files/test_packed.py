"""Weights as GPTQ and AWQ lay them out, and tensors that are no such weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import nn

import subclass_aot as sa
from subclass_aot.files import load_calibrated
from subclass_aot.tensors import Int4Weight, Int8Weight
from subclass_aot.tensors.reordered import Reordered
from tests.files.checkpoints import KINDS, LAYOUTS, Rounded, Small, config_of, small, write_tensors


def folder_of(weight: Rounded, layout: str, folder: Path, group: int = 32, **config: Any) -> Path:
    """A checkpoint of one layer."""
    write_tensors({f"0.{part}": value for part, value in LAYOUTS[layout](weight).items()}, folder)
    said = config_of(layout, group, weight.bits, **config)
    (folder / "config.json").write_text(json.dumps({"quantization_config": said}))
    return folder


def one(rows: int = 32, columns: int = 64, **options: Any) -> nn.Sequential:
    return nn.Sequential(nn.Linear(columns, rows, bias=False, **options))


@pytest.mark.every_case
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_codes_scales_and_zero_points_are_those_of_the_files(
    layout: str, kind: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    if layout == "awq" and kind == "act-order":
        pytest.skip("AWQ has none")
    weight = Rounded((32, 64), **KINDS[kind])
    assert kind == "symmetric" or {0, 15} <= set(weight.zeros.flatten().tolist()) or kind == "whole rows"
    model = one(dtype=dtype)
    load_calibrated(model, folder_of(weight, layout, tmp_path, KINDS[kind].get("group", 32)))
    found: Any = model[0].weight
    assert found.to_plain().equal(weight.dense(dtype)) and not found.requires_grad and found.dtype == dtype
    assert type(found.data) is (Reordered if kind == "act-order" else Int4Weight)
    scale = (found.base if kind == "act-order" else found).scale
    assert scale.shape == weight.scales.shape and scale.equal(weight.scales.to(dtype))
    x = torch.randn(3, 64, dtype=dtype)
    torch.testing.assert_close(model(x), x @ weight.dense(dtype).t())


@pytest.mark.parametrize("sym", [False, True])
@pytest.mark.parametrize("layout", ["gptq", "gptq_v2"])
def test_eight_bits_of_whole_rows(layout: str, sym: bool, tmp_path: Path) -> None:
    weight = Rounded((32, 64), -1, bits=8, sym=sym)
    model: Any = load_calibrated(one(), folder_of(weight, layout, tmp_path, -1))
    found = model[0].weight
    assert type(found.data) is Int8Weight and found.to_plain().equal(weight.dense())
    assert (found.zero_point is None) == sym


def test_groups_in_another_order_are_no_other_order_of_columns(tmp_path: Path) -> None:
    weight = Rounded((32, 64))
    weight.index = 1 - weight.index
    model: Any = load_calibrated(one(), folder_of(weight, "gptq", tmp_path))
    assert type(model[0].weight.data) is Int4Weight and model[0].weight.to_plain().equal(weight.dense())


BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "qzeros": ({"first.qzeros": None}, r"model.safetensors: first.qzeros is missing|: first.qzeros is missing"),
    "scales": ({"first.scales": torch.ones(3, 32).half()}, r"safetensors: first.scales is \(3, 32\), and \(2, 32\) is"),
    "words": ({"first.qweight": torch.ones(8, 32)}, r"safetensors: first.qweight is torch.float32, and words"),
    "floats": ({"first.scales": torch.ones(2, 32).int()}, r"safetensors: first.scales is torch.int32"),
    "groups": ({"first.g_idx": torch.zeros(64).int()}, r"safetensors: first.g_idx is not of 2 groups of 32 columns"),
    "numbers": ({"first.g_idx": torch.arange(64).int()}, r"safetensors: first.g_idx is not of 2 groups of 32 columns"),
    "a layer": ({"third.qweight": torch.ones(2).int()}, r"safetensors: third.qweight has no place in this Small"),
    "a size": ({"first.bias": torch.ones(3)}, r"safetensors: first.bias is \(3,\), and the model has \(32,\)"),
}


@pytest.mark.every_case
@pytest.mark.parametrize("name", BROKEN)
def test_tensors_that_do_not_fit(name: str, tmp_path: Path) -> None:
    changed, message = BROKEN[name]
    small(tmp_path)
    tensors: dict[str, Any] = safetensors.torch.load_file(tmp_path / "model.safetensors") | changed
    write_tensors({name: value for name, value in tensors.items() if value is not None}, tmp_path)
    model = Small()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(sa.errors.StateDictError, match=message):
        load_calibrated(model, tmp_path)
    assert all(value.equal(before[name]) for name, value in model.state_dict().items())


CONFIGS: dict[str, tuple[Any, str]] = {
    "none": (None, r"config.json has no quantization_config. Load a dense checkpoint"),
    "another": ({"quant_method": "bitnet"}, r'quant_method is "bitnet", and weights of "gptq" and "awq" can be read'),
    "marlin": (config_of("gptq") | {"checkpoint_format": "marlin"}, r'gptq in the format "marlin" have another layout'),
    "is marlin": (config_of("gptq", is_marlin_format=True), r'gptq in the format "marlin" have another layout'),
    "gemv": (config_of("awq") | {"version": "GEMV"}, r'awq in the format "gemv" have another layout than "gemm"'),
    "three": (config_of("gptq", bits=3), r"gptq with bits 3 and group_size 32; there are classes for 4 or 8 bits"),
    "awq of eight": (config_of("awq", bits=8), r"awq with bits 8 and group_size 32; there are classes for 4 bits"),
    "no group": (config_of("gptq", group=0), r"gptq with bits 4 and group_size 0"),
    "eight in groups": (config_of("gptq", bits=8), r"first.qweight has eight bits in groups of 32, and Int8Weight a"),
    "odd groups": (config_of("gptq", group=24), r"first.qweight has 64 columns, which groups of 24 do not divide"),
}


@pytest.mark.every_case
@pytest.mark.parametrize("name", CONFIGS)
def test_configurations_that_are_refused(name: str, tmp_path: Path) -> None:
    config, message = CONFIGS[name]
    small(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({} if config is None else {"quantization_config": config}))
    with pytest.raises(sa.errors.StateDictError, match=message):
        load_calibrated(Small(), tmp_path)
