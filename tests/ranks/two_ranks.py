"""Collectives on wrappers, against those on dense tensors. `test_collectives.py` starts both ranks of this script."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as functional
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from subclass_aot import Int8Weight, WrapperTensor, aot_compile
from subclass_aot.tensors import LoraWeight, TwoTensor
from tests import on_ranks
from tests.native.wrappers import Masked
from tests.torches import TORCH

Make = Callable[[torch.Tensor], Any]
"""Makes a tensor of a class from a dense one."""

Of = Callable[..., Any]
"""`of(seed=0, rows=4)`: a tensor of this rank."""


class Offsets(WrapperTensor, fallback="each"):
    """One of its inner tensors does not have the rows of the whole."""

    values_: torch.Tensor
    offsets: torch.Tensor


def dense(seed: int, rows: int) -> torch.Tensor:
    """A tensor of this rank."""
    return torch.randn(rows, 3, generator=torch.Generator().manual_seed(10 * RANK + seed))


def broadcast(of: Of) -> list[Any]:
    x = of()
    dist.broadcast(x, 1)
    return [x]


def broadcast_async(of: Of) -> list[Any]:
    x = of()
    dist.broadcast(x, 1, async_op=True).wait()
    return [x]


def all_reduce(of: Of) -> list[Any]:
    x = of()
    dist.all_reduce(x)
    return [x]


def all_reduce_async(of: Of) -> list[Any]:
    x = of()
    dist.all_reduce(x, async_op=True).wait()
    return [x]


def all_reduce_coalesced(of: Of) -> list[Any]:
    both = [of(), of(1)]
    dist.all_reduce_coalesced(both)
    return both


def reduce(of: Of) -> list[Any]:
    x = of()
    dist.reduce(x, 0)
    return [x] if RANK == 0 else []


def all_gather(of: Of) -> list[Any]:
    found = [of(1), of(2)]
    dist.all_gather(found, of())
    return found


def all_gather_into_tensor(of: Of) -> list[Any]:
    found = of(rows=8)
    dist.all_gather_into_tensor(found, of())
    return [found]


def gather(of: Of) -> list[Any]:
    found = [of(1), of(2)] if RANK == 1 else None
    dist.gather(of(), found, 1)
    return found or []


def scatter(of: Of) -> list[Any]:
    x = of()
    dist.scatter(x, [of(1), of(2)] if RANK == 0 else None, 0)
    return [x]


def reduce_scatter(of: Of) -> list[Any]:
    x = of()
    dist.reduce_scatter(x, [of(1), of(2)])
    return [x]


def reduce_scatter_tensor(of: Of) -> list[Any]:
    x = of()
    dist.reduce_scatter_tensor(x, of(1, rows=8))
    return [x]


def all_to_all(of: Of) -> list[Any]:
    found = [of(1), of(2)]
    dist.all_to_all(found, [of(3), of(4)])
    return found


def all_to_all_single(of: Of) -> list[Any]:
    found = of(1)
    dist.all_to_all_single(found, of())
    return [found]


def all_to_all_single_of_unequal_parts(of: Of) -> list[Any]:
    found = of(1)
    dist.all_to_all_single(found, of(), [1, 3] if RANK == 0 else [3, 1], [1, 3] if RANK == 0 else [3, 1])
    return [found]


def send(of: Of) -> list[Any]:
    x = of()
    if RANK == 0:
        dist.send(x, 1)
    else:
        dist.recv(x, 0)
    return [x]


def both_send_first(of: Of) -> list[Any]:
    x, found = of(), of(1)
    sent = dist.isend(x, 1 - RANK)
    received = dist.irecv(found, 1 - RANK)
    received.wait()
    sent.wait()
    return [found]


def large_messages(of: Of) -> list[Any]:
    x, found = of(rows=300_000), of(1, rows=300_000)
    works = dist.batch_isend_irecv([dist.P2POp(dist.isend, x, 1 - RANK), dist.P2POp(dist.irecv, found, 1 - RANK)])
    for work in works:
        work.wait()
    return [found]


def all_gather_into_dense(of: Of) -> list[Any]:
    found = [torch.zeros(4, 3), torch.zeros(4, 3)]
    dist.all_gather(found, of())
    return found


def scatter_into_dense(of: Of) -> list[Any]:
    found = torch.zeros(4, 3)
    dist.scatter(found, [of(seed=1), of(seed=2)] if RANK == 0 else None)
    return [found]


def scatter_in_inference_mode(of: Of) -> list[Any]:
    with torch.inference_mode():
        return scatter_into_dense(of)


def scatter_rows(of: Of) -> list[Any]:
    found = torch.zeros(2, 3)
    dist.scatter(found, list(of(seed=1).detach().chunk(2)) if RANK == 0 else None)
    return [found]


def reduce_scatter_into_dense(of: Of) -> list[Any]:
    found = torch.zeros(4, 3)
    dist.reduce_scatter(found, [of(seed=1), of(seed=2)])
    return [found]


def distribute(of: Of) -> list[Any]:
    rows = distribute_tensor(of(seed=1), init_device_mesh("cpu", (2,)), [Shard(0)])
    return [rows.full_tensor()]


def all_gather_tensor(of: Of) -> list[Any]:
    return [functional.all_gather_tensor(of(), 0, dist.group.WORLD)]


def all_to_all_rows(of: Of) -> list[Any]:
    return [functional.all_to_all_single(of(), [2, 2], [2, 2], dist.group.WORLD)]


def broadcast_tensor(of: Of) -> list[Any]:
    return [functional.broadcast(of(), 1, dist.group.WORLD)]


def full_tensor(of: Of) -> list[Any]:
    rows: Any = DTensor.from_local(of(), init_device_mesh("cpu", (2,)), [Shard(0)])
    return [rows.full_tensor()]


PROGRAMS = [
    broadcast, broadcast_async, all_reduce, all_reduce_async, all_reduce_coalesced, reduce, all_gather,
    all_gather_into_tensor, gather, scatter, reduce_scatter, reduce_scatter_tensor, all_to_all, all_to_all_single,
    all_to_all_single_of_unequal_parts, send, both_send_first, large_messages,
]  # fmt: skip

INTO_DENSE = [
    all_gather_into_dense, scatter_into_dense, scatter_in_inference_mode, scatter_rows, reduce_scatter_into_dense,
    distribute,
]  # fmt: skip

PARTS: dict[str, Callable[[Any], Any]] = {
    "columns": lambda w: w[:, :2],
    "rows": lambda w: w[1:3],
    "transposed": lambda w: w.t(),
    "columns of a transposed one": lambda w: w.t()[:, :2],
}
INTO_PARTS: dict[str, Callable[[Any, list[Any]], object]] = {
    "broadcast": lambda part, others: dist.broadcast(part, 1),
    "scatter": lambda part, others: dist.scatter(part, others if RANK == 0 else None),
    "all_gather": lambda part, others: dist.all_gather([part, others[0]], others[1]),
    "send": lambda part, others: dist.send(others[0], 1) if RANK == 0 else dist.recv(part, 0),
    "all_to_all": lambda part, others: dist.all_to_all([part, others[0]], [others[1], others[1]]),
}
"""Collectives that write a part of a tensor; `others` are tensors like that part, with larger values."""
if TORCH == (2, 11):
    del INTO_PARTS["all_to_all"]  # gloo has none of lists there


class Silent(WrapperTensor):
    """Says nothing of views: they read and write through the whole."""

    code: torch.Tensor

    def to_plain(self) -> torch.Tensor:
        return self.code * 2

    def from_plain(self, plain: torch.Tensor) -> Silent:
        return Silent(plain / 2)


OF_PARTS: dict[str, Make] = {"Int8Weight": Int8Weight.from_float, "Silent": lambda x: Silent(x / 2)}


def into_a_part(name: str, place: str, cls: str) -> str:
    """Nothing, or what is wrong: every element is within a step of what dense tensors in one piece lead to."""
    make = OF_PARTS[cls]
    w, exact = make(dense(0, 4)), make(dense(0, 4)).to_plain()
    others = [PARTS[place](make(50 * dense(seed, 4))) for seed in (1, 2)]
    part = PARTS[place](exact).contiguous()
    INTO_PARTS[name](part, [other.to_plain().contiguous() for other in others])
    PARTS[place](exact).copy_(part)
    INTO_PARTS[name](PARTS[place](w), others)
    step = exact.abs().amax(1, keepdim=True) / 127
    return "" if ((w.to_plain() - exact).abs() <= 0.6 * step + 1e-5).all() else f"{w.to_plain()}, not {exact}"


def asked_whether_over() -> str:
    """A message into a part is waited for as often as one likes, and is over then."""
    w = Silent(torch.zeros(4, 3))
    sent = dist.isend(Silent(torch.full((4, 3), RANK + 1.0))[:, :2], 1 - RANK)
    work = dist.irecv(w[:, :2], 1 - RANK)
    assert sent is not None and work is not None
    sent.wait()
    for _ in range(2):
        work.wait()
    expected = torch.tensor([2.0, 2.0, 0.0]).mul(2 - RANK).expand(4, 3)
    return (
        "" if work.is_completed() and torch.equal(w.to_plain(), expected) else f"{work.is_completed()}, {w.to_plain()}"
    )


GIVE_NEW = [all_gather_tensor, all_to_all_rows, broadcast_tensor, full_tensor]
"""Those that give new tensors; of classes with `to_plain` they move what these stand for."""

IN_GRAPHS = [broadcast, all_reduce, all_gather, all_gather_into_tensor, reduce_scatter_tensor, all_to_all_single]

CLASSES: dict[str, tuple[Make, Callable[[Any], list[torch.Tensor]]]] = {
    "Int8Weight": (Int8Weight.from_float, lambda w: [w.to_plain()]),
    "TwoTensor": (lambda x: TwoTensor(x.clone(), x * 2), lambda w: [w.a, w.b / 2]),
    "TwoTensor of Int8Weight": (
        lambda x: TwoTensor(Int8Weight.from_float(x), Int8Weight.from_float(x)),
        lambda w: [w.a.to_plain(), w.b.to_plain()],
    ),
    "Masked": (lambda x: Masked(x.clone(), x > 9), lambda w: [w.content, w.content + w.mask]),
}

WITH_MEANING: dict[str, tuple[Make, Callable[[Any], list[torch.Tensor]]]] = {
    "Int8Weight": (Int8Weight.from_float, lambda w: [w.to_plain() if isinstance(w, Int8Weight) else w]),
    "LoraWeight": (lambda x: LoraWeight(x, torch.zeros(len(x), 2), torch.ones(2, 3)), lambda w: [w]),
}
"""Classes that stand for a dense tensor; of the second, rows are views that read through the whole."""


def compared(program: Callable[[Of], list[Any]], name: str, compiled: bool) -> str:
    """Nothing, or what is wrong."""
    make, read = (WITH_MEANING if program in INTO_DENSE else CLASSES)[name]
    in_eight_bits = "Int8" in name
    exact: Make = (lambda x: Int8Weight.from_float(x).to_plain()) if in_eight_bits else torch.clone
    try:
        expected = program(lambda seed=0, rows=4: exact(dense(seed, rows)))
    except RuntimeError as error:
        assert "does not support" in str(error), error  # gloo of torch 2.11 has no `alltoall`
        return ""
    try:
        if compiled:
            given = {f"{seed}, {rows}": make(dense(seed, rows)) for seed in (0, 1, 2) for rows in (4, 8)}
            step = aot_compile(lambda given: program(lambda seed=0, rows=4: given[f"{seed}, {rows}"]))
            got = step(given)
        else:
            got = program(lambda seed=0, rows=4: make(dense(seed, rows)))
        assert len(got) == len(expected)
        for mine, theirs in zip(got, expected, strict=True):
            rounding = theirs.abs().amax(1, keepdim=True) / 127 * 0.51 if in_eight_bits else 0
            for reading in read(mine):
                assert reading.shape == theirs.shape, (reading.shape, theirs.shape)
                assert ((reading - theirs).abs() <= rounding + 1e-5).all(), (reading, theirs)
    except Exception:
        return traceback.format_exc()
    return ""


def refusals() -> dict[str, str]:
    """What cannot be, by name, before any rank waits for another."""
    x, plain = TwoTensor(torch.ones(4), torch.ones(4)), torch.ones(4)

    class Bare(WrapperTensor):
        inside: torch.Tensor

    cases: dict[str, Callable[[], Any]] = {
        "dense and wrapper": lambda: dist.all_gather([x, x], plain),
        "scattered into a wrapper": lambda: dist.scatter(x, [plain, plain], RANK),
        "gathered into wrappers": lambda: dist.gather(plain, [x, x], RANK),
        "gathered into dense": lambda: dist.gather(x, [plain, plain], RANK),
        "reduced into a wrapper": lambda: dist.reduce_scatter(x, [plain, plain]),
        "dense, without meaning": lambda: dist.all_gather([torch.ones(3)] * 2, Bare(torch.ones(3))),
        "other inner tensors": lambda: dist.all_gather(
            [Int8Weight.from_float(torch.ones(4, 3))] * 2,
            Int8Weight(torch.ones(4, 3, dtype=torch.int8), torch.ones(4, 1), torch.ones(4, 1)),
        ),
        "without meaning": lambda: dist.all_reduce(Bare(torch.ones(3))),
        "other rows": lambda: dist.all_gather_into_tensor(
            Offsets(torch.ones(8), torch.ones(5)), Offsets(torch.ones(4), torch.ones(3))
        ),
    }
    found = {}
    for name, case in cases.items():
        try:
            case()
            found[name] = "nothing was refused"
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"
    return found


if __name__ == "__main__":
    with on_ranks.joined() as (RANK, _, _):
        for program in PROGRAMS:
            for name in CLASSES:
                on_ranks.tell(f"{program.__name__}, {name}", compared(program, name, False))
        for program in INTO_DENSE:
            for name in WITH_MEANING:
                on_ranks.tell(f"{program.__name__}, {name}", compared(program, name, False))
        for name in INTO_PARTS:
            for place in PARTS:
                for cls in OF_PARTS:
                    on_ranks.tell(f"{name} into {place} of {cls}", into_a_part(name, place, cls))
        on_ranks.tell(asked_whether_over.__name__, asked_whether_over())
        for program in GIVE_NEW:
            for name in ("TwoTensor", "Masked"):
                on_ranks.tell(f"{program.__name__}, {name}", compared(program, name, False))
        for program in IN_GRAPHS:
            for name in CLASSES:
                on_ranks.tell(f"{program.__name__}, {name}, compiled", compared(program, name, True))
        for name, text in refusals().items():
            on_ranks.tell(name, text)
