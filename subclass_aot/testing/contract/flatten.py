"""Clauses 7 to 14: taking a tensor apart, and making it again."""

from __future__ import annotations

import contextlib
import copy
import inspect

import torch
from torch.overrides import TorchFunctionMode

from subclass_aot.base import _torch
from subclass_aot.base._stack import pass_on_interruption
from subclass_aot.testing.contract.clause import Clauses
from subclass_aot.testing.contract.trial import (
    FORMS,
    BrokenClause,
    DoesNotApply,
    Program,
    Trial,
    flattened,
    inner_of,
    require,
    storages,
    unflattened,
)

CLAUSES = Clauses()


@CLAUSES.add(7, "C", "protocol", "flatten gives names and a context, and unflatten makes a tensor of the class of them")
def _protocol(trial: Trial) -> None:
    tensor = trial.make()
    names = flattened(tensor)[0]
    require(all(type(name) is str for name in names), f"the names are {names}")
    require(len(set(names)) == len(names), f"a name stands twice in {names}")
    made = unflattened(tensor, inner_of(tensor))
    require(type(made) is trial.cls, f"unflatten makes a {type(made).__name__}")


@CLAUSES.add(8, "C", "names", "each name is an attribute that holds a tensor, or a registered opaque value")
def _names(trial: Trial) -> None:
    for name, part in inner_of(trial.make()).items():
        is_inner = isinstance(part, torch.Tensor) or _torch.wrappers.is_opaque_value(part)
        require(is_inner, f"{name} is a {type(part).__name__}; an inner tensor that is absent has no name")


@CLAUSES.add(9, "S", "stable order", "equal tensors flatten to the same names, in one order")
def _stable(trial: Trial) -> None:
    names, again = flattened(trial.make())[0], flattened(trial.make())[0]
    require(names == again, f"one tensor has the names {names}, an equal one {again}")


@CLAUSES.add(10, "C", "round trip", "flatten and unflatten keep class, names, context, sizes, strides, dtype, values")
def _round_trip(trial: Trial) -> None:
    tensor = trial.make()
    _same(trial, tensor, unflattened(tensor, inner_of(tensor)), "the round trip")
    for what in ("x.to(bfloat16)", "x.to(float64)", "x[1:]"):
        form = trial.made_by(FORMS[what])
        if form is not None:
            _same(trial, form, unflattened(form, inner_of(form)), f"the round trip of {what}")


@CLAUSES.add(10, "C", "round trip of a view", "flatten and unflatten keep the strides of a view")
def _round_trip_of_view(trial: Trial) -> None:
    tensor = trial.make()
    try:
        view = tensor.transpose(0, -1)
    except Exception as error:
        pass_on_interruption(error)
        raise DoesNotApply("it cannot be transposed") from None
    if type(view) is trial.cls:
        _same(trial, view, unflattened(view, inner_of(view)), "the round trip of x.transpose(0, -1)")


@CLAUSES.add(10, "S", "attributes", "flatten and unflatten, and copies, keep what an instance has beside inner tensors")
def _attributes(trial: Trial) -> None:
    tensor = trial.make()
    programs: dict[str, Program] = {
        "the round trip": lambda x: unflattened(x, inner_of(x)),
        "x.detach()": lambda x: x.detach(),
        "x.clone()": lambda x: x.clone(),
        "x.to(float64)": lambda x: x.to(torch.float64),
        "x[:1]": lambda x: x[:1],
        "x.transpose(0, -1)": lambda x: x.transpose(0, -1),
        "x.requires_grad_().detach()": lambda x: x.requires_grad_(trial.is_real).detach(),
        "copy.copy(x)": copy.copy,
        "copy.deepcopy(x)": copy.deepcopy,
        "x * 2": lambda x: x * 2,
        "x.split(1)[0]": lambda x: x.split(1)[0],
        "x.unbind(0)[0]": lambda x: x.unbind(0)[0],
    }
    for what, program in programs.items():
        made = trial.made_by(program, tensor)  # of which a ragged size has a number of its own
        if made is None:
            continue
        gone = sorted(set(vars(tensor)) - set(vars(made))) if what != "x * 2" else []
        require(not gone, f"after {what} it has no attribute {', '.join(gone)}")
        for name, value in vars(tensor).items():
            other = getattr(made, name, value)
            is_kept = what in _KEEPS_ALL and isinstance(value, _PLAIN)
            if is_kept or (isinstance(value, str) and other == _default_of(trial.cls, name)):
                require(other == value, f"after {what} its attribute {name} is {other!r}, not {value!r}")


def _default_of(cls: type, name: str) -> object:
    """Returns the default of a parameter of the constructor: what an attribute has that was not passed on."""
    for constructor in ("__new__", "__init__"):
        with contextlib.suppress(TypeError, ValueError):  # a function in C says nothing of its parameters
            parameter = inspect.signature(getattr(cls, constructor)).parameters.get(name)
            if parameter is not None:
                return parameter.default
    return None


_KEEPS_ALL = ("the round trip", "x.detach()", "x.clone()", "copy.copy(x)", "copy.deepcopy(x)")
_PLAIN = (bool, int, float, str, bytes, tuple, frozenset, torch.dtype)


@CLAUSES.add(11, "S", "other sizes", "unflatten takes inner tensors of another size, with the outer size that fits")
def _other_sizes(trial: Trial) -> None:
    tensor = trial.make()
    made = with_twice_the_rows(tensor)
    rows = 2 * tensor.shape[0]
    require(made.shape[0] == rows, f"asked for {rows} rows, it has {made.shape[0]}")
    try:
        trial.read_result(made, "twice the rows")
    except BrokenClause as error:  # an inner tensor may have as many rows by chance
        raise DoesNotApply(str(error)) from None
    trial.agrees(made, [torch.cat([value, value]) for value in trial.read(tensor)], "twice the rows")


@CLAUSES.add(12, "S", "no copies", "unflatten keeps each inner tensor: it copies nothing")
def _no_copies(trial: Trial) -> None:
    tensor = trial.make()
    made = unflattened(tensor, inner_of(tensor))
    for name, part in inner_of(tensor).items():
        same = getattr(made, name) is part
        shares = isinstance(part, torch.Tensor) and storages(getattr(made, name)) == storages(part)
        require(same, f"{name} is another object" + ("" if shares else ", with memory of its own"))


@CLAUSES.add(13, "C", "assignment", "inner tensors can be assigned")
def _assignment(trial: Trial) -> None:
    tensor, other = trial.make(), trial.make()
    for name, part in inner_of(other).items():
        if not isinstance(part, torch.Tensor):
            continue  # an opaque value may be for good
        setattr(tensor, name, part)
        require(getattr(tensor, name) is part, f"{name} was assigned, and is another object")
    trial.agrees(tensor, trial.read(other), "the tensor afterwards")


@CLAUSES.add(14, "P", "flatten is direct", "flatten calls nothing of torch that modes see")
def _direct(trial: Trial) -> None:
    seen: list[str] = []

    class Watch(TorchFunctionMode):
        def __torch_function__(self, func: object, types: object, args: object = (), kwargs: object = None) -> object:
            seen.append(getattr(func, "__name__", str(func)))
            assert callable(func) and isinstance(args, tuple)
            return func(*args, **(kwargs if isinstance(kwargs, dict) else {}))

    tensor = trial.make()
    with Watch():
        inner_of(tensor)
    require(not seen, f"it calls {sorted(set(seen))}")


def with_twice_the_rows(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a tensor of twice the rows, made of inner tensors that are twice as long.

    Raises:
        DoesNotApply: Nobody knows how inner tensors grow with the tensor.
    """
    rows = tensor.shape[0] if tensor.dim() else 0
    inner = inner_of(tensor)
    for part in inner.values():
        if type(part) is not torch.Tensor or not part.dim() or rows < 2 or part.shape[0] != rows:
            raise DoesNotApply("not every inner tensor has the rows of the tensor")
        if not part.is_contiguous():
            raise DoesNotApply("not every inner tensor is contiguous")
    if all(part.dim() < tensor.dim() for part in inner.values()):
        raise DoesNotApply("no inner tensor has the dims of the tensor: one of them may say the size of several")
    size = (2 * rows, *tensor.shape[1:])
    stride = torch.empty(size, device="meta").stride()
    made: torch.Tensor = unflattened(tensor, {k: torch.cat([v, v]) for k, v in inner.items()}, size, stride)
    return made


def _same(trial: Trial, tensor: torch.Tensor, made: torch.Tensor, what: str) -> None:
    require(type(made) is type(tensor), f"{what} gives a {type(made).__name__}")
    for fact in ("shape", "dtype", "device", "layout"):
        mine, theirs = getattr(made, fact), getattr(tensor, fact)
        require(mine == theirs, f"{what} has {fact} {mine}, not {theirs}")
    require(made.stride() == tensor.stride(), f"{what} has strides {made.stride()}, not {tensor.stride()}")
    require(flattened(made) == flattened(tensor), f"{what} has other names or another context: {flattened(made)}")
    trial.agrees(made, trial.read(tensor), what)
