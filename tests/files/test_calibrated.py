"""Checkpoints of GPTQ and AWQ against the dense weights that they stand for."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
import transformers
from torch import nn
from transformers.core_model_loading import Transpose, WeightConverter

import subclass_aot as sa
from subclass_aot.files import load_calibrated
from subclass_aot.tensors import Int4Tiles, Int4Weight, Int8Weight
from subclass_aot.tensors.reordered import Reordered
from tests.files.checkpoints import LAYOUTS, Rounded, config_of, write_tensors, written

SIZES: dict[str, Any] = {
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 96,
    "num_key_value_heads": 2, "eos_token_id": 2, "pad_token_id": 0, "bos_token_id": 1,
}  # fmt: skip
WORDS = torch.arange(3, 19).view(2, 8)


class Small(nn.Module):
    """Two layers, one of which has a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 32), nn.Linear(32, 8, bias=False)
        self.register_buffer("shift", torch.zeros(8), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x).relu()) + self.shift  # type: ignore[no-any-return]


def llama(**options: Any) -> Any:
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES, **options)).eval()


def from_config(folder: Path, dtype: torch.dtype = torch.float32, device: str = "meta") -> Any:
    """A model as its configuration says."""
    config = transformers.AutoConfig.from_pretrained(folder)
    with torch.device(device):
        return transformers.AutoModelForCausalLM.from_config(config, dtype=dtype).eval()


KINDS: dict[str, dict[str, Any]] = {
    "asymmetric": {},
    "symmetric": {"sym": True},
    "whole rows": {"group": -1},
    "act-order": {"act_order": True},
}


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
    written(llama(), tmp_path, "gptq")
    with pytest.raises(
        sa.errors.StateDictError,
        match=r"safetensors: model.layers.0.mlp.up_proj.qweight is a part of model.layers.0.mlp.up_proj.weight, which "
        r"transformers makes by Transpose; codes are not",
    ):
        load_calibrated(from_config(tmp_path), tmp_path)


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


def small(folder: Path, **options: Any) -> Any:
    return written(Small(), folder, "gptq", match="", **options)


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


def test_folders_that_are_refused(tmp_path: Path) -> None:
    with pytest.raises(sa.errors.StateDictError, match=r"config.json cannot be read"):
        load_calibrated(Small(), tmp_path)
    small(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "gptq_model-4bit-32g.safetensors")
    load_calibrated(Small(), tmp_path)  # as the writers of such checkpoints name it
    (tmp_path / "other.safetensors").write_bytes(b"")
    with pytest.raises(sa.errors.StateDictError, match=r"has gptq_model-4bit-32g.safetensors, other.safetensors; one"):
        load_calibrated(Small(), tmp_path)
    (tmp_path / "gptq_model-4bit-32g.safetensors").unlink()
    with pytest.raises(sa.errors.StateDictError, match=r"other.safetensors is no safetensors file that can be read"):
        load_calibrated(Small(), tmp_path)
    write_tensors(Small().state_dict(), tmp_path)
    with pytest.raises(sa.errors.StateDictError, match=r"has no tensor of a name that ends in .qweight"):
        load_calibrated(Small(), tmp_path)
    written(nn.Sequential(nn.Linear(32, 8)), tmp_path / "other", "awq", match="")
    with pytest.raises(
        sa.errors.StateDictError, match=r"safetensors: 0.qweight is of a Embedding in the model, and no linear layer"
    ):
        load_calibrated(nn.Sequential(nn.Embedding(8, 32)), tmp_path / "other")
