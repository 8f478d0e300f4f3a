"""A model of `transformers` on two ranks, against the same on one. `test_distributed.py` starts both ranks.

With one word more it has weights of torchao, else `Int8Weight`s.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import subclass_aot as sa
from tests import on_ranks
from tests.models.architectures import make

RANKS = 2


def int8(model: nn.Module) -> None:
    sa.quantize_(model, sa.Int8Weight, "model.layers.*")


def adapted(model: nn.Module) -> None:
    """Low-rank factors beside int8 weights, which they alone learn."""
    torch.manual_seed(1)
    for _, module in model.named_modules():
        if isinstance(getattr(module, "weight", None), sa.Int8Weight):
            module.weight = nn.Parameter(sa.LoraWeight.beside(module.weight.detach(), rank=2), requires_grad=False)
            sa.train_fields(module, "weight", "left", "right")


def llama(*changes: Callable[[nn.Module], None]) -> Any:
    torch.manual_seed(0)
    model = make("LlamaForCausalLM")
    for change in changes:
        change(model)
    return model


def sharded(model: Any) -> Any:
    for layer in model.model.layers:
        fully_shard(layer)
    return fully_shard(model)


def train(model: Any, parts: range, steps: int = 3) -> list[torch.Tensor]:
    """Losses, the mean of all ranks, of which each has its part of every batch."""
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 0.1)
    losses = []
    for step in range(steps):
        words = [
            torch.randint(5, 64, (2, 8), generator=torch.Generator().manual_seed(9 * step + part)) for part in parts
        ]
        optimizer.zero_grad()
        loss = model(input_ids=torch.cat(words), labels=torch.cat(words)).loss
        loss.backward()
        optimizer.step()
        total = loss.detach().clone()
        if len(parts) == 1:
            dist.all_reduce(total)
            total /= RANKS
        losses.append(total)
    return losses


def as_on_one(make_model: Callable[[], Any], distributed: Callable[[Any], Any]) -> None:
    """What ranks learn from their parts, one learns from the whole."""
    one, several = make_model(), distributed(make_model())
    theirs, mine = train(one, range(RANKS)), train(several, range(RANK, RANK + 1))
    torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)
    for (name, p), other in zip(several.named_parameters(), one.parameters(), strict=True):
        if p.requires_grad:
            value = p.full_tensor() if isinstance(p, DTensor) else p
            torch.testing.assert_close(value, other, rtol=1e-4, atol=1e-5, msg=f"{name}: {{}}".format)


def tensor_parallel(model: Any) -> Any:
    plan = {"mlp.gate_proj": ColwiseParallel(), "mlp.up_proj": ColwiseParallel(), "mlp.down_proj": RowwiseParallel()}
    for layer in model.model.layers:
        parallelize_module(layer, init_device_mesh("cpu", (RANKS,)), plan, src_data_rank=None)
    return model


def same_results(model: Any, distributed: Any) -> None:
    """Inference and the gradients of embeddings, each rank on the whole batch."""
    words = torch.randint(5, 64, (2, 8), generator=torch.Generator().manual_seed(0))
    grads = []
    for each in (model, distributed):
        each(input_ids=words, labels=words).loss.backward()
        grads.append(each.model.embed_tokens.weight.grad)
    torch.testing.assert_close(grads[1], grads[0], rtol=1e-4, atol=1e-6)


def blocks(model: Any) -> Any:
    return sa.compile_blocks(model, ["model.layers.*"])


PROGRAMS: dict[str, Callable[[], None]] = {
    "FSDP2": lambda: as_on_one(lambda: llama(int8), lambda model: blocks(sharded(model))),
    "FSDP2, adapted": lambda: as_on_one(lambda: llama(int8, adapted), lambda model: blocks(sharded(model))),
    "DDP": lambda: as_on_one(lambda: llama(int8, adapted), lambda model: DistributedDataParallel(blocks(model))),
    "tensor parallel": lambda: same_results(llama(int8), blocks(tensor_parallel(llama(int8)))),
}


def of_torchao() -> dict[str, Callable[[], None]]:
    """The same with weights that know nothing of this library.

    Of torchao's classes, `fully_shard` takes none as they are, and tensor parallelism not that of eight-bit integers.
    """
    from torchao.quantization import Float8WeightOnlyConfig, Int8WeightOnlyConfig, quantize_

    kinds = {"int8": Int8WeightOnlyConfig, "float8": Float8WeightOnlyConfig}

    def quantized(kind: str) -> Callable[[], Any]:
        return lambda: llama(lambda model: quantize_(model.model.layers, kinds[kind]()))  # type: ignore[attr-defined]

    def ddp(model: Any) -> Any:
        return DistributedDataParallel(blocks(model), init_sync=False)  # its sync wants views that torchao has not

    return {
        **{f"DDP, {kind}": lambda kind=kind: as_on_one(quantized(kind), ddp) for kind in kinds},  # type: ignore[misc]
        "tensor parallel, float8": lambda: same_results(
            quantized("float8")(), blocks(tensor_parallel(quantized("float8")()))
        ),
    }


if __name__ == "__main__":
    with on_ranks.joined() as (RANK, _, _):
        for name, program in (PROGRAMS if len(sys.argv) < 5 else of_torchao()).items():
            on_ranks.tell(name, on_ranks.wrong(program))
