"""Quantized models of `transformers`, by its own `from_pretrained` and `save_pretrained`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import nn

import subclass_aot as sa
from subclass_aot.files.transformers import QuantizationConfig, attach

transformers.logging.disable_progress_bar()

SMALL: dict[str, Any] = {
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100,
    "eos_token_id": 2, "pad_token_id": 0, "bos_token_id": 1,
}  # fmt: skip
WORDS = torch.arange(3, 19).view(2, 8)


def llama(**options: Any) -> Any:
    config = transformers.LlamaConfig(**SMALL, num_key_value_heads=2, **options)
    return transformers.LlamaForCausalLM(config)


def olmoe() -> Any:
    config = transformers.OlmoeConfig(**SMALL, num_experts=4, num_experts_per_tok=2)
    return transformers.OlmoeForCausalLM(config)


def t5() -> Any:
    config = transformers.T5Config(
        d_model=64, d_ff=128, num_layers=1, num_heads=2, d_kv=32, vocab_size=100, decoder_start_token_id=0
    )
    return transformers.T5ForConditionalGeneration(config)


MODELS: dict[str, Callable[[], Any]] = {
    "llama": llama,
    "tied": lambda: llama(tie_word_embeddings=True),
    "experts": olmoe,
    "t5": t5,
}
WEIGHTS: dict[str, Any] = {
    "a name": "Int8Weight",
    "a class": sa.tensors.NF4Weight,
    "by patterns": {
        "*.experts.*": "Int4Weight", "*.self_attn.*": {"class": "Int4Weight", "group": 32}, "*": "Int8Weight"
    },
}  # fmt: skip


def saved(make: Callable[[], Any], place: Path) -> Any:
    torch.manual_seed(0)
    model = make().eval()
    model.save_pretrained(place)
    return model


def generated(model: Any) -> torch.Tensor:
    found: torch.Tensor = model.generate(WORDS, max_new_tokens=5, do_sample=False)
    return found


def classes(model: nn.Module) -> dict[str, str]:
    return {name: x.cls for x in sa.tensors.weights_of(model).all for name in x.names}


def same(one: nn.Module, other: nn.Module) -> bool:
    dense, others = map(sa.files.dense_state_dict, (one, other))
    return classes(one) == classes(other) and all(torch.equal(x, others[name]) for name, x in dense.items())


@pytest.mark.every_case
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("name", MODELS)
def test_loaded_saved_and_loaded_again(name: str, weights: str, dtype: torch.dtype, tmp_path: Path) -> None:
    dense = saved(lambda: MODELS[name]().to(dtype), tmp_path / "dense")
    model = type(dense).from_pretrained(
        tmp_path / "dense", dtype=dtype, quantization_config=QuantizationConfig(WEIGHTS[weights])
    )
    assert set(classes(model).values()) > {"dense"} and model.dtype == dtype
    assert name == "t5" or classes(model)["model.layers.0.self_attn.q_proj.weight"] != "dense"
    assert name != "experts" or (weights == "by patterns") == (
        classes(model)["model.layers.0.mlp.experts.down_proj"] == "Int4Weight"
    )
    previous = model
    for step in range(2):  # what was loaded is saved once more
        place = tmp_path / str(step)
        previous.save_pretrained(place, max_shard_size="50KB")
        assert len(list(place.glob("*.safetensors"))) > 1
        again = type(dense).from_pretrained(place)
        assert same(again, model) and again.dtype == dtype
        assert torch.equal(generated(again), generated(model))
        assert not any(p.requires_grad for n, p in again.named_parameters() if classes(again)[n] != "dense")
        previous = again


def test_as_quantize_does(tmp_path: Path) -> None:
    dense = saved(llama, tmp_path)
    model = llama().from_pretrained(tmp_path, quantization_config=QuantizationConfig("Int8Weight"))
    assert same(model, sa.quantize_(dense, sa.Int8Weight, "model.*"))


def test_what_is_not_converted(tmp_path: Path) -> None:
    saved(llama, tmp_path)
    config = QuantizationConfig("Int8Weight", modules_to_not_convert=["model.layers.1", "down_proj"])
    found = classes(transformers.LlamaForCausalLM.from_pretrained(tmp_path, quantization_config=config))
    quantized = {name for name, cls in found.items() if cls == "Int8Weight"}
    assert "lm_head.weight" in quantized  # which is one by default
    assert not any("layers.1." in name or "down_proj" in name for name in quantized) and len(quantized) == 7


def test_in_another_process(tmp_path: Path) -> None:
    saved(llama, tmp_path / "dense")
    model = transformers.LlamaForCausalLM.from_pretrained(
        tmp_path / "dense", quantization_config=QuantizationConfig({"*.mlp.*": "NF4Weight", "*": "Int8Weight"})
    )
    model.save_pretrained(tmp_path / "out")
    rules = json.loads((tmp_path / "out" / "config.json").read_text())["quantization_config"]["weights"]
    assert rules == [["*.mlp.*", {"class": "NF4Weight"}], ["*", {"class": "Int8Weight"}]]
    program = (
        "import sys, torch, transformers, subclass_aot.files.transformers\n"
        "model = transformers.AutoModelForCausalLM.from_pretrained(sys.argv[1])\n"
        "words = torch.arange(3, 19).view(2, 8)\n"
        "print(model.generate(words, max_new_tokens=5, do_sample=False).tolist())\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "out")]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(ran.stdout.splitlines()[-1]) == generated(model).tolist()


@pytest.mark.parametrize("name", ["llama", "experts"])
def test_what_quantize_has_made_is_saved(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = sa.quantize_(MODELS[name]().eval(), {"*.experts.*": sa.Int8Weight, "model.layers.*": sa.Int8Weight})
    expected = generated(model)
    attach(model).save_pretrained(tmp_path)
    again = type(model).from_pretrained(tmp_path)  # type: ignore[attr-defined]
    assert same(again, model) and torch.equal(generated(again), expected)


def test_compiled_trained_beside_and_dequantized(tmp_path: Path) -> None:
    saved(llama, tmp_path)
    model = llama().from_pretrained(tmp_path, quantization_config=QuantizationConfig("Int8Weight"))
    compiled = sa.aot_compile(model)
    torch.testing.assert_close(compiled(WORDS).logits, model(WORDS).logits)
    loss = model(WORDS, labels=WORDS).loss
    loss.backward()
    assert model.model.embed_tokens.weight.grad is not None
    plain = sa.files.dense_state_dict(model)
    dense = model.dequantize()
    assert set(classes(dense).values()) == {"dense"} and not hasattr(dense.config, "quantization_config")
    assert all(torch.equal(x, plain[name]) for name, x in dense.state_dict().items())


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="'TwoTensor' is no class that rounds weights; there are Float8Weight, "):
        QuantizationConfig("TwoTensor")
    saved(llama, tmp_path)
    load = transformers.LlamaForCausalLM.from_pretrained
    with pytest.raises(ValueError, match="no weight of this LlamaForCausalLM was replaced"):
        load(tmp_path, quantization_config=QuantizationConfig({"nothing": "Int8Weight"}))
    with pytest.raises(ValueError, match="groups of 24"):
        load(tmp_path, quantization_config=QuantizationConfig({"class": "Int4Weight", "group": 24}))


@pytest.mark.parametrize("device_map", [{"model": 0, "lm_head": "cpu"}, {"model": "disk", "": "cpu"}])
def test_offloading_is_refused(device_map: dict[str, Any]) -> None:
    from subclass_aot.files.transformers import Quantizer

    with pytest.raises(ValueError, match="device_map puts parts of the model on (cpu|disk), and accelerate"):
        Quantizer(QuantizationConfig(), pre_quantized=False).validate_environment(device_map=device_map)
