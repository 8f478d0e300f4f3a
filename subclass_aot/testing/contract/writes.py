"""Clause 23: writes give back the tensor, are counted, and change what they should and nothing else."""

from __future__ import annotations

import torch

from subclass_aot.base import _torch
from subclass_aot.base._stack import pass_on_interruption
from subclass_aot.testing.contract.clause import Clauses
from subclass_aot.testing.contract.trial import DoesNotApply, Program, Trial, require

CLAUSES = Clauses()

WHOLE: dict[str, Program] = {
    "x.mul_(2)": lambda x: x.mul_(2),
    "x.add_(dense)": lambda x: x.add_(torch.ones(x.shape, dtype=x.dtype, device=x.device)),
    "x.zero_()": lambda x: x.zero_(),
    "x.sub_(dense, alpha=2)": lambda x: x.sub_(torch.ones(x.shape, dtype=x.dtype, device=x.device), alpha=2),
    "x.div_(3)": lambda x: x.div_(3),
    "x.fill_(0.5)": lambda x: x.fill_(0.5),
    "x.clamp_(max=0.25)": lambda x: x.clamp_(max=0.25),
    "x.mul_(x)": lambda x: x.mul_(x),
    "x.copy_(dense)": lambda x: x.copy_(torch.linspace(-1, 1, x.shape[-1], dtype=x.dtype, device=x.device)),
}
"""Programs that write all of a tensor, and return it."""

PARTS: dict[str, Program] = {
    "one row": lambda x: x[:1].zero_(),
    "some columns": lambda x: x[..., :2].zero_(),
    "some columns, larger": lambda x: x[..., :2].mul_(10),
    "one element": lambda x: x[(0,) * x.dim()].fill_(0.5),
    "a transposed view": lambda x: x.transpose(0, -1)[:1].zero_(),
    "a flat view": lambda x: x.view(-1)[:1].zero_(),
}
"""Programs that write a part of a tensor through a view."""


def _whole(name: str, program: Program) -> None:
    @CLAUSES.add(
        23, "S", name, "a write in place returns the tensor, is counted, and leaves the values of the operator"
    )
    def _(trial: Trial) -> None:
        with torch.no_grad():
            tensor, want = _written(trial)
            for value in want:
                trial.of_dense(program, value)
            version = _torch.autograd.version_of(tensor)
            require(program(tensor) is tensor, "it returns another object")
            require(
                _torch.autograd.version_of(tensor) > version,
                "the version counter does not move: autograd misses the write",
            )
            trial.holds(tensor, want, "the tensor")


def _part(name: str, program: Program) -> None:
    @CLAUSES.add(23, "S", f"write to {name}", "a write into a part changes that part, and leaves the rest")
    def _(trial: Trial) -> None:
        with torch.no_grad():
            tensor, want = _written(trial)
            for value in want:
                trial.of_dense(program, value)
            program(tensor)
            trial.holds(tensor, want, "the whole tensor")


_AS_OPERATORS: dict[str, Program] = {
    "x.mul_(2)": lambda x: torch.ops.aten.mul_.Tensor(x, 2),
    "x.add_(dense)": lambda x: torch.ops.aten.add_.Tensor(x, torch.ones(x.shape, dtype=x.dtype, device=x.device)),
    "x.zero_()": lambda x: torch.ops.aten.zero_.default(x),
    "x.copy_(dense)": lambda x: torch.ops.aten.copy_.default(x, torch.ones(x.shape, dtype=x.dtype, device=x.device)),
    "x.fill_(0.5)": lambda x: torch.ops.aten.fill_.Scalar(x, 0.5),
}
"""Writes by operator: a method of a tensor returns the tensor, whatever its class returns."""


def _in_inference_mode(name: str, program: Program) -> None:
    @CLAUSES.add(23, "S", f"{name} in inference mode", "a write there returns the tensor, and leaves the values")
    def _(trial: Trial) -> None:
        with torch.inference_mode():
            tensor, want = _written(trial)
            for value in want:
                trial.of_dense(program, value)
            require(program(tensor) is tensor, "it returns another object")
            trial.holds(tensor, want, "the tensor")


for _name, _program in WHOLE.items():
    _whole(_name, _program)
for _name, _program in _AS_OPERATORS.items():
    _in_inference_mode(_name, _program)
for _name, _program in PARTS.items():
    _part(_name, _program)


@CLAUSES.add(23, "S", "x.copy_(x)", "a tensor of the class takes the values of another")
def _copy(trial: Trial) -> None:
    with torch.no_grad():
        tensor, want = _written(trial)
        tensor.mul_(0.5)
        require(tensor.copy_(trial.make()) is tensor, "it returns another object")
        trial.holds(tensor, want, "the tensor")
        _copy_of_a_row(trial)
        source = trial.make()
        tensor.zero_()
        trial.agrees(source, want, "what it was copied from")


def _copy_of_a_row(trial: Trial) -> None:
    part = trial.made_by(lambda x: x[:1].clone())
    if part is None:
        return
    tensor = trial.make()
    wanted = [value.expand(tensor.shape) for value in trial.read(part)]
    try:
        tensor.copy_(part)
    except Exception as error:  # it takes none of another size
        pass_on_interruption(error)
        return
    trial.holds(tensor, wanted, "a tensor that takes one row for all of its rows")


@CLAUSES.add(23, "S", "dense.copy_(x)", "a dense tensor takes what a tensor of the class means")
def _copy_into_dense(trial: Trial) -> None:
    with torch.no_grad():
        tensor, want = _written(trial)
        if len(want) != 1:
            raise DoesNotApply("a dense tensor holds one of what it means")
        dense = torch.full_like(want[0], 7.0)
        require(dense.copy_(tensor) is dense, "it returns another object")
        trial.agrees(dense, want, "the dense tensor")
        trial.agrees(tensor, want, "what it was copied from")


@CLAUSES.add(23, "S", "out=", "what is given as `out` holds the result, and is returned")
def _out(trial: Trial) -> None:
    with torch.no_grad():
        tensor, want = _written(trial)
        out = trial.make()
        require(torch.add(tensor, 1, out=out) is out, "it returns another object")
        trial.holds(out, [value + 1 for value in want], "out")


def _written(trial: Trial) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Returns a tensor to write, and what it means."""
    if not trial.is_real:
        raise DoesNotApply("only real floating-point tensors are written with numbers that they can hold")
    tensor = trial.make()
    return tensor, trial.read(tensor)
