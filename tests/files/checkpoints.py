"""Checkpoints of GPTQ and AWQ, written by the published layouts, one word at a time."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
import transformers
from torch import nn

SIZES: dict[str, Any] = {
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 96,
    "num_key_value_heads": 2, "eos_token_id": 2, "pad_token_id": 0, "bos_token_id": 1,
}  # fmt: skip
"""Of small models."""

KINDS: dict[str, dict[str, Any]] = {
    "asymmetric": {},
    "symmetric": {"sym": True},
    "whole rows": {"group": -1},
    "act-order": {"act_order": True},
}
"""Of checkpoints, by arguments of `Rounded`."""

WORD = 2**32
ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
"""Which of eight columns is in each place of a word of AWQ, the lowest first."""


class Rounded:
    """A weight `[M, N]` in codes, as a quantizer with data gives it: here, of any values.

    Args:
        size: M and N.
        group: How many columns share a scale; -1 for all.
        bits: Of a code.
        sym: Whether all zero points are in the middle.
        act_order: Whether columns were grouped in another order.
        seed: Of the values.
    """

    def __init__(
        self,
        size: tuple[int, int],
        group: int = 32,
        bits: int = 4,
        sym: bool = False,
        act_order: bool = False,
        seed: int = 0,
    ) -> None:
        generator = torch.Generator().manual_seed(seed)
        rows, columns = size
        self.bits, levels = bits, 2**bits
        groups = columns // (columns if group == -1 else group)
        self.codes = torch.randint(0, levels, size, generator=generator)
        self.zeros = torch.randint(0, levels, (rows, groups), generator=generator)
        if sym:
            self.zeros.fill_(levels // 2)
        self.scales = (torch.rand(rows, groups, generator=generator) / levels / 4 + 0.001).half()
        self.index = torch.arange(columns) // (columns // groups)
        if act_order:
            self.index = self.index[torch.randperm(columns, generator=generator)]

    def dense(self, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """What it stands for: `scale * (code - zero)`, each with those of the group of its column."""
        scales, zeros = self.scales.to(dtype)[:, self.index], self.zeros[:, self.index]
        return scales * (self.codes - zeros).to(dtype)


def word(codes: list[int], bits: int) -> int:
    """Integers of so many bits in one of 32 with a sign, the first lowest."""
    found = sum((code % 2**bits) << bits * place for place, code in enumerate(codes))
    return found - WORD if found >= WORD // 2 else found


def words(codes: list[int], bits: int) -> list[int]:
    """The words of a row, in order."""
    count = 32 // bits
    return [word(codes[start : start + count], bits) for start in range(0, len(codes), count)]


def gptq(weight: Rounded, version: int = 1) -> dict[str, torch.Tensor]:
    """The tensors of a weight: `qweight[N / n, M]`, `qzeros[groups, M / n]`, `scales[groups, M]`, `g_idx[N]`."""
    down = [words(row, weight.bits) for row in weight.codes.tolist()]  # along N
    less = 1 if version == 1 else 0
    across = [words([zero - less for zero in zeros], weight.bits) for zeros in weight.zeros.t().tolist()]
    return {
        "qweight": torch.tensor(down, dtype=torch.int32).t().contiguous(),
        "qzeros": torch.tensor(across, dtype=torch.int32),
        "scales": weight.scales.t().contiguous(),
        "g_idx": weight.index.int(),
    }


def gptq_v2(weight: Rounded) -> dict[str, torch.Tensor]:
    """The same with zero points as they are."""
    return gptq(weight, 2)


def awq(weight: Rounded) -> dict[str, torch.Tensor]:
    """The tensors of a weight: `qweight[N, M / 8]`, `qzeros[groups, M / 8]`, `scales[groups, M]`."""

    def across(rows: list[list[int]]) -> torch.Tensor:
        found = [[word([row[at + i] for i in ORDER], 4) for at in range(0, len(row), 8)] for row in rows]
        return torch.tensor(found, dtype=torch.int32)

    return {
        "qweight": across(weight.codes.t().tolist()),
        "qzeros": across(weight.zeros.t().tolist()),
        "scales": weight.scales.t().contiguous(),
    }


LAYOUTS: dict[str, Callable[[Rounded], dict[str, torch.Tensor]]] = {"gptq": gptq, "gptq_v2": gptq_v2, "awq": awq}


def config_of(layout: str, group: int = 32, bits: int = 4, **options: Any) -> dict[str, Any]:
    """The `quantization_config`."""
    method, form = ("awq", {"version": "gemm"}) if layout == "awq" else ("gptq", {"checkpoint_format": layout})
    return {"quant_method": method, "bits": bits, "group_size": group, **form, **options}


def written(
    model: nn.Module,
    folder: Path,
    layout: str,
    *,
    match: str = "layers.",
    shards: int = 1,
    config: dict[str, Any] | None = None,
    **options: Any,
) -> nn.Module:
    """Writes a model with calibrated weights in the layers whose name has `match`.

    Returns:
        The model, with the dense weights that those stand for.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: value.half() for name, value in model.state_dict().items()}
    for seed, (name, layer) in enumerate(model.named_modules()):
        if isinstance(layer, nn.Linear) and match in name:
            weight = Rounded((layer.out_features, layer.in_features), seed=seed, **options)
            layer.weight.data = weight.dense(layer.weight.dtype)
            del tensors[f"{name}.weight"]
            tensors |= {f"{name}.{part}": value for part, value in LAYOUTS[layout](weight).items()}
    for name, value in model.state_dict().items():
        if name in tensors:
            value.copy_(tensors[name])
    if getattr(getattr(model, "config", None), "tie_word_embeddings", False):
        tensors.pop("lm_head.weight", None)
    quantization = config_of(layout, options.get("group", 32), options.get("bits", 4)) | (config or {})
    own = model.config.to_dict() if hasattr(model, "config") else {}  # type: ignore[operator, union-attr]
    (folder / "config.json").write_text(json.dumps(own | {"quantization_config": quantization}, default=str))
    write_tensors(tensors, folder, shards)
    return model


def write_tensors(tensors: dict[str, torch.Tensor], folder: Path, shards: int = 1) -> None:
    """Writes tensors into one file, or into shards in turn, so that those of one weight are in several."""
    if shards == 1:
        safetensors.torch.save_file(tensors, folder / "model.safetensors", {"format": "pt"})
        return
    names = [f"model-{i + 1:05}-of-{shards:05}.safetensors" for i in range(shards)]
    places = {name: names[i % shards] for i, name in enumerate(tensors)}
    for file in names:
        part = {name: tensors[name] for name in tensors if places[name] == file}
        safetensors.torch.save_file(part, folder / file, {"format": "pt"})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))


class Small(nn.Module):
    """Two layers, one of which has a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 32), nn.Linear(32, 8, bias=False)
        self.register_buffer("shift", torch.zeros(8), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x).relu()) + self.shift  # type: ignore[no-any-return]


def small(folder: Path, **options: Any) -> Any:
    return written(Small(), folder, "gptq", match="", **options)


def from_config(folder: Path, dtype: torch.dtype = torch.float32, device: str = "meta") -> Any:
    """A model as its configuration says."""
    config = transformers.AutoConfig.from_pretrained(folder)
    with torch.device(device):
        return transformers.AutoModelForCausalLM.from_config(config, dtype=dtype).eval()
