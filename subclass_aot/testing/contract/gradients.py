"""Clauses 28, 30 to 32 and 35: gradients in eager mode, and how one kind of gradient becomes another."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch.nn import functional as F

from subclass_aot.base._stack import pass_on_interruption
from subclass_aot.testing.contract.arguments import others
from subclass_aot.testing.contract.clause import Clauses
from subclass_aot.testing.contract.trial import (
    DoesNotApply,
    Program,
    Trial,
    first_line,
    flattened,
    inner_of,
    require,
)

CLAUSES = Clauses()


def _squares(x: torch.Tensor) -> torch.Tensor:
    """Returns a loss, of which a small difference stays small: a sine of large numbers, rounded, is anything."""
    return (x * x).sum()


LOSSES: dict[str, Program] = {
    "(x * x).sum()": lambda x: (x * x).sum(),
    "linear": lambda x: _squares(F.linear(torch.ones(2, x.shape[-1], dtype=x.dtype, device=x.device), x)),
    "transposed": lambda x: _squares(x.t() * torch.arange(x.shape[0], dtype=x.dtype, device=x.device)),
}
"""Programs to go backward through."""


def trained(program: Program, tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Returns the result of a program, and the gradient of the tensor."""
    tensor.requires_grad_()
    loss = program(tensor)
    require(loss.requires_grad, "the loss does not require grad, though the tensor does: its gradient is lost")
    loss.backward()
    return loss, tensor.grad


def require_real(trial: Trial) -> None:
    """Raises `DoesNotApply` for what has no gradients, or no reading to compare them with."""
    if not trial.is_real or not trial.readings:
        raise DoesNotApply("only real floating-point tensors with a reading have gradients to compare")


def _loss(name: str, program: Program) -> None:
    @CLAUSES.add(32, "S", f"gradient of {name}", "gradients are those of dense tensors")
    def _(trial: Trial) -> None:
        require_real(trial)
        want = [trial.of_dense(lambda value: trained(program, value)[1], value) for value in trial.values()]
        _, grad = trained(program, trial.make())
        if grad is None:
            require(False, "no gradient arrives")
            return
        require(grad.shape == trial.make().shape, f"the gradient has size {list(grad.shape)}")
        trial.agrees(grad, want, "the gradient")


for _name, _program in LOSSES.items():
    _loss(_name, _program)


OTHER_OPERANDS: dict[str, tuple[Callable[[torch.Tensor], tuple[int, ...]], Callable[..., torch.Tensor]]] = {
    "linear": (lambda x: (2, x.shape[-1]), lambda x, y: F.linear(y, x)),
    "linear with bias": (lambda x: (2, x.shape[-1]), lambda x, y: F.linear(y, x, y.new_ones(x.shape[0]))),
    "bias": (lambda x: (x.shape[0],), lambda x, y: F.linear(y.new_ones(2, x.shape[-1]), x, y)),
    "x @ y": (lambda x: (x.shape[-1], 2), lambda x, y: x @ y),
    "y @ x": (lambda x: (2, x.shape[0]), lambda x, y: y @ x),
    "x * y": (lambda x: tuple(x.shape), lambda x, y: x * y),
    "y - x": (lambda x: tuple(x.shape), lambda x, y: y - x),
    "embedding of a product": (lambda x: (3, x.shape[-1]), lambda x, y: F.linear(y, x)[[0, 0, 1]]),
}
"""Products with a tensor that does not require grad: the size of the other operand, and the program."""


def _other_operand(name: str) -> None:
    @CLAUSES.add(32, "S", f"other operand of {name}", "an operand gets its gradient where the tensor itself is frozen")
    def _(trial: Trial) -> None:
        require_real(trial)
        size, program = OTHER_OPERANDS[name]

        def grad_of(x: torch.Tensor) -> torch.Tensor:
            numel = math.prod(size(x))
            values = torch.linspace(0.5, 1.5, numel, dtype=torch.float32, device=x.device)
            y = values.to(x.dtype).reshape(size(x)).requires_grad_()
            loss = _squares(program(x, y))
            require(loss.requires_grad, "the loss does not require grad, though the other operand does")
            loss.backward()
            require(y.grad is not None, "no gradient arrives at the other operand")
            return y.grad  # type: ignore[return-value]

        want = [trial.of_dense(grad_of, value) for value in trial.values()]
        trial.agrees(grad_of(trial.make()), want, "the gradient of the other operand")


for _name in OTHER_OPERANDS:
    _other_operand(_name)


def _tangent(name: str, tangent: Callable[[torch.Tensor], torch.Tensor]) -> None:
    @CLAUSES.add(32, "S", name, "backward takes a gradient of another layout, or of a dense class, or refuses it")
    def _(trial: Trial) -> None:
        require_real(trial)

        def program(x: torch.Tensor) -> torch.Tensor:
            result = x * 2
            result.backward(tangent(result))
            require(x.grad is not None, "no gradient arrives")
            return x.grad  # type: ignore[return-value]

        want = [trial.of_dense(program, value.requires_grad_()) for value in trial.values()]
        trial.agrees(program(trial.parameter()), want, "the gradient")


_tangent("dense tangent", lambda x: torch.ones(x.shape, dtype=x.dtype, device=x.device))
_tangent(
    "transposed tangent",
    lambda x: torch.ones(*reversed(x.shape), dtype=x.dtype, device=x.device).permute(*reversed(range(x.dim()))),
)


def with_other_contexts(trial: Trial) -> list[tuple[str, torch.Tensor]]:
    """Returns tensors of the class, size and dtype of `make()` that have another context or other inner tensors.

    Raises:
        DoesNotApply: No parameter of `make` gives one.
    """
    tensor = trial.make()
    found = []
    for what, other in others(trial):
        made = other.make()
        is_alike = (type(made), made.shape, made.dtype) == (type(tensor), tensor.shape, tensor.dtype)
        if is_alike and flattened(made) != flattened(tensor):
            found.append((what, made))
    if not found:
        raise DoesNotApply("no parameter of make gives the same size and dtype with another context")
    return found


_OF_TWO: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "x + y": lambda x, y: x + y,
    "y - x": lambda x, y: y - x,
    "x * y": lambda x, y: x * y,
    "x @ y.T": lambda x, y: x @ y.mT,
    "cat([x, y])": lambda x, y: torch.cat([x, y]),
    "cat([y, x])": lambda x, y: torch.cat([y, x]),
    "stack([x, y])": lambda x, y: torch.stack([x, y]),
    "where(y > 0, x, y)": lambda x, y: torch.where(y > 0, x, y),
    "x.clone().copy_(y)": lambda x, y: x.clone().copy_(y),
    "y.clone().add_(x)": lambda x, y: y.clone().add_(x),
}


@CLAUSES.add(27, "S", "another context", "an operator on tensors of two contexts means what it means on dense ones")
def _another_context(trial: Trial) -> None:
    for what, other in with_other_contexts(trial):
        for name, program in _OF_TWO.items():
            want = [program(*pair) for pair in zip(trial.values(), trial.read(other), strict=True)]
            try:
                with torch.no_grad():
                    made = program(trial.make(), other)
            except Exception as error:  # which operators a class offers is its own affair
                pass_on_interruption(error)
                continue
            trial.holds(made, want, f"{name}, with y of {what},")


def twice_backward(program: Program, tensor: torch.Tensor, tangent: torch.Tensor) -> torch.Tensor:
    """Returns the gradient of a tensor for a gradient of the result of a program."""
    tensor.requires_grad_()
    program(tensor).backward(tangent)
    require(tensor.grad is not None, "no gradient arrives")
    return tensor.grad  # type: ignore[return-value]


@CLAUSES.add(32, "S", "tangent of another context", "backward takes a gradient of another context, or refuses it")
def _tangent_of_another_context(trial: Trial) -> None:
    require_real(trial)
    for what, tangent in with_other_contexts(trial):
        want = [value * 2 for value in trial.read(tangent)]
        grad = twice_backward(lambda x: x * 2, trial.make(), tangent)
        trial.agrees(grad, want, f"for the gradient {what}, that of x * 2")


class _Twice(torch.autograd.Function):
    """Two results, so that the gradient of one may be undefined; autograd makes it then."""

    @staticmethod
    def forward(ctx: object, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x * 1, x * 2

    @staticmethod
    def backward(ctx: object, *grads: torch.Tensor) -> torch.Tensor:
        return grads[0] + grads[1] * 2


def _undefined(name: str, some: Program, every: Program) -> None:
    @CLAUSES.add(28, "C", name, "where no gradient arrives autograd makes zeros, and backward goes through")
    def _(trial: Trial) -> None:
        require_real(trial)
        want = [trial.of_dense(some, value.requires_grad_()) for value in trial.values()]
        try:
            every(trial.parameter())
        except Exception as error:
            pass_on_interruption(error)
            raise DoesNotApply(f"it raises where all gradients arrive, too: {first_line(error)}") from None
        trial.agrees(some(trial.parameter()), want, "the gradient")


def _grad(x: torch.Tensor, loss: torch.Tensor) -> torch.Tensor:
    return torch.autograd.grad(loss, x, torch.ones_like(loss), materialize_grads=True)[0]


_undefined(
    "unused result of a function",
    lambda x: _grad(x, torch.mul(*[_Twice.apply(x)[0]] * 2)),  # type: ignore[no-untyped-call]
    lambda x: _grad(x, torch.mul(*_Twice.apply(x))),  # type: ignore[no-untyped-call]
)
_undefined("unused part", lambda x: _grad(x, x.chunk(2)[0] * 3), lambda x: _grad(x, torch.mul(*x.chunk(2))))
_undefined("unused input", lambda x: _grad(x, torch.mul(x.detach().requires_grad_(), 3)), lambda x: _grad(x, x * 3))


@CLAUSES.add(32, "S", "reading", "what is read of a tensor that requires grad is differentiable, or refused")
def _reading(trial: Trial) -> None:
    require_real(trial)
    for place, reading in enumerate(trial.readings):
        tensor = trial.parameter()
        try:
            dense = reading(tensor)
        except Exception as error:
            pass_on_interruption(error)
            continue
        if any(dense is part for part in inner_of(tensor).values()):
            continue  # an inner tensor, which never requires grad
        require(dense.requires_grad, f"what reading {place} gives does not require grad: its gradient is lost")


@CLAUSES.add(35, "S", "requires_grad", "results say whether they require grad, as those of dense tensors do")
def _requires_grad(trial: Trial) -> None:
    require_real(trial)
    tensor = trial.parameter()
    require(tensor.requires_grad and tensor.is_leaf, "after requires_grad_() it does not require grad, or is no leaf")
    result = tensor * 2
    require(result.requires_grad and result.grad_fn is not None, "x * 2 does not require grad")
    require(not result.detach().requires_grad, "x.detach() requires grad")
    with torch.no_grad():
        require(not (tensor * 2).requires_grad, "x * 2 requires grad under no_grad")
    require(not (trial.make() * 2).requires_grad, "x * 2 requires grad where x does not")


@CLAUSES.add(35, "S", "class of the gradient", "gradients that are added up keep the class of the first")
def _accumulated(trial: Trial) -> None:
    require_real(trial)
    tensor = trial.parameter()
    (tensor * tensor).sum().backward()
    first = type(tensor.grad)
    (tensor * tensor).sum().backward()
    require(type(tensor.grad) is first, f"the first is a {first.__name__}, the sum a {type(tensor.grad).__name__}")
    trial.agrees(tensor.grad, [value * 4 for value in trial.values()], "the sum of two gradients")


@CLAUSES.add(30, "C", "tangent of the own context", "`__coerce_same_metadata_as_tangent__` takes its own context")
def _coerce(trial: Trial) -> None:
    name = "__coerce_same_metadata_as_tangent__"
    if not hasattr(trial.cls, name):
        raise DoesNotApply("there is none")
    tensor = trial.make()
    context = flattened(tensor)[1]
    one = getattr(tensor, name)(context)
    require(one is not None, "it gives None for the tensor's own context")
    two = getattr(one, name)(context)
    require(type(two) is type(one) and flattened(two) == flattened(one), "twice gives something else than once")


@CLAUSES.add(31, "C", "canonical tangent", "`__coerce_tangent_metadata__` gives the same when it is asked twice")
def _canonical(trial: Trial) -> None:
    name = "__coerce_tangent_metadata__"
    if not hasattr(trial.cls, name):
        raise DoesNotApply("there is none")
    one = getattr(trial.make(), name)()
    two = getattr(one, name)()
    require(type(two) is type(one) and flattened(two) == flattened(one), "twice gives something else than once")
    if trial.readings:
        trial.agrees(one, trial.values(), "the canonical form")
