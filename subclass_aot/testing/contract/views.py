"""Clause 22: what a view of a dense tensor is, is a view of a wrapper, outside and inside."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from subclass_aot.base import _torch
from subclass_aot.base._stack import pass_on_interruption
from subclass_aot.testing.contract.clause import Clauses
from subclass_aot.testing.contract.trial import BrokenClause, DoesNotApply, Program, Trial, require, several, storages

CLAUSES = Clauses()

VIEWS: dict[str, Program] = {
    "x.t()": lambda x: x.t(),
    "x.transpose(0, -1)": lambda x: x.transpose(0, -1),
    "x[:1]": lambda x: x[:1],
    "x[..., 1:]": lambda x: x[..., 1:],
    "x[..., :half]": lambda x: x[..., : x.shape[-1] // 2],
    "x[0]": lambda x: x[0],
    "x.unsqueeze(0)": lambda x: x.unsqueeze(0),
    "x[:1].squeeze(0)": lambda x: x[:1].squeeze(0),
    "x.view(-1)": lambda x: x.view(-1),
    "x.view(x.shape)": lambda x: x.view(x.shape),
    "x.split(1)": lambda x: x.split(1),
    "x.chunk(2)": lambda x: x.chunk(2),
    "x.unbind(0)": lambda x: x.unbind(0),
    "x.narrow(0, 0, 1)": lambda x: x.narrow(0, 0, 1),
    "x.expand(2, ...)": lambda x: x.unsqueeze(0).expand(2, *x.shape),
    "x.as_strided(own)": lambda x: x.as_strided(x.size(), x.stride()),
    "x.detach()": lambda x: x.detach(),
    "x[::2]": lambda x: x[::2],
    "x[1::2]": lambda x: x[1::2],
    "x[..., ::2]": lambda x: x[..., ::2],
    "x[-2:]": lambda x: x[-2:],
    "x[..., -3:-1]": lambda x: x[..., -3:-1],
    "x[1:-1]": lambda x: x[1:-1],
    "x[100:]": lambda x: x[100:],
    "x[-1]": lambda x: x[-1],
    "x.select(-1, -1)": lambda x: x.select(-1, -1),
    "x.narrow(-1, 1, 2)": lambda x: x.narrow(-1, 1, 2),
    "x.split(2, -1)": lambda x: x.split(2, -1),
    "x.split([1, ...])": lambda x: x.split([1, x.shape[0] - 1]),
    "x.chunk(2, -1)": lambda x: x.chunk(2, -1),
    "x.tensor_split(3)": lambda x: x.tensor_split(3),
    "x.unbind(-1)": lambda x: x.unbind(-1),
    "x.unsqueeze(-1)": lambda x: x.unsqueeze(-1),
    "x.permute(...)": lambda x: x.permute(*reversed(range(x.dim()))),
    "x.movedim(0, -1)": lambda x: x.movedim(0, -1),
    "x.flatten()": lambda x: x.flatten(),
    "x.unflatten(0, ...)": lambda x: x.unflatten(0, (x.shape[0], 1)),
    "x.mT": lambda x: x.mT,
    "x.diagonal()": lambda x: x.diagonal(),
    "x.unfold(0, 2, 1)": lambda x: x.unfold(0, 2, 1),
    "x.squeeze()": lambda x: x[:1].squeeze(),
}
"""Programs that give a view, or several."""


def _add(name: str, program: Program) -> None:
    @CLAUSES.add(22, "S", name, "a view aliases its base, and has its values, sizes and strides")
    def _(trial: Trial) -> None:
        tensor = trial.make()
        if not trial.readings:
            raise DoesNotApply("there is no reading: give readings=")
        dense = [several(trial.of_dense(program, value)) for value in trial.read(tensor)]
        meta = several(program(_blank(tensor)))
        views = several(program(tensor))
        require(len(views) == len(meta), f"{len(views)} views, not {len(meta)}")
        for place, view in enumerate(views):
            want = [each[place] for each in dense]
            _has_metadata(view, meta[place])
            trial.agrees(view, want, "the view")
            require(
                _torch.autograd.is_view(view) or not _torch.autograd.is_view(want[0]),
                "autograd does not know that it is a view: no version counter, and no gradient, tells of a write",
            )
        if not set().union(*map(storages, views)) <= storages(tensor):
            _writes_reach_the_base(trial, program, views)


for _name, _program in VIEWS.items():
    _add(_name, _program)


_MOST_BORDERS = 16


@CLAUSES.add(22, "S", "cuts", "a part has the values of that part, wherever it is cut, along any dim")
def _cuts(trial: Trial) -> None:
    tensor, values = trial.make(), trial.values()
    for dim, length in enumerate(tensor.shape):
        for border in range(1, length, -(-length // _MOST_BORDERS)):
            for start, rows in ((0, border), (border, length - border)):
                try:
                    part = tensor.narrow(dim, start, rows)
                except Exception as error:  # which views there are, the others say
                    pass_on_interruption(error)
                    continue
                want = [value.narrow(dim, start, rows) for value in values]
                trial.agrees(part, want, f"x.narrow({dim}, {start}, {rows})")


def _blank(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


def _has_metadata(view: torch.Tensor, meta: torch.Tensor) -> None:
    """Class, sizes and strides from outside; a dense tensor has its memory to itself."""
    require(
        _torch.wrappers.is_traceable_wrapper_subclass(view),
        f"the view is a {type(view).__name__}: it aliases nothing, and writes into it are lost",
    )
    require(view.shape == meta.shape, f"the view has size {list(view.shape)} outside, not {list(meta.shape)}")
    if meta.numel():
        dims = zip(meta.shape, view.stride(), meta.stride(), strict=True)
        same = all(mine == theirs for size, mine, theirs in dims if size > 1)
        require(same, f"the view has strides {view.stride()} outside, not {meta.stride()}")


_WRITES: tuple[Program, ...] = (
    lambda view: view.zero_(),
    lambda view: view.copy_(torch.linspace(-1, 1, view.numel(), device=view.device).to(view.dtype).reshape(view.shape)),
)
"""Writes, of which a class may offer one alone. Through a scale that is shared, zeros may reach the base by chance."""


def _writes_reach_the_base(trial: Trial, program: Program, views: Sequence[torch.Tensor]) -> None:
    """Checks that results with memory of their own are views: a write into them is refused, or reaches the base."""
    with torch.no_grad():
        for place, _ in enumerate(views):
            for write in _WRITES:
                try:
                    trial.part(lambda: _write_reaches_the_base(trial, lambda x: write(several(program(x))[place])))  # noqa: B023  # called at once
                except BrokenClause:
                    raise
                except Exception as error:  # which writes a class offers is its own affair
                    pass_on_interruption(error)


def _write_reaches_the_base(trial: Trial, program: Program) -> None:
    tensor = trial.make()
    want = trial.read(tensor)
    for value in want:
        program(value)
    program(tensor)
    trial.holds(tensor, want, "a view holds copies of inner tensors: after a write into it, the base")
