"""A memory profiler is one listener: its peak is that of the real run."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import subclass_aot as sa
from subclass_aot.cost.profiling.allocator import real_peak
from subclass_aot.meta import Listener, Storage


class Peak(Listener):
    """The most bytes that storages had at once which were made in its block."""

    def __init__(self) -> None:
        self.own: set[int] = set()
        self.now = self.peak = 0

    def _changed(self, by: int) -> None:
        self.now += by
        self.peak = max(self.peak, self.now)

    def on_storage(self, storage: Storage) -> None:
        self.own.add(id(storage))
        self._changed(storage.nbytes)

    def on_resize(self, storage: Storage, before: int) -> None:
        if id(storage) in self.own:
            self._changed(storage.nbytes - before)

    def on_release(self, storage: Storage) -> None:
        if id(storage) in self.own:
            self.own.remove(id(storage))
            self._changed(-storage.nbytes)


def mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 64))


class Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([mlp() for _ in range(3)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)  # type: ignore[assignment]
        return x


def transformer() -> nn.Module:
    return nn.TransformerEncoderLayer(64, 4, 256, dropout=0.0, batch_first=True)


CASES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], bool]] = {
    "an MLP": (mlp, (128, 64), False),
    "an MLP, trained": (mlp, (128, 64), True),
    "a transformer layer": (transformer, (8, 16, 64), False),
    "a transformer layer, trained": (transformer, (8, 16, 64), True),
    "a checkpointed MLP, trained": (Checkpointed, (128, 64), True),
}


@pytest.mark.parametrize("name", CASES)
def test_the_peak_is_that_of_the_real_run(name: str) -> None:
    make, size, trains = CASES[name]

    def step(model: nn.Module, x: torch.Tensor) -> Callable[[], None]:
        def run() -> None:
            result = model(x)
            if trains:
                result.sum().backward()

        return run

    real = make()
    x = torch.randn(size)
    step(real, x)()  # what is made once
    real.zero_grad()
    expected = real_peak(step(real, x))
    with sa.meta():
        run = step(make(), torch.randn(size))
        with Peak() as memory:
            run()
    assert memory.peak == pytest.approx(expected, rel=0.01)
