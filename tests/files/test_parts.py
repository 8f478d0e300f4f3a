"""Experts: files have them one by one, and models of `transformers` as one parameter."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
import transformers
from transformers.core_model_loading import Transpose, WeightConverter

import subclass_aot as sa
from subclass_aot.files import load_calibrated
from tests.files.checkpoints import LAYOUTS, SIZES, Rounded, config_of, from_config, write_tensors, written

WORDS = torch.arange(3, 19).view(2, 8)


def mixtral() -> Any:
    config = transformers.MixtralConfig(**SIZES, num_local_experts=4, num_experts_per_tok=2)
    return transformers.MixtralForCausalLM(config)


def olmoe() -> Any:
    return transformers.OlmoeForCausalLM(transformers.OlmoeConfig(**SIZES, num_experts=4, num_experts_per_tok=2))


EXPERTS = {"mixtral": mixtral, "olmoe": olmoe}


def with_experts(make: Any, folder: Path, match: str, layout: str = "awq", **options: Any) -> Any:
    """Writes a model with names as `transformers` writes them, experts one by one, and returns the dense one."""
    torch.manual_seed(0)
    model = make()
    model.save_pretrained(folder / "theirs")
    tensors = safetensors.torch.load_file(folder / "theirs" / "model.safetensors")
    dense = dict(tensors)
    for seed, (name, value) in enumerate(tensors.copy().items()):
        if re.search(match, name) and value.dim() == 2:
            weight = Rounded(tuple(value.shape), seed=seed, **options)  # type: ignore[arg-type]
            del tensors[name]
            place = name.removesuffix(".weight")
            tensors |= {f"{place}.{part}": each for part, each in LAYOUTS[layout](weight).items()}
            dense[name] = weight.dense()
    for each, there in ((tensors, "theirs"), (dense, "dense")):
        model.save_pretrained(folder / there)
        write_tensors(each, folder / there)
    config = folder / "theirs" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"quantization_config": config_of(layout)}))
    return type(model).from_pretrained(folder / "dense")


@pytest.mark.every_case
@pytest.mark.parametrize("match", [r"experts|self_attn", r"self_attn"])
@pytest.mark.parametrize("name", EXPERTS)
def test_experts(name: str, match: str, tmp_path: Path) -> None:
    """A model has them as one parameter, also where they stayed dense."""
    dense = with_experts(EXPERTS[name], tmp_path, match)
    model = load_calibrated(from_config(tmp_path / "theirs"), tmp_path / "theirs")
    found = {place: w.cls for w in sa.tensors.weights_of(model).all for place in w.names}
    assert (found["model.layers.0.mlp.experts.gate_up_proj"] == "Int4Weight") == ("experts" in match)
    assert found["model.layers.1.self_attn.k_proj.weight"] == "Int4Weight"
    for place, value in sa.files.dense_state_dict(model).items():
        assert value.equal(dense.get_parameter(place)), place
    with torch.no_grad():
        torch.testing.assert_close(model(WORDS).logits, dense(WORDS).logits)
    model.save_pretrained(tmp_path / "ours")  # type: ignore[operator]
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "ours")
    assert all(
        value.equal(sa.files.dense_state_dict(model)[place])
        for place, value in sa.files.dense_state_dict(again).items()
    )  # fmt: skip


def test_experts_that_are_refused(tmp_path: Path) -> None:
    with_experts(mixtral, tmp_path, r"experts.[02].w[12]")
    with pytest.raises(
        sa.errors.StateDictError, match=r"experts.gate_up_proj: weights of experts are of one class and"
    ):
        load_calibrated(from_config(tmp_path / "theirs"), tmp_path / "theirs")
    with_experts(mixtral, tmp_path, r"experts", "gptq", act_order=True)
    with pytest.raises(sa.errors.StateDictError, match=r"these are Reordered. Instead: .* without desc_act"):
        load_calibrated(from_config(tmp_path / "theirs"), tmp_path / "theirs")
    with_experts(mixtral, tmp_path, r"experts")
    tensors = safetensors.torch.load_file(tmp_path / "theirs" / "model.safetensors")
    kept = {name: value for name, value in tensors.items() if "experts.1.w3" not in name}
    write_tensors(kept, tmp_path / "theirs")
    with pytest.raises(sa.errors.StateDictError, match=r"gate_up_proj: the files have no part 1 of expert 1"):
        load_calibrated(from_config(tmp_path / "theirs"), tmp_path / "theirs")


def test_other_conversions_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those by which `transformers` makes other weights of what files have."""
    turned = WeightConverter([".mlp.up_proj.weight"], ".mlp.up_proj.weight", [Transpose(0, 1)])
    monkeypatch.setattr("subclass_aot.files.transformers.get_model_conversion_mapping", lambda model: [turned])
    written(transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES)), tmp_path, "gptq")
    with pytest.raises(
        sa.errors.StateDictError,
        match=r"safetensors: model.layers.0.mlp.up_proj.qweight is a part of model.layers.0.mlp.up_proj.weight, which "
        r"transformers makes by Transpose; codes are not",
    ):
        load_calibrated(from_config(tmp_path), tmp_path)
