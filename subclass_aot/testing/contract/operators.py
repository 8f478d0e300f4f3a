"""Clauses 20 to 29: operators mean on a wrapper what they mean on what it stands for."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar

import torch
from torch.nn import functional as F

from subclass_aot.base import _torch
from subclass_aot.base._stack import pass_on_interruption
from subclass_aot.testing.compare import dense_leaves
from subclass_aot.testing.contract.clause import Clauses
from subclass_aot.testing.contract.trial import (
    DoesNotApply,
    Program,
    Trial,
    another,
    elsewhere,
    inner_of,
    require,
    storages,
    unflattened,
    writes_of_others,
)

CLAUSES = Clauses()


def _dense(x: torch.Tensor, *size: int) -> torch.Tensor:
    size = size or tuple(x.shape)
    return torch.linspace(0.5, 1.5, math.prod(size), device=x.device).to(x.dtype).reshape(size)


PROGRAMS: dict[str, Program] = {
    "x * 2 + 1": lambda x: x * 2 + 1,
    "x + x": lambda x: x + x,
    "x + dense": lambda x: x + _dense(x),
    "dense - x": lambda x: _dense(x) - x,
    "2 / x": lambda x: 2 / x,
    "x.sum(0)": lambda x: x.sum(0),
    "x.sum(-1)": lambda x: x.sum(-1),
    "x.sum() * 2": lambda x: x.sum() * 2,
    "x.mean()": lambda x: x.mean(),
    "x.max(-1)": lambda x: tuple(x.max(-1)),
    "x.softmax(-1)": lambda x: x.softmax(-1),
    "x @ x.T": lambda x: x @ x.transpose(-1, -2),
    "x @ dense": lambda x: x @ _dense(x, x.shape[-1], 2),
    "dense @ x": lambda x: _dense(x, 2, x.shape[0]) @ x,
    "linear": lambda x: F.linear(_dense(x, 2, x.shape[-1]), x),
    "linear with bias": lambda x: F.linear(_dense(x, 2, x.shape[-1]), x, _dense(x, x.shape[0])),
    "cat": lambda x: torch.cat([x, x]),
    "cat with dense": lambda x: torch.cat([x, _dense(x)]),
    "stack": lambda x: torch.stack([x, x]),
    "where": lambda x: torch.where(x > 0, x, 0.5),
    "x > 0": lambda x: x > 0,
    "x.reshape(-1)": lambda x: x.reshape(-1),
    "x[index]": lambda x: x[torch.tensor([0, 0], device=x.device)],
    "x.t().contiguous()": lambda x: x.t().contiguous(),
    "x.to(float64)": lambda x: x.to(torch.float64),
    "clone of a view": lambda x: x[:1].clone(),
}
"""Programs that give new tensors."""

COMPOSITES = (
    "x.softmax(-1)", "linear", "linear with bias", "x.reshape(-1)", "x @ x.T", "x @ dense", "dense @ x", "where",
    "x[index]", "x.t().contiguous()",
)  # fmt: skip
"""Operators that autograd decomposes elsewhere."""


class Stranger(torch.Tensor):
    """A wrapper of which no other class knows; it answers every operator, and counts them."""

    held: torch.Tensor
    asked: ClassVar[int] = 0

    @staticmethod
    def __new__(cls, held: torch.Tensor) -> Stranger:
        made: Stranger = _torch.wrappers.make_wrapper_subclass(cls, held.shape, dtype=held.dtype, device=held.device)
        made.held = held
        return made

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return ["held"], None

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, torch.Tensor], context: None, size: object, stride: object) -> Stranger:
        return Stranger(inner["held"])

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: object, types: object, args: object = (), kwargs: object = None
    ) -> object:
        Stranger.asked += 1
        return torch.zeros(())

    __torch_function__ = _torch.wrappers.disabled_torch_function_impl


@CLAUSES.add(
    20, "S", "a class it does not know", "`__torch_dispatch__` returns NotImplemented, so that the other is called"
)
def _stranger(trial: Trial) -> None:
    tensor = trial.make()
    dtype = tensor.dtype if tensor.dtype.is_floating_point else torch.float32
    other = Stranger(torch.ones(tensor.shape, dtype=dtype, device=tensor.device))
    for name, func in {"add": torch.ops.aten.add.Tensor, "mm": torch.ops.aten.mm.default}.items():
        asked, what = Stranger.asked, "is served"
        try:
            func(tensor, other)
        except Exception as error:
            pass_on_interruption(error)
            what = f"raises {type(error).__name__}"
        require(Stranger.asked > asked, f"{name} {what}, and the other class is never called")


@CLAUSES.add(24, "C", "the class comes back", "detach, alias, clone, to, empty_like, contiguous give the class back")
def _class_back(trial: Trial) -> None:
    programs: dict[str, Program] = {
        "detach": torch.detach,
        "alias": torch.ops.aten.alias.default,
        "clone": torch.clone,
        "to(copy=True)": lambda x: x.to(x.dtype, copy=True),
        "contiguous": lambda x: x.contiguous(),
        "empty_like": torch.empty_like,
    }
    for name, program in programs.items():
        tensor = trial.make()
        result = program(tensor)
        require(type(result) is trial.cls, f"{name} gives a {type(result).__name__}")
        require(result.shape == tensor.shape, f"{name} has size {list(result.shape)}, not {list(tensor.shape)}")
        require(result.dtype == tensor.dtype, f"{name} has {result.dtype}, not {tensor.dtype}")
        if name != "empty_like" and trial.readings:
            trial.agrees(result, trial.read(tensor), name)


@CLAUSES.add(24, "S", "clone", "a clone shares no memory")
def _clone(trial: Trial) -> None:
    programs: dict[str, Program] = {"clone": torch.clone, "to(copy=True)": lambda x: x.to(x.dtype, copy=True)}
    for name, program in programs.items():
        tensor = trial.make()
        result = program(tensor)
        mine, whole = inner_of(result), storages(tensor)
        shared = [key for key, part in mine.items() if isinstance(part, torch.Tensor) and storages(part) & whole]
        require(not shared, f"{shared} of the {name} is memory of the tensor: a write into one changes the other")


@CLAUSES.add(24, "S", "new tensors", "a write into what an operator gives leaves what it was given as it is")
def _new_tensors(trial: Trial) -> None:
    values = trial.values()
    programs: dict[str, Program] = {
        "zeros_like(x)": torch.zeros_like,
        "empty_like(x)": torch.empty_like,
        "x.new_zeros(x.shape)": lambda x: x.new_zeros(x.shape),
        "x * 2": lambda x: x * 2,
        "x + x": lambda x: x + x,
        "x.clamp(max=1)": lambda x: x.clamp(max=1),
        "cat([x])": lambda x: torch.cat([x]),
    }
    writes: dict[str, Program] = {
        "add_(x)": lambda result: result.add_(trial.make()),
        "copy_(x)": lambda result: result.copy_(trial.make()),
        "mul_(3)": lambda result: result.mul_(3),
        **{f"copy_(x with another {name})": written for name, written in writes_of_others(trial).items()},
    }
    for name, program in programs.items():
        for writing, write in writes.items():
            tensor = trial.make()
            with torch.no_grad():
                try:
                    write(program(tensor))
                except Exception as error:  # what is not offered is said of the operator itself
                    pass_on_interruption(error)
                    continue
            trial.agrees(tensor, values, f"x after {name}.{writing}")


@CLAUSES.add(24, "S", "zeros_like", "`zeros_like` is zero, and takes values by addition and by `copy_`")
def _zeros_like(trial: Trial) -> None:
    values = trial.values()
    zeros = [value * 0 for value in values]
    trial.agrees(torch.zeros_like(trial.make()), zeros, "zeros_like(x)")
    trial.agrees(torch.zeros_like(trial.make()) + trial.make(), values, "zeros_like(x) + x")
    with torch.no_grad():
        trial.agrees(torch.zeros_like(trial.make()).add_(trial.make()), values, "zeros_like(x).add_(x)")
        trial.agrees(torch.zeros_like(trial.make()).copy_(trial.make()), values, "zeros_like(x).copy_(x)")


@CLAUSES.add(24, "S", "empty_like", "what `empty_like` gives takes values by `copy_`, whatever its memory held")
def _empty_like(trial: Trial) -> None:
    for what in ("x", "dense"):
        tensor = trial.make()
        empty = torch.empty_like(tensor)
        for part, mine in zip(dense_leaves(empty), dense_leaves(tensor), strict=False):
            if part.is_floating_point() and not torch.equal(part, mine):  # what is the same is structure
                part.fill_(float("nan"))
        values = trial.read(tensor)
        if not values:
            raise DoesNotApply("there is no reading: give readings=")
        with torch.no_grad():
            empty.copy_(tensor if what == "x" else values[0])
        want = values if what == "x" else [values[0] for _ in values]
        trial.holds(empty, want, f"empty_like(x).copy_({what})")


FACTORIES: dict[str, Callable[[torch.Tensor, str], torch.Tensor]] = {
    "empty_like": lambda x, device: torch.empty_like(x, device=device),
    "zeros_like": lambda x, device: torch.zeros_like(x, device=device),
    "full_like": lambda x, device: torch.full_like(x, 2, device=device),
    "rand_like": lambda x, device: torch.rand_like(x, device=device),
    "x.new_empty": lambda x, device: x.new_empty(x.shape, device=device),
    "x.new_zeros": lambda x, device: x.new_zeros(x.shape, device=device),
}
"""Operators that make a tensor on a device."""


@CLAUSES.add(24, "S", "device", "what is made on a device is there, and so are all its inner tensors")
def _device(trial: Trial) -> None:
    here = trial.make().device.type
    tried = 0
    for name, program in FACTORIES.items():
        for source, device in ((here, "meta"), ("meta", here)):
            try:
                made = program(trial.make() if source == here else trial.make().to(source), device)
            except Exception as error:  # what is not offered, clauses of the operator say
                pass_on_interruption(error)
                continue
            tried += 1
            wrong = elsewhere(made, device)
            require(not wrong, f'{name}(device="{device}") of a tensor on {source}: {wrong}')
    if not tried:
        raise DoesNotApply("it is made on no other device")


@CLAUSES.add(24, "S", "new_zeros", "`new_zeros` is zero, and has the size that was asked for")
def _new_zeros(trial: Trial) -> None:
    trial.commutes("x.new_zeros(x.shape)", lambda x: x.new_zeros(x.shape))
    trial.commutes("x.new_zeros(3)", lambda x: x.new_zeros(3))


@CLAUSES.add(26, "S", "random", "random operators draw the same under one seed, and stay in their range")
def _random(trial: Trial) -> None:
    programs: dict[str, Program] = {"rand_like": torch.rand_like, "dropout": lambda x: F.dropout(x, 0.5)}
    if not trial.is_real:
        raise DoesNotApply("only real floating-point tensors are drawn from a range")
    for name, program in programs.items():
        tensor = trial.make()
        torch.manual_seed(1)
        want = trial.read(program(tensor))
        torch.manual_seed(1)
        trial.agrees(program(tensor), want, f"{name}, once more under the seed,")
        if name == "rand_like":
            for value in want:
                require(bool(((value >= 0) & (value < 1)).all()), "rand_like has values outside of [0, 1)")


def _operator(name: str, program: Program) -> None:
    # By the contract these are C; which operators a class offers is its own affair, what it offers must be right.
    @CLAUSES.add(27, "S", name, "an operator means what it means on the dense tensor")
    def _(trial: Trial) -> None:
        trial.commutes(name, program)


def _composite(name: str) -> None:
    @CLAUSES.add(25, "S", f"{name} in inference mode", "composite operators do there what they do elsewhere")
    def _(trial: Trial) -> None:
        with torch.inference_mode():
            trial.commutes(name, PROGRAMS[name])


for _name, _program in PROGRAMS.items():
    _operator(_name, _program)
for _name in COMPOSITES:
    _composite(_name)


@CLAUSES.add(
    27, "S", "other forms", "operators mean the same on parts, transposed, empty, expanded and cast tensors, and on two"
)
def _other_forms(trial: Trial) -> None:
    for what, form in trial.trials_of_forms():
        for name, program in PROGRAMS.items():
            if what == "x[:0]" and name == "x.reshape(-1)":
                continue  # of a `DTensor` it never ends, in torch 2.13
            form.commutes_or_refuses(f"{name} of {what}", program)
    _two_tensors(trial)


PAIRS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "x + y": lambda x, y: x + y,
    "y - x": lambda x, y: y - x,
    "x * y": lambda x, y: x * y,
    "cat([x, y])": lambda x, y: torch.cat([x, y]),
    "where(x > 0, x, y)": lambda x, y: torch.where(x > 0, x, y),
    "x @ y.T": lambda x, y: x @ y.transpose(-1, -2),
}
"""Programs of two tensors."""


def _two_tensors(trial: Trial) -> None:
    """Tries operators on two tensors of the class that differ in one inner tensor, as an order."""
    if len(trial.readings) != 1:
        return
    for inner in inner_of(trial.make()):
        other = another(trial.make(), inner)
        if other is None:
            continue
        try:
            (value,) = trial.read(other)
        except Exception as error:  # offsets, for example, that are not offsets any more
            pass_on_interruption(error)
            continue
        if not bool(value.isfinite().all()):
            continue
        for name, program in PAIRS.items():
            trial.commutes_or_refuses(
                f"{name}, where y has another {inner},",
                lambda x: program(x, other if type(x) is trial.cls else value),  # noqa: B023  # called at once
            )


@CLAUSES.add(27, "S", "equal", "`torch.equal` sees a difference in any inner tensor")
def _equal(trial: Trial) -> None:
    tensor = trial.make()
    require(torch.equal(tensor, trial.make()), "torch.equal is False for equal tensors")
    inner = inner_of(tensor)
    for name, part in inner.items():
        if type(part) is not torch.Tensor:
            continue
        try:
            other = unflattened(tensor, {**inner, name: _changed(part)})
            means_the_same = all(torch.equal(*pair) for pair in zip(trial.read(tensor), trial.read(other), strict=True))
        except Exception as error:
            pass_on_interruption(error)
            continue  # offsets, for example, that are not offsets any more
        if not means_the_same:
            require(not torch.equal(tensor, other), f"torch.equal is True though {name} differs")
            require(not torch.equal(other, tensor), f"torch.equal is True though {name} differs")


@CLAUSES.add(29, "S", "memory format", "strides outside are those of dense after contiguous, clone and transpose")
def _memory_format(trial: Trial) -> None:
    programs: dict[str, Program] = {
        "x.clone()": torch.clone,
        "x.contiguous()": lambda x: x.contiguous(),
        "x.transpose(0, -1).contiguous()": lambda x: x.transpose(0, -1).contiguous(),
        "x.transpose(0, -1).clone()": lambda x: x.transpose(0, -1).clone(),
        "x.t().contiguous()": lambda x: x.t().contiguous(),
        "x.t().clone()": lambda x: x.t().clone(),
        "x.to(channels_last)": lambda x: x.to(memory_format=torch.channels_last),
    }
    tried = 0
    for name, program in programs.items():
        tensor = trial.make()
        blank = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
        try:
            result, want = program(tensor), program(blank)
        except Exception as error:
            pass_on_interruption(error)
            continue  # clauses 22 and 24 report it
        tried += 1
        require(result.stride() == want.stride(), f"{name} has strides {result.stride()}, not {want.stride()}")
    if not tried:
        raise DoesNotApply("it does none of these")


def _changed(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a tensor of the same dtype, other in each element."""
    if tensor.dtype is torch.bool:
        return ~tensor
    return tensor * 3 + 1 if tensor.dtype.is_floating_point or tensor.dtype.is_complex else tensor ^ 1
