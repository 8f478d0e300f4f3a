"""Programs for two processes, compared with eager. `test_two_processes.py` starts both ranks of this script."""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as functional
from torch.distributed._composable.replicate import replicate
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal.two_tensor import TwoTensor

from subclass_aot import aot_compile, train_fields
from subclass_aot.tensors import Int8Weight, LoraWeight
from tests import on_ranks

Compile = Callable[[Any], Any]


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = torch.nn.Linear(8, 16), torch.nn.Linear(16, 8)

    def forward(self, x: Any) -> Any:
        return x + self.down(torch.relu(self.up(x)))


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.head = Block(), Block(), torch.nn.Linear(8, 4)

    def forward(self, x: Any) -> Any:
        return self.head(self.b(self.a(x)))

    def blocks(self) -> list[Block]:
        return [self.a, self.b]


def net(kind: str = "dense") -> Net:
    torch.manual_seed(0)
    made = Net()
    for block in made.blocks():
        weight = block.up.weight.detach()
        if kind == "int8":
            for layer in (block.up, block.down):
                codes = Int8Weight.from_float(layer.weight.detach())
                layer.weight = torch.nn.Parameter(codes, requires_grad=False)
        elif kind == "lora":
            made_of = LoraWeight.beside(Int8Weight.from_float(weight), rank=2)
            block.up.weight = torch.nn.Parameter(made_of, requires_grad=False)
            train_fields(block.up, "weight", "left", "right")
        elif kind == "two":
            block.up.weight = torch.nn.Parameter(TwoTensor(weight, weight.clone()))
    return made


def with_compiled_blocks(made: Net, compile: Compile) -> Net:
    """The block is an argument, so that it is found with the parameters that it has at each call."""
    for block in made.blocks():
        forward = compile(type(block).forward)
        block.forward = functools.partial(forward, block)  # type: ignore[method-assign]
    return made


def with_compiled_forward(made: Net, compile: Compile) -> Net:
    made.forward = compile(made.forward)  # type: ignore[method-assign]
    return made


def sharded(made: Net) -> Net:
    for block in made.blocks():
        fully_shard(block)
    return fully_shard(made)  # type: ignore[return-value]


def split(made: Net) -> Net:
    for block in made.blocks():
        parallelize_module(block, MESH, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return made


def staged(kind: str) -> Callable[[Compile], Any]:
    """Two stages of a pipeline, each on a rank, which take two parts of a batch in turn."""

    def run(compile: Compile) -> Any:
        made = net(kind)
        stage = [torch.nn.Sequential(made.a), torch.nn.Sequential(made.b, made.head)][RANK]
        stage.forward = compile(stage.forward)  # type: ignore[method-assign]
        ranks_stage = PipelineStage(stage, RANK, 2, torch.device("cpu"))
        schedule = ScheduleGPipe(ranks_stage, 2, loss_fn=lambda out, wanted: (out - wanted).square().mean())
        batch, losses = torch.cat([SAME, SAME + 1]), []
        for _ in range(2):
            if RANK == 0:
                schedule.step(batch)
            else:
                schedule.step(target=batch[:, :4] * 2, losses=losses)
        return plain([losses, [p.grad for p in stage.parameters()]])

    return run


def uneven(compile: Compile) -> Any:
    """Seven rows on two ranks, cut without padding; the gradient of what they are multiplied with."""
    weight = Int8Weight.from_float(torch.randn(7, 8, generator=torch.Generator().manual_seed(1)))
    rows = distribute_tensor(weight, MESH, [Shard(0)], src_data_rank=None)
    x = distribute_tensor(SAME, MESH, [Replicate()]).requires_grad_()
    result = compile(torch.nn.functional.linear)(x, rows).full_tensor()
    torch.testing.assert_close(result, torch.nn.functional.linear(SAME, weight))
    result.sum().backward()
    return plain([result, x.grad.full_tensor()])  # type: ignore[union-attr]


def plain(value: Any) -> Any:
    """Numbers, down to the leaves."""
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    if isinstance(value, DTensor):
        value = value.to_local()
    if hasattr(value, "trigger_wait"):
        value = value.trigger_wait()
    if isinstance(value, TwoTensor):
        return [plain(value.a), plain(value.b)]
    return None if value is None else value.detach()


def train(module: Any, call: Any, x: torch.Tensor, steps: int = 3) -> list[Any]:
    found = []
    for step in range(steps):
        result = call(x * (step + 1))
        result.backward(torch.ones_like(result))
        found += [plain(result), [plain(p.grad) for p in module.parameters()]]
        module.zero_grad()
    return found


def trained(make: Callable[[Compile], Any], x: Any = None) -> Callable[[Compile], Any]:
    def run(compile: Compile) -> Any:
        module = make(compile)
        return train(module, module, INPUT if x is None else SAME)

    return run


def called(function: Any, *make: Callable[[], Any]) -> Callable[[Compile], Any]:
    """Calls twice, and gives results and arguments."""

    def run(compile: Compile) -> Any:
        compiled = compile(function)
        found = []
        for _ in range(2):
            args = [m() for m in make]
            found.append(plain([compiled(*args), *args]))
        return found

    return run


def x() -> torch.Tensor:
    return INPUT.clone()


def empty(*size: int) -> Callable[[], torch.Tensor]:
    return lambda: torch.zeros(*size)


def all_reduce(x: Any) -> Any:
    y = x * 2
    dist.all_reduce(y)
    return y + 1


def all_reduce_input(x: Any) -> Any:
    dist.all_reduce(x, op=dist.ReduceOp.MAX)
    return x + 1


def all_reduce_async(x: Any) -> Any:
    y = x * 2
    work = dist.all_reduce(y, async_op=True)
    work.wait()
    return y + 1


def all_gather(x: Any) -> Any:
    parts = [torch.empty_like(x), torch.empty_like(x)]
    dist.all_gather(parts, x * 2)
    return parts[0] - parts[1]


def all_gather_into(out: Any, x: Any) -> Any:
    dist.all_gather_into_tensor(out, x)
    return out * 2


def overlapped(x: Any) -> Any:
    """Two collectives on their way while something else is computed; one of them is never read."""
    first, second, third = x * 2, x + 1, x - 1
    work = dist.all_reduce(first, async_op=True)
    other = dist.all_reduce(second, op=dist.ReduceOp.MAX, async_op=True)
    dist.broadcast(third, 1)
    between = x @ x.t()
    other.wait()
    work.wait()
    return first + second + between.sum()


class Summed(torch.autograd.Function):
    """A sum over ranks, forward and backward, in place."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        y = x.clone()
        dist.all_reduce(y, async_op=True).wait()
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return Summed.forward(ctx, gradient)


def one_rank_reads(x: Any) -> Any:
    """Every rank takes part in a sum that one of them looks at."""
    total = x.sum()
    dist.all_reduce(total)
    return x * total if RANK == 0 else x * 2


def broadcast(x: Any) -> Any:
    dist.broadcast(x, 1)
    return x * 3


def reduce_scatter(out: Any, x: Any) -> Any:
    dist.reduce_scatter_tensor(out, torch.cat([x, x * 2]))
    return out * 2


def all_to_all(out: Any, x: Any) -> Any:
    dist.all_to_all_single(out, torch.cat([x, x * 2]))
    return out * 2


def gradient_of_all_gather(x: Any) -> Any:
    y = functional.all_gather_tensor_autograd(x * 2, 0, dist.group.WORLD)
    return y * 3


def coalesced(x: Any) -> Any:
    first, second = functional.all_reduce_coalesced([x, x * 2], "sum", dist.group.WORLD)
    return first + second


def trained_function(function: Any) -> Callable[[Compile], Any]:
    def run(compile: Compile) -> Any:
        y = x().requires_grad_()
        result = compile(function)(y)
        result.sum().backward()
        return plain([result, y.grad])

    return run


def with_inductor(program: Callable[[Compile], Any]) -> Callable[[Compile], Any]:
    """A program with another compiler, where it is compiled at all."""

    def run(compile: Compile) -> Any:
        if compile is not aot_compile:
            return program(compile)
        return program(lambda function: aot_compile(function, fw_compiler="inductor"))

    return run


def on_dtensors(compile: Compile) -> Any:
    left = distribute_tensor(SAME, MESH, [Shard(0)])
    right = distribute_tensor(SAME.t().contiguous(), MESH, [Replicate()])
    return plain(compile(lambda a, b: a @ b)(left, right).full_tensor())


PROGRAMS: dict[str, Callable[[Compile], Any]] = {
    **{
        f"DDP over compiled blocks, {kind}": trained(
            lambda compile, kind=kind: DistributedDataParallel(with_compiled_blocks(net(kind), compile))
        )
        for kind in ("dense", "int8", "two")
    },
    **{
        f"DDP over a compiled model, {kind}": trained(
            lambda compile, kind=kind: DistributedDataParallel(with_compiled_forward(net(kind), compile))
        )
        for kind in ("dense", "int8", "lora")
    },
    **{
        f"FSDP2 with compiled blocks, {kind}": trained(
            lambda compile, kind=kind: sharded(with_compiled_blocks(net(kind), compile))
        )
        for kind in ("dense", "int8", "lora")
    },
    **{f"pipeline, {kind}": staged(kind) for kind in ("dense", "int8", "lora")},
    "tensor parallel, compiled": lambda compile: (lambda made: train(made, compile(made), SAME))(split(net())),
    **{
        f"tensor parallel, compiled blocks, {kind}": trained(
            lambda compile, kind=kind: with_compiled_blocks(split(net(kind)), compile), "same"
        )
        for kind in ("dense", "int8")
    },
    "rows that ranks do not divide": uneven,
    "DTensors": on_dtensors,
    "functional all_reduce": called(lambda x: functional.all_reduce(x * 2, "sum", dist.group.WORLD) + 1, x),
    "functional all_gather, returned": called(lambda x: functional.all_gather_tensor(x, 0, dist.group.WORLD), x),
    "functional, coalesced": called(coalesced, x),
    "functional, with gradients": trained_function(gradient_of_all_gather),
    "functional all_reduce, with gradients": trained_function(
        lambda x: functional.all_reduce(x * 2, "sum", dist.group.WORLD).sin()
    ),
    "in place, with gradients": trained_function(lambda x: Summed.apply(x * 2).sin()),
    "in place, with gradients, inductor": with_inductor(
        trained_function(lambda x: functional.all_reduce(Summed.apply(x * 2).sin(), "sum", dist.group.WORLD) * 3)
    ),
    "overlapped": called(overlapped, x),
    "overlapped, inductor": with_inductor(called(overlapped, x)),
    "one rank reads": called(one_rank_reads, x),
    "all_reduce": called(all_reduce, x),
    "all_reduce of an input": called(all_reduce_input, x),
    "all_reduce, async": called(all_reduce_async, x),
    "all_gather": called(all_gather, x),
    "all_gather_into_tensor": called(all_gather_into, empty(6, 8), x),
    "broadcast": called(broadcast, x),
    "reduce_scatter_tensor": called(reduce_scatter, empty(3, 8), x),
    "all_to_all_single": called(all_to_all, empty(6, 8), x),
}


def refused(make: Callable[[], Any], *args: Any) -> str:
    try:
        aot_compile(make())(*args)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing was refused"


def with_a_sharded_block() -> Net:
    made = net()
    fully_shard(made.a)
    return made


REFUSED: dict[str, Callable[[], str]] = {
    "DDP": lambda: refused(lambda: DistributedDataParallel(net()), INPUT),
    "DDP, its forward": lambda: refused(lambda: DistributedDataParallel(net()).forward, INPUT),
    "DDP, its forward called inside": lambda: refused(
        lambda: lambda m, x: m.forward(x), DistributedDataParallel(net()), INPUT
    ),
    "FSDP1, its forward": lambda: refused(
        lambda: FullyShardedDataParallel(net(), device_id=torch.device("cpu")).forward, INPUT
    ),
    "DDP, int8": lambda: refused(lambda: DistributedDataParallel(net("int8")), INPUT),
    "DDP as an argument": lambda: refused(lambda: lambda m, x: m(x), DistributedDataParallel(net()), INPUT),
    "FSDP2": lambda: refused(lambda: sharded(net()), INPUT),
    "FSDP2 as an argument": lambda: refused(lambda: lambda m, x: m(x), sharded(net()), INPUT),
    "FSDP2 inside": lambda: refused(with_a_sharded_block, INPUT),
    "FSDP1": lambda: refused(lambda: FullyShardedDataParallel(net(), device_id=torch.device("cpu")), INPUT),
    "replicate": lambda: refused(lambda: replicate(net()), INPUT),
    "reduce": lambda: refused(lambda: lambda x: dist.reduce(x, 0), INPUT),
    "barrier": lambda: refused(lambda: lambda x: dist.barrier(), INPUT),
    "send": lambda: refused(lambda: lambda x: dist.send(x, 1 - RANK), INPUT),
    "scatter": lambda: refused(lambda: lambda x: dist.scatter(x, [x, x] if RANK == 0 else None, src=0), INPUT),
}


def compared(program: Callable[[Compile], Any]) -> str:
    """Nothing, or what is wrong."""
    try:
        expected, got = program(lambda function: function), program(aot_compile)
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
    except Exception:
        return traceback.format_exc()
    return ""


if __name__ == "__main__":
    with on_ranks.joined() as (RANK, _, _):
        MESH = init_device_mesh("cpu", (2,))
        torch.manual_seed(1)
        SAME = torch.randn(3, 8)
        INPUT = SAME + RANK
        for name, program in PROGRAMS.items():
            on_ranks.tell(name, compared(program))
        for name, refuse in REFUSED.items():
            on_ranks.tell(name, refuse())
