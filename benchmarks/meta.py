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
from subclass_aot.benchmark import Budget, Comparison, Side, compare

META = Target.faster(8, 'MetaTensor ViT-B/16, batch 10^10, against device="meta"')
BATCH = 10**10


def run(budget: Budget, layers: int = 12, target: Target = META) -> Iterator[Result]:
    """Measures ViT-B/16 at batch 10^10; the first run of each side is not counted."""
    case = f"ViT-B/16, batch 10^10{'' if layers == 12 else f', {layers} layers'}"
    against = {'device="meta"': target if layers == 12 else None, "FakeTensorMode": None, least.DISPATCHES: None}
    yield Result("forward + backward, no data", case, _measured(budget, layers), "MetaTensor", against)


@functools.cache
def _measured(budget: Budget, layers: int) -> Comparison:
    with torch.device("meta"):
        plain, images = ViT(layers=layers), torch.empty(BATCH, 3, 224, 224)
    fake_mode = FakeTensorMode()
    with fake_mode:
        fake, fake_images = ViT(layers=layers), torch.empty(BATCH, 3, 224, 224)
    sides = {
        "MetaTensor": Side(_train, (sa.to_meta(plain), sa.MetaTensor(images))),
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
