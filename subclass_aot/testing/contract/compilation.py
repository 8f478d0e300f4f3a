"""Clauses 32 to 36 and 42: what is compiled does what eager mode does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from subclass_aot.base._stack import pass_on_interruption
from subclass_aot.engine.compile import aot_compile
from subclass_aot.testing.contract.arguments import others, parameters_of
from subclass_aot.testing.contract.clause import Clauses
from subclass_aot.testing.contract.flatten import with_twice_the_rows
from subclass_aot.testing.contract.gradients import LOSSES, require_real, trained, twice_backward, with_other_contexts
from subclass_aot.testing.contract.trial import (
    DoesNotApply,
    Program,
    Trial,
    first_line,
    inner_of,
    require,
    size_of,
    unflattened,
)

CLAUSES = Clauses(are_quick=False)


def _with_torch_compile(program: Program) -> Program:
    torch.compiler.reset()
    return torch.compile(program, backend="aot_eager", fullgraph=True)


COMPILERS: dict[str, Callable[[Program], Program]] = {
    "aot_compile": lambda program: aot_compile(program),
    "torch.compile": _with_torch_compile,
}


def _in_eager(run: Callable[..., Any], *args: object) -> Any:
    """Returns what eager mode gives, which is the oracle. What it refuses is not tried with a compiler."""
    try:
        return run(*args)
    except Exception as error:
        pass_on_interruption(error)
        raise DoesNotApply(f"eager mode refuses it: {first_line(error)}") from None


def _same(trial: Trial, got: torch.Tensor, want: torch.Tensor, what: str) -> None:
    require(type(got) is type(want), f"{what} is a {type(got).__name__}, and in eager mode a {type(want).__name__}")
    sizes = size_of(got), size_of(want)
    require(sizes[0] == sizes[1], f"{what} has size {sizes[0]}, and in eager mode {sizes[1]}")
    for fact in ("dtype", "requires_grad"):
        mine, theirs = getattr(got, fact), getattr(want, fact)
        require(mine == theirs, f"{what} has {fact} {mine}, and in eager mode {theirs}")
    trial.agrees(got, trial.read(want), what)


def _training(compiler: str, name: str, program: Program) -> None:
    @CLAUSES.add(32, "S", f"{compiler}: {name}", "compiled, forward and backward are those of eager mode")
    def _(trial: Trial) -> None:
        require_real(trial)
        loss, grad = _in_eager(lambda: trained(program, trial.make()))
        compiled = COMPILERS[compiler](program)
        for call in ("first", "second"):
            mine, my_grad = trained(compiled, trial.make())
            _same(trial, mine, loss, f"the result of the {call} call")
            if my_grad is None or grad is None:
                require(my_grad is grad, f"in the {call} call, no gradient arrives")
            else:
                _same(trial, my_grad, grad, f"the gradient of the {call} call")


def _unused(compiler: str) -> None:
    @CLAUSES.add(32, "S", f"{compiler}: unused result", "gradients are right where one result of two is not used")
    def _(trial: Trial) -> None:
        require_real(trial)

        def both(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return x * 2, x.sin()

        want = _in_eager(lambda: trained(lambda x: both(x)[1].sum(), trial.make()))[1]
        compiled = COMPILERS[compiler](both)
        grad = trained(lambda x: compiled(x)[1].sum(), trial.make())[1]
        if grad is None or want is None:
            require(grad is want, "no gradient arrives")
        else:
            _same(trial, grad, want, "the gradient")


def _tangents(compiler: str) -> None:
    @CLAUSES.add(
        32, "S", f"{compiler}: tangent of another context", "compiled, backward takes what eager mode takes, or refuses"
    )
    def _(trial: Trial) -> None:
        require_real(trial)
        for what, tangent in with_other_contexts(trial):
            want = _in_eager(twice_backward, _twice, trial.make(), tangent)
            compiled = COMPILERS[compiler](_twice)
            _same(
                trial, twice_backward(compiled, trial.make(), tangent), want, f"for the gradient {what}, that of x * 2"
            )


def _other_arguments(compiler: str) -> None:
    @CLAUSES.add(
        34,
        "S",
        f"{compiler}: other arguments of make",
        "another context or dtype, other parts: compiled again, or refused",
    )
    def _(trial: Trial) -> None:
        compiled = COMPILERS[compiler](_double)
        compiled(trial.make())
        tried = 0
        for what, other in others(trial):
            tried += 1
            want = _in_eager(_double, other.make())
            _same(other, compiled(other.make()), want, f"for {what}, the result")
        if not tried:
            raise DoesNotApply("make has no parameters to vary")


def _other_values(compiler: str) -> None:
    @CLAUSES.add(
        34, "S", f"{compiler}: other values", "a compiled function keeps no values of the call it was made for"
    )
    def _(trial: Trial) -> None:
        if not trial.is_real:
            raise DoesNotApply("only floating-point inner tensors are halved")
        tensor = trial.make()
        halved = {
            name: (part.double() / 2).to(part.dtype)
            if type(part) is torch.Tensor and part.is_floating_point()
            else part
            for name, part in inner_of(tensor).items()
        }  # in float64, since float8 has no arithmetic; halved, since twice its largest number is none
        compiled = COMPILERS[compiler](_double)
        compiled(tensor)
        other = unflattened(tensor, halved)
        _same(trial, compiled(other), _in_eager(lambda: _double(other)), "for other values, the result")


def _other_sizes(compiler: str) -> None:
    @CLAUSES.add(34, "S", f"{compiler}: other sizes", "another size compiles again, or is served as in eager mode")
    def _(trial: Trial) -> None:
        larger = with_twice_the_rows(trial.make())
        want = _in_eager(lambda: _double(larger))
        compiled = COMPILERS[compiler](_double)
        compiled(trial.make())
        _same(trial, compiled(larger), want, "for twice the rows, the result")


def _mutation(compiler: str) -> None:
    @CLAUSES.add(33, "S", f"{compiler}: a write", "a compiled write leaves in the tensor what eager mode leaves")
    def _(trial: Trial) -> None:
        if not trial.is_real:
            raise DoesNotApply("only real floating-point tensors are written with numbers that they can hold")

        def program(x: torch.Tensor) -> torch.Tensor:
            x.mul_(0.5)
            return x + 1

        with torch.no_grad():
            eager, mine = trial.make(), trial.make()
            want = _in_eager(lambda: program(eager))
            _same(trial, COMPILERS[compiler](program)(mine), want, "the result")
            _same(trial, mine, eager, "the tensor that was written")


for _compiler in COMPILERS:
    for _name, _program in LOSSES.items():
        _training(_compiler, _name, _program)
    _unused(_compiler)
    _tangents(_compiler)
    _other_values(_compiler)
    _other_arguments(_compiler)
    _other_sizes(_compiler)
    _mutation(_compiler)


def _sizes(trial: Trial) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns tensors of twice and four times the rows, by a parameter of `make` or made of longer inner tensors."""
    tensor = trial.make()
    parts = [tensor, *(part for part in inner_of(tensor).values() if isinstance(part, torch.Tensor))]
    if any(size == tensor.shape[0] for part in parts for size in part.shape[1:]):
        raise DoesNotApply("another dim is as long as there are rows: symbolic sizes take the two for one")
    for name, size in parameters_of(trial.source[0]).items():
        if size == tuple(trial.make().shape):
            each = [trial.asked_for({name: (rows * size[0], *size[1:])}) for rows in (2, 4)]
            if each[0] is not None and each[1] is not None:
                return each[0].make(), each[1].make()
    larger = with_twice_the_rows(trial.make())
    return larger, with_twice_the_rows(larger)


@CLAUSES.add(36, "C", "dynamic sizes", "with symbolic sizes, one compilation serves several")
def _dynamic(trial: Trial) -> None:
    larger, largest = _sizes(trial)
    want = _in_eager(lambda: _double(larger))
    compiled = aot_compile(_double, dynamic=True)
    compiled(trial.make())
    _same(trial, compiled(larger), want, "for twice the rows, the result")
    _same(trial, compiled(largest), _double(largest), "for four times the rows, the result")
    require(not compiled.recompiles, f"it compiled again: {compiled.recompiles[:1]}")


@CLAUSES.add(36, "C", "dynamic sizes with gradients", "with symbolic sizes, one compilation serves backward, too")
def _dynamic_gradients(trial: Trial) -> None:
    require_real(trial)
    larger, largest = _sizes(trial)
    compiled = aot_compile(_squares, dynamic=True)
    for tensor, again in zip((trial.make(), larger, largest), (trial.make(), *_sizes(trial)), strict=True):
        want = _in_eager(trained, _squares, again)[1]
        grad = trained(compiled, tensor)[1]
        if grad is None or want is None:
            require(grad is want, "no gradient arrives")
        else:
            _same(trial, grad, want, f"for {tensor.shape[0]} rows, the gradient")
    require(not compiled.recompiles, f"it compiled again: {compiled.recompiles[:1]}")


@CLAUSES.add(
    36, "S", "torch.compile: dynamic sizes", "with symbolic sizes, what is compiled serves others as eager mode"
)
def _dynamic_in_torch(trial: Trial) -> None:
    torch.compiler.reset()
    compiled = torch.compile(_double, backend="aot_eager", fullgraph=True, dynamic=True)
    for tensor in (trial.make(), *_sizes(trial)):
        want = _in_eager(_double, tensor)
        _same(trial, compiled(tensor), want, f"for {tensor.shape[0]} rows, the result")


class _Product(torch.nn.Module):
    """A module whose parameter is a tensor of the class."""

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(weight, requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.weight * x).sum()


# By the contract this is C. Torch fails here for some classes by itself, as for its own TwoTensor; and it may give the
# inner tensor of a result.
@CLAUSES.add(42, "S", "export", "`torch.export` takes a parameter of the class, and gives what eager mode gives")
def _export(trial: Trial) -> None:
    module = _Product(trial.make())
    x = torch.full((), 2.0, dtype=trial.make().dtype, device=trial.make().device)
    want = _in_eager(lambda: module(x))
    exported = torch.export.export(module, (x,), strict=False).run_decompositions()
    trial.agrees(exported.module()(x), trial.read(want), "the result")


def _double(x: torch.Tensor) -> torch.Tensor:
    return x * 2 + x


def _twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def _squares(x: torch.Tensor) -> torch.Tensor:
    return (x * x).sum()
