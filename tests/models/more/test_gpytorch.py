"""Gaussian processes of `gpytorch`, which compare tensors by value wherever two of them may be one."""

from __future__ import annotations

from typing import Any

import gpytorch
import pytest
import torch
from torch import Tensor, nn

from subclass_aot import aot_compile
from tests.models.checks import check_inference, check_training, check_without_data

KERNELS = gpytorch.kernels


class Covariance(nn.Module):
    """Of some points and others."""

    def __init__(self, kernel: Any) -> None:
        super().__init__()
        self.kernel = KERNELS.ScaleKernel(kernel)

    def forward(self, x: Tensor, y: Tensor | None = None) -> Any:
        return self.kernel(x, y).to_dense()


def points(batch: int) -> dict[str, Any]:
    return {"x": torch.randn(batch, 5, 2), "y": torch.randn(batch, 4, 2)}


BLIND: dict[str, Any] = {
    "linear": lambda: KERNELS.LinearKernel(num_dimensions=2),
    "polynomial": lambda: KERNELS.PolynomialKernel(power=2),
}
LOOKING: dict[str, Any] = {
    "rbf": KERNELS.RBFKernel,
    "matern": lambda: KERNELS.MaternKernel(nu=1.5),
    "periodic": KERNELS.PeriodicKernel,
}
"""`torch.equal(x1, x2)` decides about the diagonal."""
ALL = BLIND | LOOKING


@pytest.mark.parametrize("name", ALL)
def test_kernels(name: str) -> None:
    check_training(Covariance(ALL[name]()), points)
    check_inference(Covariance(ALL[name]()), points)


@pytest.mark.parametrize("name", BLIND)
def test_kernels_without_data(name: str) -> None:
    check_without_data(Covariance(BLIND[name]()), points)


def test_an_exact_process() -> None:
    xs, ys = torch.rand(10, 1), torch.rand(10)

    class Process(gpytorch.models.ExactGP):
        def __init__(self) -> None:
            super().__init__(xs, ys, gpytorch.likelihoods.GaussianLikelihood())
            self.mean, self.covariance = gpytorch.means.ConstantMean(), KERNELS.ScaleKernel(KERNELS.RBFKernel())

        def forward(self, x: Tensor) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean(x), self.covariance(x))

    process = Process()
    expected, got = process(xs), aot_compile(process)(xs)
    torch.testing.assert_close(got.mean, expected.mean)
    torch.testing.assert_close(got.covariance_matrix, expected.covariance_matrix)
