"""What the weights of a model are."""

from __future__ import annotations

import torch
from torch import nn

import subclass_aot as sa


def test_each_weight_once_with_all_its_names() -> None:
    model = nn.ModuleDict({"embed": nn.Embedding(5, 64), "up": nn.Linear(64, 64), "norm": nn.BatchNorm1d(64)})
    model["head"] = nn.Linear(64, 5, bias=False)
    model["head"].weight = model["embed"].weight
    sa.quantize_(model, {"up": sa.tensors.NF4Weight})
    found = sa.tensors.weights_of(model)
    by_name = {x.names: x for x in found.all}
    assert by_name["embed.weight", "head.weight"].cls == "dense"
    weight = by_name[("up.weight",)]
    assert (weight.cls, weight.elements, weight.dense_nbytes) == ("NF4Weight", 4096, 4 * 4096)
    codes: sa.tensors.NF4Weight = model["up"].weight  # type: ignore[assignment]
    inner = codes.packed, codes.scales.codes, codes.scales.step, codes.scales.center
    assert weight.nbytes == sum(x.nbytes for x in inner)
    assert found.nbytes == sum(x.nbytes for x in found.all) and found.dense[0].names == ("embed.weight", "head.weight")
    lines = str(found).splitlines()
    assert lines[0].split() == ["weights", "elements", "bytes", "of", "dense"]
    assert any(line.startswith("NF4Weight") and "4,096" in line for line in lines)
    assert lines[-1].startswith("the largest dense ones: embed.weight (1,280)")


def test_a_quantized_model_without_dense_weights() -> None:
    found = sa.tensors.weights_of(sa.quantize_(nn.Linear(64, 64, bias=False), sa.Int8Weight))
    assert not found.dense and "dense ones" not in str(found) and torch.tensor(found.nbytes) == 64 * 64 + 64 * 4
