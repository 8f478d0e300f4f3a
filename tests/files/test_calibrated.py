"""Checkpoints of GPTQ and AWQ against the dense weights that they stand for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
import transformers

import subclass_aot as sa
from subclass_aot.files import load_calibrated
from subclass_aot.tensors import Int4Tiles, Int4Weight
from subclass_aot.tensors.reordered import Reordered
from tests.files.checkpoints import KINDS, LAYOUTS, SIZES, Small, from_config, small, write_tensors, written

WORDS = torch.arange(3, 19).view(2, 8)


def llama(**options: Any) -> Any:
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES, **options)).eval()


@pytest.mark.every_case
@pytest.mark.parametrize("device", ["meta", "cpu"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_llama(layout: str, kind: str, device: str, tmp_path: Path) -> None:
    """Loaded, compiled, saved by `transformers` and by a file of its own, and loaded again: always the same logits."""
    if layout == "awq" and kind == "act-order":
        pytest.skip("AWQ has none")
    tied, shards = kind == "symmetric", 3 if device == "meta" else 1
    dense: Any = written(
        llama(tie_word_embeddings=tied, attention_bias=kind == "asymmetric"),
        tmp_path / "theirs", layout, shards=shards, **KINDS[kind],
    )  # fmt: skip
    model = from_config(tmp_path / "theirs", device=device)
    assert load_calibrated(model, tmp_path / "theirs") is model
    quantized = [w for w in sa.tensors.weights_of(model).all if w.cls != "dense"]
    assert len(quantized) == 14 and (model.lm_head.weight is model.model.embed_tokens.weight) == tied
    for name, value in sa.files.dense_state_dict(model).items():
        assert value.equal(dense.get_parameter(name)), name
    with torch.no_grad():
        expected = dense(WORDS).logits
        torch.testing.assert_close(model(WORDS).logits, expected)
        compiled = sa.aot_compile(model, fw_compiler="eager")
        torch.testing.assert_close(compiled(WORDS).logits, expected)
    model.save_pretrained(tmp_path / "ours")
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "ours")
    sa.files.save_file(model, tmp_path / "model.safetensors")
    other = llama(tie_word_embeddings=tied, attention_bias=kind == "asymmetric")
    other.load_state_dict(sa.files.load_file(tmp_path / "model.safetensors"), assign=True)
    with torch.no_grad():
        for each in (again, other):
            assert each(WORDS).logits.equal(model(WORDS).logits)


def test_the_model_below_a_head(tmp_path: Path) -> None:
    """As `from_pretrained` does: names with the prefix of a model, or without."""
    dense: Any = written(llama(), tmp_path, "awq")
    with torch.device("meta"):
        model = transformers.AutoModel.from_config(transformers.AutoConfig.from_pretrained(tmp_path))
    load_calibrated(model, tmp_path, strict=False)
    with torch.no_grad():
        torch.testing.assert_close(model(WORDS).last_hidden_state, dense.model(WORDS).last_hidden_state)


def test_training_beside_them(tmp_path: Path) -> None:
    written(llama(), tmp_path, "gptq", act_order=True)
    model: Any = load_calibrated(from_config(tmp_path), tmp_path)
    sa.quantize_(model, lambda weight: sa.tensors.LoraWeight.beside(weight, rank=2), "*.q_proj")
    for layer in model.model.layers:
        sa.train_fields(layer.self_attn.q_proj, "weight", "left", "right")
    sa.aot_compile(model)(input_ids=WORDS, labels=WORDS).loss.backward()
    trained = {name: p.grad for name, p in model.named_parameters() if p.requires_grad and "q_proj" in name}
    assert (
        len(trained) == 4 and sum(bool(grad.any()) for grad in trained.values()) == 2
    )  # right factors, from zero left


def test_tiles(tmp_path: Path) -> None:
    """As `quantize_` makes them: where the kernel takes the weight."""
    dense: Any = written(llama().bfloat16(), tmp_path, "gptq", act_order=True)
    model = load_calibrated(from_config(tmp_path, torch.bfloat16), tmp_path, tiles=True)
    quick = sa.quantize_(llama().bfloat16(), Int4Weight, "model.*")
    for name, parameter in quick.named_parameters():
        if type(parameter.data) in (Int4Weight, Int4Tiles):
            found: Any = model.get_parameter(name).data
            assert type(found) is Reordered and type(found.base) is type(parameter.data)
            torch.testing.assert_close(found.to_plain(), dense.get_parameter(name).data, rtol=0.02, atol=2e-3)
    with torch.no_grad():
        torch.testing.assert_close(model(WORDS).logits, dense(WORDS).logits, rtol=0.1, atol=0.05)


def test_what_loses_nothing_is_passed_over(tmp_path: Path) -> None:
    """Old files have a bias of zeros for each layer, and buffers that the model has by itself now."""
    dense = small(tmp_path)
    tensors = safetensors.torch.load_file(tmp_path / "model.safetensors")
    others = {"second.bias": torch.zeros(8), "first.shift": torch.ones(3)}
    write_tensors(tensors | others, tmp_path)
    x = torch.randn(3, 64)
    torch.testing.assert_close(load_calibrated(Small(), tmp_path)(x), dense(x))
    write_tensors(tensors | others | {"second.bias": torch.ones(8)}, tmp_path)
    with pytest.raises(sa.errors.StateDictError, match=r"model.safetensors: second.bias has no place in this Small"):
        load_calibrated(Small(), tmp_path)


def test_what_is_not_there(tmp_path: Path) -> None:
    dense = small(tmp_path)
    tensors = safetensors.torch.load_file(tmp_path / "model.safetensors")
    del tensors["first.bias"]
    write_tensors(tensors, tmp_path)
    with pytest.raises(sa.errors.StateDictError, match=r"has no first.bias of this Small. strict=False leaves"):
        load_calibrated(Small(), tmp_path)
    model = Small()
    before = model.first.bias.detach().clone()
    load_calibrated(model, tmp_path, strict=False)
    assert model.first.bias.equal(before) and model.first.weight.to_plain().equal(dense.first.weight)  # type: ignore[operator]
    for strict in (False, True):
        with torch.device("meta"):
            model = Small()
        with pytest.raises(sa.errors.StateDictError, match=r"has no first.bias(, shift, and this Small| of this)"):
            load_calibrated(model, tmp_path, strict=strict)
        assert model.first.weight.is_meta  # nothing was changed
