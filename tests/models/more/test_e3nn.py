"""Equivariant layers of `e3nn`: generated code and spherical harmonics."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from e3nn import o3
from e3nn.nn import Gate
from torch import Tensor, nn

from tests.models.checks import check_inference, check_training, check_without_data


class Product(nn.Module):
    """Features times the directions of neighbours."""

    def __init__(self) -> None:
        super().__init__()
        self.product = o3.FullyConnectedTensorProduct("4x0e+2x1o", "1x0e+1x1o", "4x0e+2x0e+2x1o")
        self.gate = Gate("4x0e", [torch.tanh], "2x0e", [torch.sigmoid], "2x1o")
        self.last = o3.Linear("4x0e+2x1o", "3x0e")

    def forward(self, x: Tensor, positions: Tensor) -> Any:
        directions = o3.spherical_harmonics("1x0e+1x1o", positions, normalize=True)
        return self.last(self.gate(self.product(x, directions)))


def atoms(batch: int) -> dict[str, Any]:
    return {"x": torch.randn(batch, 10), "positions": torch.randn(batch, 3)}


def test_training() -> None:
    check_training(Product(), atoms)


def test_inference() -> None:
    check_inference(Product(), atoms)


@pytest.mark.parametrize("compiled", [False, True])
def test_without_data(compiled: bool) -> None:
    check_without_data(Product(), atoms, compiled)


def test_a_rotated_input_gives_the_same() -> None:
    """What the layers are for holds compiled, too."""
    import subclass_aot as sa

    model = sa.aot_compile(Product().eval())
    rotation = o3.rand_matrix()
    turn = o3.Irreps("4x0e+2x1o").D_from_matrix(rotation)
    given = atoms(4)
    turned = {"x": given["x"] @ turn.t(), "positions": given["positions"] @ rotation.t()}
    torch.testing.assert_close(model(**turned), model(**given), atol=1e-5, rtol=1e-4)
