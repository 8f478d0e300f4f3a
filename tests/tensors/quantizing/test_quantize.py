"""Replacing the weights of models."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import nn

import subclass_aot as sa
from subclass_aot import Float8Weight, Int4Weight, Int8Weight, LoraWeight, NF4Weight, Sparse24Weight, quantize_
from tests.tensors.checks import same


def nested() -> nn.ModuleDict:
    torch.manual_seed(0)
    block = {"up": nn.Linear(8, 16), "act": nn.GELU(), "down": nn.Linear(16, 8, bias=False), "norm": nn.LayerNorm(8)}
    return nn.ModuleDict({"embed": nn.Embedding(5, 8), "first": nn.ModuleDict(block), "head": nn.Linear(8, 5)})


def replaced(module: nn.Module) -> set[str]:
    return {name for name, p in module.named_parameters(remove_duplicate=False) if type(p.data) is not torch.Tensor}


LINEAR = {"first.up.weight", "first.down.weight", "head.weight"}


@pytest.mark.parametrize(
    "match, names",
    [
        ("*", LINEAR),
        ("first.*", LINEAR - {"head.weight"}),
        ("*.up", {"first.up.weight"}),
        ("head", {"head.weight"}),
        ("[!h]*", LINEAR - {"head.weight"}),
        (lambda name, layer: name == "embed", {"embed.weight"}),
        (lambda name, layer: isinstance(layer, nn.Linear) and layer.bias is None, {"first.down.weight"}),
    ],
)
def test_which_layers(match: Any, names: set[str]) -> None:
    module = nested()
    before = {name: p.detach().clone() for name, p in module.named_parameters()}
    assert quantize_(module, Int8Weight, match) is module
    assert replaced(module) == names
    for name, parameter in module.named_parameters():
        assert isinstance(parameter, nn.Parameter)
        assert parameter.requires_grad == (name not in names)
        expected = Int8Weight.from_float(before[name]) if name in names else before[name]
        same(parameter.data, expected)


def test_a_layer_by_itself() -> None:
    layer = nn.Linear(8, 4)
    assert type(quantize_(layer, Int8Weight).weight.data) is Int8Weight


def test_a_function_of_the_weight() -> None:
    module = quantize_(nested(), functools.partial(Int4Weight.from_float, group=4), "first.*")
    assert module["first"]["up"].weight.scale.shape == (16, 2)  # type: ignore[index]
    quantize_(module, lambda weight: LoraWeight.beside(weight, rank=2), "first.*")  # what is quantized may be so again
    weight: Any = module["first"]["up"].weight  # type: ignore[index]
    assert type(weight.base) is Int4Weight and weight.left.shape == (16, 2)


def test_tied_weights_stay_tied() -> None:
    module = nested()
    module["head"].weight = module["embed"].weight
    module["again"] = module["head"]
    quantize_(module, Int8Weight, lambda name, layer: isinstance(layer, nn.Linear | nn.Embedding))
    assert module["head"].weight is module["embed"].weight is module["again"].weight
    assert type(module["head"].weight.data) is Int8Weight
    words = torch.tensor([0, 3])
    torch.testing.assert_close(module["embed"](words), module["head"].weight.to_plain()[words])


def test_tied_to_a_layer_that_is_not_chosen() -> None:
    """Both are replaced, or neither: a head alone would take more memory, and `tie_weights()` would undo it."""
    module = nested()
    module["head"].weight = module["embed"].weight
    with pytest.warns(UserWarning, match="12% of this ModuleDict stays dense: embed.weight.\n  A head is the weight"):
        quantize_(module, Int8Weight)
    assert replaced(module) == LINEAR - {"head.weight"} and module["head"].weight is module["embed"].weight
    with pytest.raises(ValueError, match=r"head\.weight is embed\.weight, too, which is not chosen"):
        quantize_(module, Int8Weight, "head")


def test_several_classes_by_patterns() -> None:
    module = nested()
    module["first"]["more"] = nn.Linear(16, 16)  # type: ignore[operator]
    int4 = functools.partial(Int4Weight.from_float, group=4)
    module = quantize_(module, {"*.up": int4, "head": None, "*": Int8Weight})
    found = {x.names[0]: x.cls for x in sa.tensors.weights_of(module).all if x.cls != "dense"}
    assert found == {
        "first.up.weight": "Int4Weight", "first.down.weight": "Int8Weight", "first.more.weight": "Int8Weight"
    }  # fmt: skip
    with pytest.raises(ValueError, match="beside patterns"):
        quantize_(module, {"*": Int8Weight}, "head")
    with pytest.raises(ValueError, match="fits any of the patterns"):
        quantize_(module, {"none": Int8Weight})


@pytest.mark.parametrize("to", [Int8Weight, Int8Weight.from_float, functools.partial(NF4Weight.from_float, block=4)])
def test_twice_is_refused(to: Any) -> None:
    module = quantize_(nested(), Int8Weight, "first.*")
    before = dict(module.named_parameters())
    with pytest.raises(ValueError, match=r"first\.up\.weight \(16, 8\) is a Int8Weight already"):
        quantize_(module, to)
    assert all(module.get_parameter(name) is p for name, p in before.items())


class Experts(nn.Module):
    """As transformers has them: a parameter of three dims for all."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Parameter(torch.randn(3, 16, 8))
        self.down = nn.Parameter(torch.randn(3, 8, 16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = [nn.functional.linear(nn.functional.linear(x, self.up[i]).relu(), self.down[i]) for i in range(3)]
        return torch.stack(parts).sum(0)


def with_experts() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), nn.ModuleDict({"experts": Experts()})["experts"], nn.Conv1d(1, 2, 3))


def test_a_warning_says_what_stays_dense() -> None:
    module = with_experts()
    with pytest.warns(UserWarning, match=r'stays dense: 1.up, 1.down(.|\n)*match="\*.1.up"(.|\n)*weights_of'):
        quantize_(module, Int8Weight)
    found = sa.tensors.weights_of(module)
    assert {x.names[0] for x in found.dense[:2]} == {"1.up", "1.down"} and "dense" in str(found)


@pytest.mark.every_case
@pytest.mark.parametrize(
    "cls",
    [
        Int8Weight,
        sa.tensors.Int8DynamicWeight,
        Float8Weight,
        functools.partial(Int4Weight.from_float, group=4),
        functools.partial(NF4Weight.from_float, block=4),
    ],
)
def test_experts(cls: Any) -> None:
    module, reference = with_experts(), with_experts()
    quantize_(module, {"1.*": cls, "*": Int8Weight})
    assert replaced(module) == {"0.weight", "1.up", "1.down"}
    reference.load_state_dict(sa.files.dense_state_dict(module))
    x = torch.randn(5, 8)
    for run in (module[:2], sa.aot_compile(module[:2])):  # type: ignore[index]
        torch.testing.assert_close(run(x), reference[:2](x), atol=0.2, rtol=0.1)  # type: ignore[index]


@pytest.mark.parametrize(
    "to, match, text",
    [
        (Int8Weight, "none.*", r"quantize_: no layer of this ModuleDict fits match='none\.\*'"),
        (
            Int4Weight,
            "*",
            r"quantize_: first\.up\.weight \(16, 8\) cannot be replaced: the rows of a weight of \(16, 8\)",
        ),
        (Sparse24Weight, lambda name, layer: name in ("head", "first.norm"), r"quantize_: first\.norm\.weight \(8,\)"),
        (Int8Weight, lambda name, layer: name == "first.act", r"quantize_: first\.act has no weight"),
        (Int8Weight, lambda name, layer: True, r"quantize_: the module itself has no weight"),
        (lambda weight: weight.tolist(), "*", r"quantize_: first\.up\.weight \(16, 8\) cannot be replaced: .*list"),
        (lambda weight: weight[:2], "*", r"quantize_: first\.up\.weight \(16, 8\) cannot be replaced: .*\(2, 8\)"),
    ],
)
def test_a_refusal_leaves_the_module_as_it_was(to: Any, match: Any, text: str) -> None:
    module = nested()
    before = dict(module.named_parameters())
    with pytest.raises(ValueError, match=text):
        quantize_(module, to, match)
    after = dict(module.named_parameters())
    assert list(after) == list(before) and all(after[name] is before[name] for name in before)


def test_a_class_without_from_float() -> None:
    with pytest.raises(ValueError, match=r"quantize_: TwoTensor has no from_float.*a function of the weight"):
        quantize_(nested(), sa.TwoTensor)


CONFIG = transformers.LlamaConfig(
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    vocab_size=64,
    tie_word_embeddings=True,
)

CLASSES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "Int8Weight": Int8Weight.from_float,
    "Int4Weight": Int4Weight.from_float,
    "NF4Weight": NF4Weight.from_float,
    "Float8Weight": Float8Weight.from_float,
    "Sparse24Weight": Sparse24Weight.from_float,
    "LoraWeight": LoraWeight.beside,
}


@pytest.mark.parametrize("name", CLASSES)
def test_llama(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model: Any = transformers.LlamaForCausalLM(CONFIG).eval()
    reference: Any = transformers.LlamaForCausalLM(CONFIG).eval()
    quantize_(model, CLASSES[name], "model.layers.*")
    assert len(replaced(model)) == 14 and model.lm_head.weight is model.model.embed_tokens.weight
    reference.load_state_dict(sa.files.dense_state_dict(model))
    words = torch.randint(0, 64, (2, 8))
    compiled = sa.aot_compile(model)
    for run in (model, compiled):
        loss, want = (each(words, labels=words).loss for each in (run, reference))
        torch.testing.assert_close(loss, want)
        loss.backward()
        want.backward()
        torch.testing.assert_close(model.lm_head.weight.grad, reference.lm_head.weight.grad, rtol=1e-4, atol=1e-5)
        model.zero_grad()
        reference.zero_grad()
    with torch.inference_mode():
        torch.testing.assert_close(compiled(words).logits, reference(words).logits)
    sa.files.save_file(model, tmp_path / "model.safetensors")
    other: Any = transformers.LlamaForCausalLM(CONFIG).eval()
    other.load_state_dict(sa.files.load_file(tmp_path / "model.safetensors"), assign=True)
    for mine, theirs in zip(other.state_dict().values(), model.state_dict().values(), strict=True):
        same(mine, theirs)
