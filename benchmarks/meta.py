"""A model without data, forward and backward, on a batch that no machine could hold."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

import subclass_aot as sa
from benchmarks import least
from benchmarks.demo.vit import ViT
from benchmarks.row import Result, Target
from subclass_aot.testing.benchmark import Budget, Comparison, Side, compare

META = Target.faster(12, 'MetaTensor ViT-B/16, batch 10^10, against device="meta"')
LISTENS = Target.within(2, "MetaTensor ViT-B/16 with a listener, against one run without")
BATCH = 10**10


class Counts(sa.meta.Listener):
    """Counts operators and storages."""

    operators = storages = 0

    def on_operator(self, operation: sa.meta.Operation) -> None:
        """Counts one."""
        self.operators += 1

    def on_storage(self, storage: sa.meta.Storage) -> None:
        """Counts one more."""
        self.storages += 1

    def on_release(self, storage: sa.meta.Storage) -> None:
        """Counts one less."""
        self.storages -= 1


def run(budget: Budget, layers: int = 12, target: Target = META) -> Iterator[Result]:
    """Measures ViT-B/16 at batch 10^10; the first run of each side is not counted."""
    case = f"ViT-B/16, batch 10^10{'' if layers == 12 else f', {layers} layers'}"
    against = {'device="meta"': target if layers == 12 else None, "FakeTensorMode": None, least.DISPATCHES: None}
    times = _measured(budget, layers)
    yield Result("forward + backward, no data", case, times, "MetaTensor", against)
    if target is META:
        yield Result(
            "no data, with a listener", case, times, "a listener", {"MetaTensor": LISTENS if layers == 12 else None}
        )


@functools.cache
def _measured(budget: Budget, layers: int) -> Comparison:
    with torch.device("meta"):
        plain, images = ViT(layers=layers), torch.empty(BATCH, 3, 224, 224)
    fake_mode = FakeTensorMode()
    with fake_mode:
        fake, fake_images = ViT(layers=layers), torch.empty(BATCH, 3, 224, 224)
    data_free = sa.to_meta(plain), sa.MetaTensor(images)
    sides = {
        "MetaTensor": Side(_train, data_free),
        "a listener": Side(_train_within, (Counts(), *data_free)),
        'device="meta"': Side(_train, (plain, images)),
        "FakeTensorMode": Side(_train_within, (fake_mode, fake, fake_images)),
        least.DISPATCHES: Side(_train_again, least.repeated(plain, images)),
    }
    return compare(sides, budget)


def _train(model: nn.Module, images: Tensor) -> None:
    model.zero_grad()
    model(images).sum().backward()


def _train_again(model: nn.Module, images: Tensor) -> None:
    least.begin()
    _train(model, images)


def _train_within(mode: Any, model: nn.Module, images: Tensor) -> None:
    with mode:
        _train(model, images)
