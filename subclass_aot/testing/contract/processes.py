"""Clauses 9, 19 and 43, tried in two processes: contexts there, sharded tensors, a step of FSDP2."""

from __future__ import annotations

import datetime
import pickle
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import distributed, nn

from subclass_aot.base._stack import pass_on_interruption
from subclass_aot.testing.contract.clause import Clauses, Severity
from subclass_aot.testing.contract.gradients import require_real
from subclass_aot.testing.contract.pair import require_in_pair
from subclass_aot.testing.contract.trial import DoesNotApply, Trial, first_line, flattened, require

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor

_PATIENCE = datetime.timedelta(seconds=5)
"""For so long a rank that raised waits for the other."""


@dataclass(frozen=True)
class Rank:
    """One of the two processes.

    Attributes:
        number: 0 or 1.
        store: What both write to and read from.
    """

    number: int
    store: distributed.Store  # type: ignore[name-defined]

    def mesh(self) -> DeviceMesh:
        """Returns a mesh of both ranks."""
        from torch.distributed.device_mesh import init_device_mesh

        return init_device_mesh("cpu", (2,))

    def both(self, name: str, mine: object) -> tuple[object, object]:
        """Returns what each rank has under a name; pickled, so this one's own is a copy, too."""
        self.store.set(f"{name}/{self.number}", pickle.dumps(mine))
        one, other = (pickle.loads(self.store.get(f"{name}/{rank}")) for rank in range(2))
        return one, other

    def go_on(self, name: str, raised: bool) -> bool:
        """Returns whether this rank may begin the next program: not if it raised, and the other one waits for it, or
        has gone.

        Args:
            name: Of the program that this rank has settled.
            raised: Whether it raised here.
        """
        self.store.set(f"{name} is settled/{self.number}", "")
        if raised:
            try:
                self.store.wait([f"{name} is settled/{1 - self.number}"], _PATIENCE)
            except RuntimeError:  # it waits no longer
                self.store.set("gone", "")
        return not (raised and self.store.check(["gone"]))


PROGRAMS: dict[str, Callable[[Trial, Rank], None]] = {}
"""What a rank runs, by name, in this order."""

CLAUSES = Clauses(are_quick=False)


def _in_two_processes(
    number: int, severity: Severity, name: str, sentence: str
) -> Callable[[Callable[[Trial, Rank], None]], Callable[[Trial, Rank], None]]:
    """Makes the decorated function of a trial and a rank the check of a clause: both ranks run it."""

    def add(program: Callable[[Trial, Rank], None]) -> Callable[[Trial, Rank], None]:
        PROGRAMS[name] = program

        @CLAUSES.add(number, severity, name, sentence)
        def _(trial: Trial) -> None:
            require_in_pair(trial, __name__, list(PROGRAMS), name)

        return program

    return add


@_in_two_processes(9, "S", "order in two processes", "equal tensors have the same names, in one order, in each process")
def _order(trial: Trial, rank: Rank) -> None:
    one, other = rank.both("names", flattened(trial.make())[0])
    require(one == other, f"one process has the names {one}, another {other}")


@_in_two_processes(16, "C", "context of another process", "a context that another process has pickled is equal")
def _context(trial: Trial, rank: Rank) -> None:
    context = flattened(trial.make())[1]
    for each in rank.both("context", context):
        require(each == context, f"the context {context} is not equal to that of an equal tensor elsewhere, {each}")


@_in_two_processes(
    19,
    "P",
    "stable hash in two processes",
    "`_stable_hash_for_caching` does not depend on the process: no `hash` of text",
)
def _stable_hash(trial: Trial, rank: Rank) -> None:
    name = "_stable_hash_for_caching"
    if not hasattr(trial.cls, name):
        raise DoesNotApply("there is none")
    one, other = rank.both("hash", getattr(trial.make(), name)())
    require(one == other, f"it is {one!r} in one process and {other!r} in another, for equal tensors")


@_in_two_processes(43, "S", "DTensor: rows", "`distribute_tensor` gives each rank its rows, and `full_tensor` all")
def _rows(trial: Trial, rank: Rank) -> None:
    from torch.distributed.tensor import Shard, distribute_tensor

    _of_rows(trial)
    whole = distribute_tensor(trial.make(), rank.mesh(), [Shard(0)])
    full, local = _parts(whole)
    rows = trial.make().chunk(2)[0]  # which may be views that read through the whole, and then dense rows are sent
    is_kept = isinstance(local, trial.cls) or not isinstance(rows, trial.cls)
    require(is_kept, f"the local tensor is a {type(local).__name__}")
    trial.agrees(local, _shares(trial.values(), rank), "the local tensor", trial.rounding)
    trial.agrees(full, trial.values(), "full_tensor()", trial.rounding)


@_in_two_processes(43, "S", "DTensor: replicas", "a tensor of the class is replicated, and operators work on replicas")
def _replicas(trial: Trial, rank: Rank) -> None:
    from torch.distributed.tensor import Replicate, distribute_tensor

    want = [trial.of_dense(lambda x: x * 2, value) for value in trial.values()]
    whole = distribute_tensor(trial.make(), rank.mesh(), [Replicate()])
    trial.agrees(_parts(whole * 2)[0], want, "twice the replicas", trial.rounding)


@_in_two_processes(43, "S", "DTensor: local wrappers", "what is sharded of local tensors of the class is their whole")
def _local(trial: Trial, rank: Rank) -> None:
    from torch.distributed.tensor import DTensor, Shard

    _of_rows(trial)
    tensor = trial.make()
    whole = DTensor.from_local(tensor, rank.mesh(), [Shard(0)])
    rows = [2 * tensor.shape[0], *tensor.shape[1:]]
    require(list(whole.shape) == rows, f"two tensors of {list(tensor.shape)} are a whole of {list(whole.shape)}")
    full, twice = _parts(whole)[0], _parts(whole + whole)[1]
    trial.agrees(full, [torch.cat([value, value]) for value in trial.values()], "full_tensor()", trial.rounding)
    trial.agrees(twice, [value + value for value in trial.values()], "the local sum", trial.rounding)


@_in_two_processes(43, "S", "FSDP2: a step", "a step of training with a sharded weight is that with the whole weight")
def _fsdp(trial: Trial, rank: Rank) -> None:
    from torch.distributed.fsdp import fully_shard

    require_real(trial)
    weight = trial.make()
    if weight.dim() != 2:
        raise DoesNotApply("only what has two dims is the weight of a linear layer")
    alone = _layer(trial.make())
    try:
        loss = _step(alone)
    except Exception as error:
        pass_on_interruption(error)
        raise DoesNotApply(f"one process does not do it, either: {first_line(error)}") from None
    layer = _layer(trial.make())
    fully_shard(layer, mesh=rank.mesh()).reshard()
    my_loss = _step(layer)
    layer.reshard()  # type: ignore[operator]
    local = layer.weight.to_local()  # type: ignore[attr-defined]
    trial.agrees(my_loss, trial.read(loss), "the loss", trial.rounding)
    want = _shares(trial.read(alone.weight), rank)
    trial.agrees(local, want, "the rows of this rank, after the step,", 4 * trial.rounding)
    require(isinstance(local, trial.cls), f"the rows of this rank are a {type(local).__name__}")


def _parts(whole: DTensor | torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the whole of a `DTensor`, and what this rank has of it; annotations of torch say only `Tensor`."""
    return whole.full_tensor(), whole.to_local()  # type: ignore[union-attr]


def _of_rows(trial: Trial) -> None:
    if not trial.readings or trial.make().dim() == 0:
        raise DoesNotApply("only what has dims, and a reading, is sharded")


def _shares(values: Iterable[torch.Tensor], rank: Rank) -> list[torch.Tensor]:
    """Returns the rows of a rank; with fewer rows than ranks, none."""
    found = []
    for value in values:
        chunks = value.chunk(2)
        found.append(chunks[rank.number] if rank.number < len(chunks) else value[:0])
    return found


def _layer(weight: torch.Tensor) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=False)
    layer.weight = nn.Parameter(weight)
    return layer


def _step(layer: nn.Linear) -> torch.Tensor:
    """Returns one step whose inputs are the same on each rank, so that the mean of the gradients is the gradient."""
    size = layer.weight.shape[1]
    x = torch.linspace(-1, 1, 3 * size, dtype=layer.weight.dtype).view(3, size)
    loss: torch.Tensor = layer(x).sin().sum()
    loss.backward()
    torch.optim.SGD(layer.parameters(), lr=0.1).step()
    return loss.detach()
