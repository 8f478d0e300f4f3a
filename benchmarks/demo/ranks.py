"""One rank of the demo in several processes: trains its part of each batch, on a model sharded over all ranks."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.nn import functional as F

import subclass_aot as sa
from benchmarks.demo import gpt

PATIENCE = timedelta(seconds=60)
"""How long a rank waits for others."""

TEXT = Path(gpt.__file__).read_text(encoding="ascii")
"""What is learned: the source of the model."""

LEARNING_RATE = 3e-3


@dataclass
class Gathered:
    """FSDP2's all-gather, which counts the bytes that come together on a rank.

    Attributes:
        bytes: So many since the count began.
    """

    bytes: int = field(default=0)

    def allocate(self, size: Sequence[int | torch.SymInt], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: dist.ProcessGroup, async_op: bool = False
    ) -> Any:
        self.bytes += output_tensor.numel() * output_tensor.itemsize
        # The second name is that of torch before 2.13.
        gather: Any = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
        return gather(output_tensor, input_tensor, group=group, async_op=async_op)


def made(quantized: bool = True) -> gpt.GPT:
    """The model, the same each time."""
    torch.manual_seed(0)
    return gpt.adapted(gpt.GPT(), quantized=quantized)


def batch(step: int, size: int, context: int = 32) -> tuple[Tensor, Tensor]:
    """Pieces of the text `int64[size, context]`, and for each token the next one; the same in each process."""
    text = torch.tensor([min(ord(letter), 127) for letter in TEXT])
    starts = torch.randint(len(text) - context, (size,), generator=torch.Generator().manual_seed(step))
    pieces = torch.stack([text[start : start + context + 1] for start in starts.tolist()])
    return pieces[:, :-1], pieces[:, 1:]


def train_step(model: nn.Module, optimizer: torch.optim.Optimizer, text: Tensor, following: Tensor) -> Tensor:
    """One step; gives the loss before it."""
    optimizer.zero_grad()
    loss = F.cross_entropy(model(text).flatten(0, 1), following.flatten())
    loss.backward()
    optimizer.step()
    return loss.detach()


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    """AdamW on what is trained."""
    return torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=LEARNING_RATE)


def sharded(model: gpt.GPT, count: Gathered) -> gpt.GPT:
    """The model with compiled blocks, cut over all ranks."""
    from torch.distributed.fsdp import FSDPModule, fully_shard

    sa.compile_blocks(model, fw_compiler="eager")
    for part in (*model.layers, model):
        fully_shard(part)
        assert isinstance(part, FSDPModule)
        part.set_custom_all_gather(count)  # type: ignore[arg-type]  # which asks for a class of its own
    return model


def run_rank(rank: int, ranks: int, folder: str, steps: int, size: int) -> None:
    """Trains as one of several ranks; rank 0 writes what came of it to a file in `folder`.

    Args:
        rank: The number of this rank.
        ranks: How many there are.
        folder: Where they meet.
        steps: How many steps to train.
        size: Pieces of text in the batch of each rank.
    """
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder}/store", timeout=PATIENCE, rank=rank, world_size=ranks)
    try:
        found = _trained(rank, ranks, steps, size)
        if rank == 0:
            (Path(folder) / "found.json").write_text(json.dumps(found))
        dist.barrier()
    finally:
        dist.destroy_process_group()


def _trained(rank: int, ranks: int, steps: int, size: int) -> list[tuple[float, int, int]]:
    """For each step the mean loss of all ranks, the bytes gathered, and those with float weights."""
    ours, floats = Gathered(), Gathered()
    model, beside = sharded(made(), ours), sharded(made(quantized=False), floats)
    optimizer, found = optimizer_of(model), []
    text, following = batch(0, size)
    F.cross_entropy(beside(text).flatten(0, 1), following.flatten()).backward()
    for step in range(steps):
        ours.bytes = 0
        text, following = (part[rank * size : (rank + 1) * size] for part in batch(step, ranks * size))
        loss = train_step(model, optimizer, text, following)
        dist.all_reduce(loss)
        found.append((float(loss) / ranks, ours.bytes, floats.bytes))
    return found
