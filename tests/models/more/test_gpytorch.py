"""Gaussian processes of `gpytorch`, which compare tensors by value wherever two of them may be one."""

from __future__ import annotations

from typing import Any

import gpytorch
import pytest
import torch
from torch import Tensor, nn

from subclass_aot import aot_compile
from subclass_aot.errors import DataDependentError
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


COMPILES: dict[str, Any] = {
    "linear": lambda: KERNELS.LinearKernel(num_dimensions=2),
    "polynomial": lambda: KERNELS.PolynomialKernel(power=2),
}
REFUSED: dict[str, Any] = {
    "rbf": KERNELS.RBFKernel,
    "matern": lambda: KERNELS.MaternKernel(nu=1.5),
    "periodic": KERNELS.PeriodicKernel,
}
"""`torch.equal(x1, x2)` decides about the diagonal."""


@pytest.mark.parametrize("name", COMPILES)
def test_kernels(name: str) -> None:
    check_training(Covariance(COMPILES[name]()), points)
    check_inference(Covariance(COMPILES[name]()), points)
    check_without_data(Covariance(COMPILES[name]()), points)


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    for check in (check_training, check_inference):
        with pytest.raises(DataDependentError, match="torch.equal"):
            check(Covariance(REFUSED[name]()), points)


def test_an_exact_process_is_refused() -> None:
    xs, ys = torch.rand(10, 1), torch.rand(10)

    class Process(gpytorch.models.ExactGP):
        def __init__(self) -> None:
            super().__init__(xs, ys, gpytorch.likelihoods.GaussianLikelihood())
            self.mean, self.covariance = gpytorch.means.ConstantMean(), Covariance(KERNELS.LinearKernel())

        def forward(self, x: Tensor) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean(x), self.covariance(x))

    with pytest.raises(DataDependentError, match="torch.equal"):
        aot_compile(Process())(xs)
