"""`torch.export` of programs whose weights are wrappers: strict or not, with dynamic sizes, taken apart, saved."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch._functorch._aot_autograd.subclass_parametrization import unwrap_tensor_subclass_parameters

import subclass_aot as sa

WEIGHTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "Int8Weight": sa.Int8Weight.from_float,
    "Int4Weight": sa.Int4Weight.from_float,
    "NF4Weight": sa.NF4Weight.from_float,
    "Float8Weight": sa.Float8Weight.from_float,
    "Sparse24Weight": sa.Sparse24Weight.from_float,
    "QuantAwareWeight": sa.QuantAwareWeight,
    "LoraWeight": lambda w: sa.LoraWeight.beside(sa.Int8Weight.from_float(w), 4),
    "TwoTensor": lambda w: sa.TwoTensor(w, w / 2),
}
NOT_TAKEN_APART = {
    "NF4Weight": "Constant tensor .* is not in the constants dictionary",  # torch lifts literals of the program alone
    "TwoTensor": "treespec.unflatten",  # a result of several tensors
}

pytestmark = pytest.mark.filterwarnings("ignore:`isinstance.treespec, LeafSpec.`")  # torch's own, where it takes apart


def layers(name: str) -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU()).requires_grad_(False)
    model[0].weight = nn.Parameter(WEIGHTS[name](model[0].weight.detach()), requires_grad=False)
    return model


def same(expected: torch.Tensor, got: torch.Tensor) -> None:
    if isinstance(expected, sa.TwoTensor):
        assert isinstance(got, sa.TwoTensor)
        expected, got = torch.stack([expected.a, expected.b]), torch.stack([got.a, got.b])
    torch.testing.assert_close(got, expected)


def through_a_file(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    return torch.export.load(file)


@pytest.mark.parametrize(("name", "strict"), [*((name, False) for name in WEIGHTS), ("Int8Weight", True)])
def test_export(name: str, strict: bool) -> None:
    model, x = layers(name), torch.randn(3, 64)
    exported = torch.export.export(model, (x,), dynamic_shapes=({0: torch.export.Dim("rows")},), strict=strict)
    again = through_a_file(exported).module()
    for rows in (3, 2, 5):
        same(model(x := torch.randn(rows, 64)), exported.module()(x))
        same(model(x), again(x))


@pytest.mark.parametrize("name", [name for name in WEIGHTS if name not in NOT_TAKEN_APART])
def test_export_taken_apart(name: str) -> None:
    model, x = layers(name), torch.randn(3, 64)
    apart = torch.export.export(model, (x,)).run_decompositions()
    for program in (apart, through_a_file(apart)):
        values = [node.meta["val"] for node in program.graph.find_nodes(op="placeholder")]
        assert not any(torch.utils._python_dispatch.is_traceable_wrapper_subclass(value) for value in values)
        same(model(x), program.module()(x))


@pytest.mark.parametrize("name", NOT_TAKEN_APART)
def test_what_torch_does_not_take_apart(name: str) -> None:
    """Where this passes, docs/export.md has a line too many."""
    x = torch.randn(3, 64)
    with pytest.raises(Exception, match=NOT_TAKEN_APART[name]):
        torch.export.export(layers(name), (x,)).run_decompositions().module()(x)


@pytest.mark.parametrize("name", WEIGHTS)
def test_parameters_that_torch_unwraps(name: str) -> None:
    """An export before dispatch asks for a node for each wrapper that the program makes."""
    model, x = layers(name), torch.randn(3, 64)
    expected = model(x)
    unwrapped = unwrap_tensor_subclass_parameters(model)
    same(expected, unwrapped(x))
    exported: Any = torch.export.export(unwrapped, (x,), strict=False)
    assert all("parametrizations" in name for name in exported.state_dict if "weight" in name)
    same(expected, exported.module()(x))


def test_a_wrapper_that_the_program_makes() -> None:
    class Rounds(nn.Module):
        def forward(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
            return nn.functional.linear(x, sa.Int8Weight(weight.round().to(torch.int8), torch.ones(4, 1)))

    x, weight = torch.randn(2, 4), 5 * torch.randn(4, 4)
    exported = torch.export.export(Rounds(), (x, weight), strict=False)
    same(Rounds()(x, 2 * weight), exported.module()(x, 2 * weight))
