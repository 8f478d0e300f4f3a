"""Clauses 1 to 6: how a tensor is made, and its metadata."""

from __future__ import annotations

from collections.abc import Callable

import torch

from subclass_aot.base import _torch
from subclass_aot.base._stack import pass_on_interruption
from subclass_aot.testing.contract.blame import slip_of
from subclass_aot.testing.contract.clause import Clauses
from subclass_aot.testing.contract.trial import (
    BrokenClause,
    DoesNotApply,
    Program,
    Trial,
    inner_of,
    require,
    unflattened,
    written,
)

CLAUSES = Clauses()


@CLAUSES.add(1, "C", "storage", "the tensor has no memory of its own")
def _storage(trial: Trial) -> None:
    tensor = trial.make()
    try:
        pointer = tensor.untyped_storage().data_ptr()
    except RuntimeError:  # a storage without an address
        return
    require(pointer == 0, "the outer tensor has memory beside that of its inner tensors")


@CLAUSES.add(2, "S", "outer metadata", "size, dtype and device outside are those of what operators see")
def _outer(trial: Trial) -> None:
    for what, tensor in trial.forms():
        for reading in trial.readings:
            dense = reading(tensor)
            for fact in ("shape", "dtype", "device"):
                outside, inside = getattr(tensor, fact), getattr(dense, fact)
                require(outside == inside, f"{fact} of {what} is {outside} outside, and {inside} of what it means")


@CLAUSES.add(3, "S", "negative bit", "inner tensors with the negative bit are carried or refused")
def _negative(trial: Trial) -> None:
    def lazily_negated(tensor: torch.Tensor) -> torch.Tensor:
        return torch.complex(torch.zeros_like(tensor), -tensor).conj().imag

    _same_with(trial, lambda tensor: tensor.dtype in (torch.float32, torch.float64), lazily_negated)


@CLAUSES.add(3, "S", "conjugate bit", "inner tensors with the conjugate bit are carried or refused")
def _conjugate(trial: Trial) -> None:
    _same_with(trial, torch.Tensor.is_complex, lambda tensor: tensor.conj().resolve_conj().conj())


@CLAUSES.add(
    4, "S", "inner requires grad", "an inner tensor that requires grad is refused, detached, or gets a gradient"
)
def _inner_requires_grad(trial: Trial) -> None:
    tensor = trial.make()

    def trained(part: object) -> object:
        if isinstance(part, torch.Tensor) and part.is_floating_point():
            return part.detach().requires_grad_()
        return part

    try:
        made = unflattened(tensor, {name: trained(part) for name, part in inner_of(tensor).items()})
    except Exception as error:
        pass_on_interruption(error)
        return
    held = [name for name, part in inner_of(made).items() if isinstance(part, torch.Tensor) and part.requires_grad]
    require(made.requires_grad or not held, f"{held} require grad and the tensor does not: no gradient arrives there")


@CLAUSES.add(5, "C", "fake", "it can be made of fake tensors")
def _fake(trial: Trial) -> None:
    fake = _torch.inductor.fake_mode().from_tensor(trial.make())
    require(type(fake) is trial.cls, f"the fake tensor is a {type(fake).__name__}")
    require(repr(fake), "a fake tensor has an empty repr")


@CLAUSES.add(5, "C", "meta", "it can be made of meta tensors")
def _meta(trial: Trial) -> None:
    tensor = trial.make()
    meta = tensor.to("meta")
    require(type(meta) is trial.cls, f"to('meta') gives a {type(meta).__name__}")
    require(meta.device.type == "meta", f"to('meta') is on {meta.device} outside, not on meta")
    require(meta.shape == tensor.shape, f"to('meta') has size {list(meta.shape)} outside, not {list(tensor.shape)}")
    require(repr(meta), "a meta tensor has an empty repr")
    programs: dict[str, Program] = {f"reading {i} of it": reading for i, reading in enumerate(trial.readings)}
    if hasattr(meta, "from_plain"):
        programs["a write into it"] = lambda x: written(x, torch.empty(x.shape, dtype=x.dtype, device="meta"))
    for what, program in programs.items():
        try:
            program(meta)
        except Exception as error:  # what cannot be computed without values is another subject
            pass_on_interruption(error)
            slip = slip_of(error, trial.cls)
            require(slip is None or "device" not in slip, f"{what}, on meta: {slip}")


def _same_with(
    trial: Trial, applies: Callable[[torch.Tensor], bool], change: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    """Changes how inner tensors lie in memory, not what they are; operators see the same."""
    tensor = trial.make()
    inner = inner_of(tensor)
    changed = {name: change(part) for name, part in inner.items() if type(part) is torch.Tensor and applies(part)}
    if not changed or not trial.readings:
        raise DoesNotApply("no inner tensor can have it, or there is no reading")
    try:
        trial.agrees(unflattened(tensor, inner), trial.read(tensor), "the round trip")
        made = unflattened(tensor, {**inner, **changed})
    except BrokenClause:
        raise DoesNotApply("the round trip changes it, as clause 10 says") from None
    except Exception as error:
        pass_on_interruption(error)
        return
    what = f"a tensor with such {', '.join(changed)}"
    trial.agrees(made, trial.read(tensor), what)
    trial.agrees(made * 1, [value * 1 for value in trial.read(tensor)], f"{what}, times one,")
    trial.agrees(made.clone(), trial.read(tensor), f"the clone of {what}")
