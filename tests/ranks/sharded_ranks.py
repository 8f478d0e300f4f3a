"""Modules with wrappers, cut by FSDP2, against the same modules on one rank. `test_sharding.py` starts both ranks."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Shard
from torch.nn.utils import clip_grad_norm_

from subclass_aot import Int8Weight, QuantAwareWeight, WrapperTensor, aot_compile, train_fields
from subclass_aot.tensors import Int4Weight, LoraWeight, NF4Weight, Sparse24Weight, TwoTensor
from tests import on_ranks
from tests.ranks.sharded_classes import Coded, Offsets, OfParts, Packed, Plain, Rounding, Rows

RANKS = 2


def coded(x: torch.Tensor) -> Coded:
    like = Coded(torch.zeros(x.shape, dtype=torch.uint8), torch.linspace(-1, 1, 64))
    return like.from_plain(x)


MAKE: dict[str, Callable[[torch.Tensor], Any]] = {
    "Int8Weight": Int8Weight.from_float,
    "Rows": lambda x: Rows(torch.ones(x.shape, dtype=torch.int8), torch.ones(len(x), 1)).from_plain(x),
    "QuantAwareWeight": lambda x: QuantAwareWeight(x.clone()),
    "Coded": coded,
    "OfParts": lambda x: OfParts(Int8Weight.from_float(x), [x.abs().clone(), torch.full((x.shape[0], 1), 0.5)]),
}


class Pairs(nn.Module):
    """A linear layer with a `TwoTensor`, whose result is dense."""

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(TwoTensor(weight.clone(), weight * 2), requires_grad=False)
        self.bias = nn.Parameter(torch.zeros(weight.shape[0]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(x, self.weight.a - self.weight.b, self.bias)  # type: ignore[no-any-return]


def net(kind: str, rows: int, trained: bool = True) -> nn.Sequential:
    torch.manual_seed(0)
    made = nn.Sequential(nn.Linear(6, rows), nn.ReLU(), nn.Linear(rows, 4))
    if kind == "TwoTensor":
        made[0] = Pairs(made[0].weight.detach())
    elif kind == "Rounding":
        made[0].weight = nn.Parameter(Rounding(made[0].weight.detach().clone()))
    elif kind != "dense":
        made[0].weight = nn.Parameter(MAKE[kind](made[0].weight.detach()), requires_grad=trained)
    return made


def sharded(module: nn.Sequential, **options: Any) -> nn.Sequential:
    fully_shard(module[0], **options)
    fully_shard(module, **options)
    return module


def plain(x: Any) -> torch.Tensor:
    """The dense tensor of the whole that a shard, a wrapper or a dense tensor is or stands for."""
    if isinstance(x, DTensor):
        local = plain(x.to_local())
        parts: list[Any] = [None] * RANKS
        dist.all_gather_object(parts, local)
        return torch.cat(parts)
    x = x.detach()
    if isinstance(x, TwoTensor):
        return torch.cat([x.a, x.b], 1)
    if isinstance(x, QuantAwareWeight):
        return x.master
    return x.to_plain() if hasattr(x, "to_plain") else x


def optimizer_of(name: str, module: nn.Module) -> torch.optim.Optimizer:
    parameters = [p for p in module.parameters() if p.requires_grad]
    if name == "SGD":
        return torch.optim.SGD(parameters, 0.1, momentum=0.9)
    return torch.optim.AdamW(parameters, 0.05)


def steps(module: nn.Module, optimizer: torch.optim.Optimizer, ranks: range, count: int = 3) -> list[Any]:
    """Trains on what the given ranks see, and gives losses and norms."""
    found = []
    for step in range(count):
        optimizer.zero_grad()
        x = torch.cat([torch.randn(3, 6, generator=torch.Generator().manual_seed(7 * step + r)) for r in ranks])
        loss = module(x).square().mean()
        loss.backward()
        norm = clip_grad_norm_(module.parameters(), 0.5)
        found.append(norm.full_tensor() if isinstance(norm, DTensor) else norm)
        optimizer.step()
        total = loss.detach()
        if len(ranks) == 1:
            dist.all_reduce(total)
            total /= RANKS
        found.append(total)
    return found


def same(mine: nn.Module, theirs: nn.Module) -> None:
    for (name, one), other in zip(mine.named_parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(plain(one), plain(other), rtol=1e-4, atol=1e-5, msg=f"{name}: {{}}".format)


def trains(kind: str, rows: int, optimizer: str, reshard: bool, trained: bool = True) -> None:
    whole, parts = net(kind, rows, trained), sharded(net(kind, rows, trained), reshard_after_forward=reshard)
    expected = type(whole[0].weight.detach())
    seen: list[type] = []
    parts[0].register_forward_pre_hook(lambda module, _: seen.append(type(module.weight.detach())))
    assert type(parts[0].weight.to_local().detach()) is expected
    theirs = steps(whole, optimizer_of(optimizer, whole), range(RANKS))
    mine = steps(parts, optimizer_of(optimizer, parts), range(RANK, RANK + 1))
    assert seen == [expected] * 3, seen
    torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)
    same(parts, whole)


def with_mixed_precision(kind: str, rows: int) -> None:
    """The layer sees the weight in bfloat16, made of the same codes; what is stored stays in float32."""
    parts = sharded(net(kind, rows), mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32))
    seen: list[Any] = []
    parts[0].register_forward_pre_hook(lambda module, _: seen.append(module.weight.detach().clone()))
    optimizer = optimizer_of("SGD", parts)
    for _ in range(2):
        before = plain(parts[0].weight)
        parts(torch.randn(3, 6)).square().mean().backward()
        assert parts[0].weight.grad.dtype == parts[0].weight.dtype == torch.float32
        assert type(seen[-1]) is type(parts[0].weight.to_local().detach()) and seen[-1].dtype == torch.bfloat16
        torch.testing.assert_close(plain(seen[-1]).float(), before, rtol=2e-2, atol=1e-2)
        optimizer.step()
        assert not torch.equal(plain(parts[0].weight), before)


def from_meta(kind: str, rows: int) -> None:
    """A model without memory is cut, gets memory, and then its values."""
    source = sharded(net(kind, rows))
    with torch.device("meta"):
        parts = net(kind, rows)
    assert parts[0].weight.is_meta
    sharded(parts)
    parts.to_empty(device="cpu")
    with torch.no_grad():
        for mine, theirs in zip(parts.parameters(), source.parameters(), strict=True):
            mine.copy_(theirs)
    same(parts, source)
    theirs = steps(source, optimizer_of("SGD", source), range(RANK, RANK + 1))
    torch.testing.assert_close(steps(parts, optimizer_of("SGD", parts), range(RANK, RANK + 1)), theirs)
    same(parts, source)


def saved(kind: str, rows: int) -> None:
    """Values and the state of an optimizer go into another model, which goes on alike."""
    source, parts = sharded(net(kind, rows)), sharded(net(kind, rows))
    one, other = optimizer_of("AdamW", source), optimizer_of("AdamW", parts)
    here = range(RANK, RANK + 1)
    steps(source, one, here)
    state = source.state_dict()
    assert type(state["0.weight"].to_local()) is type(net(kind, rows)[0].weight.detach())
    parts.load_state_dict(copy.deepcopy(state))
    other.load_state_dict(copy.deepcopy(one.state_dict()))
    same(parts, source)
    torch.testing.assert_close(steps(parts, other, here, 1), steps(source, one, here, 1))
    same(parts, source)


def field_by_field(make: Callable[[torch.Tensor], Any], *fields: str) -> None:
    """Whatever lines up with rows, or does not: each field is a parameter of its own, frozen or trained."""

    def model() -> nn.Sequential:
        made = net("dense", 8)
        made[2].weight = nn.Parameter(make(made[2].weight.detach()), requires_grad=False)
        train_fields(made[2], "weight", *fields)
        return made

    whole, parts = model(), model()
    fully_shard(parts[2])
    fully_shard(parts)
    seen: list[type] = []
    parts[2].register_forward_pre_hook(lambda module, _: seen.append(type(module.weight)))
    theirs = steps(whole, optimizer_of("AdamW", whole), range(RANKS))
    mine = steps(parts, optimizer_of("AdamW", parts), range(RANK, RANK + 1))
    torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)
    assert seen == [type(whole[2].weight)] * 3 and issubclass(seen[0], WrapperTensor), seen
    same(parts, whole)


FIELDS: dict[str, tuple[Callable[[torch.Tensor], Any], tuple[str, ...]]] = {
    "Sparse24Weight": (Sparse24Weight.from_float, ("kept",)),
    "Sparse24Weight, frozen": (Sparse24Weight.from_float, ()),
    "Int4Weight": (lambda x: Int4Weight.from_float(x, 8), ()),
    "NF4Weight": (lambda x: NF4Weight.from_float(x, 8), ()),
    "LoraWeight": (lambda x: LoraWeight.beside(Int8Weight.from_float(x), 2), ("left", "right")),
}


def shared_by_rows(make: Callable[[torch.Tensor], Any]) -> None:
    """A frozen weight with a field for all rows, which stays at home."""
    whole = net("dense", 8)
    whole[0].weight = nn.Parameter(make(whole[0].weight.detach()), requires_grad=False)
    parts = sharded(copy.deepcopy(whole))
    theirs = steps(whole, optimizer_of("SGD", whole), range(RANKS))
    torch.testing.assert_close(steps(parts, optimizer_of("SGD", parts), range(RANK, RANK + 1)), theirs)
    parts[0].unshard()
    found, expected = parts[0].weight.detach(), whole[0].weight.detach()
    assert torch.equal(found.codes, expected.codes) and torch.equal(found.scale, expected.scale)


def with_a_column_scale(x: torch.Tensor) -> Rows:
    return Rows(torch.ones(x.shape, dtype=torch.int8), torch.ones(1, x.shape[1])).from_plain(x)


def with_one_scale(x: torch.Tensor) -> Rows:
    scale = x.abs().max() / 127
    return Rows((x / scale).round().to(torch.int8), scale)


def in_compiled_blocks(kind: str, fully: bool) -> None:
    """The layers below the hooks of FSDP2 are compiled; their graphs get the whole wrapper."""
    whole, parts = net(kind, 8), sharded(net(kind, 8), reshard_after_forward=fully)
    for module in (parts[0], parts[2]):
        module.forward = functools.partial(aot_compile(type(module).forward), module)
    theirs = steps(whole, optimizer_of("SGD", whole), range(RANKS))
    torch.testing.assert_close(
        steps(parts, optimizer_of("SGD", parts), range(RANK, RANK + 1)), theirs, rtol=1e-4, atol=1e-5
    )
    same(parts, whole)


def in_inference_mode(kind: str, rows: int) -> None:
    whole, parts, x = net(kind, rows), sharded(net(kind, rows)), torch.randn(3, 6)
    with torch.inference_mode():
        for _ in range(2):
            torch.testing.assert_close(parts(x), whole(x))


def accumulated(kind: str, rows: int) -> None:
    """Gradients of two batches, in a model that lies in the memory of the host."""
    whole, parts = net(kind, rows), sharded(net(kind, rows), offload_policy=CPUOffloadPolicy(pin_memory=False))
    optimizers = [optimizer_of("SGD", whole), optimizer_of("SGD", parts)]
    for seed in range(2):
        x = torch.randn(RANKS, 3, 6, generator=torch.Generator().manual_seed(seed))
        whole(x.flatten(0, 1)).square().mean().backward()
        parts(x[RANK]).square().mean().backward()
    for optimizer in optimizers:
        optimizer.step()
    same(parts, whole)


def on_two_dims(kind: str, rows: int) -> None:
    """Copies of the model, each cut among ranks; with one rank for each, nothing is cut."""
    for shape in ((1, RANKS), (RANKS, 1)):
        mesh = init_device_mesh("cpu", shape, mesh_dim_names=("copies", "parts"))
        whole, parts = net(kind, rows), sharded(net(kind, rows), mesh=mesh)
        steps(whole, optimizer_of("SGD", whole), range(RANKS))
        steps(parts, optimizer_of("SGD", parts), range(RANK, RANK + 1))
        for mine, theirs in zip(parts.parameters(), whole.parameters(), strict=True):
            local = plain(mine.to_local())
            expected = plain(theirs).chunk(shape[1])[RANK if shape[1] > 1 else 0]
            torch.testing.assert_close(local, expected, rtol=1e-4, atol=1e-5)


def as_a_full_tensor(kind: str, rows: int) -> None:
    parts, expected = sharded(net(kind, rows)), plain(net(kind, rows)[0].weight)
    torch.testing.assert_close(plain(parts[0].weight.full_tensor()), expected)


def with_torch_compile(kind: str, whole_module: bool) -> None:
    """Dynamo breaks its graph at the hooks, and leaves what they and operators do alone."""
    torch._dynamo.reset()
    whole, parts = net(kind, 8), sharded(net(kind, 8))
    for module in [parts] if whole_module else [parts[0], parts[2]]:
        module.compile(backend="aot_eager")
    theirs = steps(whole, optimizer_of("SGD", whole), range(RANKS))
    mine = steps(parts, optimizer_of("SGD", parts), range(RANK, RANK + 1))
    torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)
    same(parts, whole)


def with_hooks_of_its_own(compiled: bool) -> None:
    parts, weight = sharded(net("Rounding", 8)), net("dense", 8)[0].weight.detach()
    parts[0].unshard()
    assert torch.equal(plain(parts[0].weight), Int8Weight.from_float(weight).to_plain())
    parts[0].reshard()
    if compiled:
        parts.compile(backend="aot_eager")
    steps(parts, optimizer_of("SGD", parts), range(RANK, RANK + 1))
    assert isinstance(parts[0].weight.to_local(), Rounding) and not torch.equal(plain(parts[0].weight), weight)


def refused(make: Callable[[torch.Tensor], Any], rows: int = 8, trained: bool = False, **options: Any) -> str:
    whole = net("dense", rows)
    whole[0].weight = nn.Parameter(make(whole[0].weight.detach()), requires_grad=trained)
    try:
        parts = sharded(whole, **options)
        result = parts(torch.randn(3, 6))
        result.sum().backward(torch.ones_like(result.sum()))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing was refused"


REFUSED: dict[str, Callable[[], str]] = {
    "uneven, and a field for all rows": lambda: refused(with_a_column_scale, rows=7),
    "trained, and a field for all rows": lambda: refused(with_a_column_scale, trained=True),
    "no views": lambda: refused(Plain),
    "packed": lambda: refused(lambda x: Packed(torch.zeros(x.shape[0], 3, dtype=torch.uint8), torch.ones(len(x), 1))),
    "other rows": lambda: refused(lambda x: Offsets(x.clone(), torch.ones(x.shape[0] + 2))),
    "columns": lambda: refused(Int8Weight.from_float, shard_placement_fn=lambda parameter: Shard(parameter.dim() - 1)),
    "gradients of pairs": lambda: refused(lambda x: TwoTensor(x.clone(), x.clone()), trained=True),
    "aot_compile": lambda: called(lambda: aot_compile(sharded(net("Int8Weight", 8)))(torch.randn(3, 6))),
}


def called(program: Callable[[], object]) -> str:
    try:
        program()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing was refused"


EVEN_AND_UNEVEN = ((8, "SGD", True), (7, "AdamW", True), (8, "AdamW", False), (3, "SGD", False), (1, "SGD", True))

MORE = [with_mixed_precision, from_meta, saved, in_inference_mode, accumulated, on_two_dims, as_a_full_tensor]

PROGRAMS: dict[str, Callable[[], None]] = {
    **{
        f"{kind}, {rows} rows, {optimizer}, reshard {reshard}": functools.partial(
            trains, kind, rows, optimizer, reshard
        )
        for kind in (*MAKE, "TwoTensor", "dense")
        for rows, optimizer, reshard in EVEN_AND_UNEVEN
        if kind != "Coded" or rows == 8  # it has a field for all rows
    },
    "Int8Weight, frozen": functools.partial(trains, "Int8Weight", 7, "AdamW", True, False),
    **{
        f"field by field, {name}": functools.partial(field_by_field, make, *fields)
        for name, (make, fields) in FIELDS.items()
    },
    "a scale for columns": functools.partial(shared_by_rows, with_a_column_scale),
    "one scale": functools.partial(shared_by_rows, with_one_scale),
    **{
        f"{program.__name__}, {kind}, {rows} rows": functools.partial(program, kind, rows)
        for program in MORE
        for kind in ("Int8Weight", "QuantAwareWeight", "OfParts", "dense")
        for rows in (8, 7)
    },
    **{
        f"torch.compile, {kind}, of all {whole}": functools.partial(with_torch_compile, kind, whole)
        for kind in ("Int8Weight", "QuantAwareWeight", "dense")
        for whole in (True, False)
    },
    "hooks of its own": functools.partial(with_hooks_of_its_own, False),
    "hooks of its own, torch.compile": functools.partial(with_hooks_of_its_own, True),
    **{
        f"compiled blocks, {kind}, reshard {fully}": functools.partial(in_compiled_blocks, kind, fully)
        for kind in ("Int8Weight", "QuantAwareWeight", "dense")
        for fully in (True, False)
    },
}


if __name__ == "__main__":
    with on_ranks.joined() as (RANK, _, _):
        for name, program in PROGRAMS.items():
            on_ranks.tell(name, on_ranks.wrong(program))
        for name, refusal in REFUSED.items():
            on_ranks.tell(name, refusal())
