"""Trains one model in eager mode and the same model through `aot_compile`, and compares them after each step."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import subclass_aot as sa
from benchmarks.demo.digits import Digits


class WithLoss(nn.Module):
    """A classifier together with its loss: what one training step runs forward and backward."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(self.model(images), labels)


@dataclass
class Record:
    """What the two trainings did, one entry per step."""

    eager_losses: list[float] = field(default_factory=list)
    compiled_losses: list[float] = field(default_factory=list)
    eager_seconds: list[float] = field(default_factory=list)
    compiled_seconds: list[float] = field(default_factory=list)
    parameter_differences: list[float] = field(default_factory=list)

    @property
    def loss_difference(self) -> float:
        """The largest difference between the two losses of a step; NaN if any is."""
        return float((torch.tensor(self.eager_losses) - torch.tensor(self.compiled_losses)).abs().max())

    @property
    def parameter_difference(self) -> float:
        """The largest difference between two numbers of the parameters after a step; NaN if any is."""
        return float(torch.tensor(self.parameter_differences).max())


class Lockstep:
    """Two trainings with the same start and the same batches.

    Args:
        model: The model to train in eager mode; a deep copy of it is trained compiled.
        learning_rate: Of AdamW, in both.
    """

    def __init__(self, model: nn.Module, learning_rate: float = 2e-3) -> None:
        self.eager = model
        self.compiled = copy.deepcopy(model)
        self.eager_step = WithLoss(self.eager)
        self.compiled_step = sa.aot_compile(WithLoss(self.compiled), fw_compiler="eager")
        self.record = Record()
        self._optimizers = [
            torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=learning_rate)
            for model in (self.eager, self.compiled)
        ]
        self._plan = sa.FlattenPlan.of(list(self.eager.parameters()))

    def step(self, images: Tensor, labels: Tensor) -> None:
        """One step of each training on one batch; adds to the record."""
        record, (eager_optimizer, compiled_optimizer) = self.record, self._optimizers
        loss, seconds = _forward_backward(self.eager_step, eager_optimizer, images, labels)
        record.eager_losses.append(loss)
        record.eager_seconds.append(seconds)
        loss, seconds = _forward_backward(self.compiled_step, compiled_optimizer, images, labels)
        record.compiled_losses.append(loss)
        record.compiled_seconds.append(seconds)
        record.parameter_differences.append(self._difference())

    def _difference(self) -> float:
        """The largest difference between two leaves that should be equal."""
        eager, compiled = (self._plan.unwrap(list(model.parameters())) for model in (self.eager, self.compiled))
        with torch.no_grad():
            return float(
                torch.stack([(a.double() - b).abs().max() for a, b in zip(eager, compiled, strict=True)]).max()
            )


def _forward_backward(
    step: Callable[..., Tensor], optimizer: torch.optim.Optimizer, images: Tensor, labels: Tensor
) -> tuple[float, float]:
    """Runs one training step; returns its loss, and the seconds that forward and backward took."""
    optimizer.zero_grad()
    start = time.perf_counter()
    loss = step(images, labels)
    loss.backward()
    seconds = time.perf_counter() - start
    optimizer.step()
    return loss.item(), seconds


def batches(digits: Digits, epochs: int, size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches of `size` training images in a new random order each epoch; a last smaller one is left out."""
    generator = torch.Generator().manual_seed(1)
    for _ in range(epochs):
        order = torch.randperm(len(digits.train_labels), generator=generator)
        for chosen in order[: len(order) // size * size].split(size):
            yield digits.train_images[chosen], digits.train_labels[chosen]


@torch.no_grad()
def accuracy(model: nn.Module, digits: Digits) -> float:
    """The share of held-out images whose digit `model` finds."""
    return float((model(digits.test_images).argmax(1) == digits.test_labels).float().mean())
