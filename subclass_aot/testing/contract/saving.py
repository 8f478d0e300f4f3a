"""Clauses 37 and 38: tensors in files, in copies and in modules."""

from __future__ import annotations

import copy
import io
import pickle
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from subclass_aot.base._stack import pass_on_interruption
from subclass_aot.testing.contract.clause import Clauses
from subclass_aot.testing.contract.trial import (
    DoesNotApply,
    Trial,
    elsewhere,
    flattened,
    inner_of,
    require,
    size_of,
    storages,
)

CLAUSES = Clauses()


def _with_torch_save(tensor: torch.Tensor) -> torch.Tensor:
    buffer = io.BytesIO()
    torch.save(tensor, buffer)
    buffer.seek(0)
    loaded: torch.Tensor = torch.load(buffer, weights_only=True)
    return loaded


def _with_mmap(tensor: torch.Tensor) -> torch.Tensor:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tensor.pt"
        torch.save(tensor, path)
        loaded: torch.Tensor = torch.load(path, weights_only=True, mmap=True)
        return loaded.clone()


def _with_state_dict(tensor: torch.Tensor) -> torch.Tensor:
    buffer = io.BytesIO()
    torch.save(_module(tensor).state_dict(), buffer)
    buffer.seek(0)
    loaded: torch.Tensor = torch.load(buffer, weights_only=True)["weight"]
    return loaded


WAYS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "copy.copy": copy.copy,
    "copy.deepcopy": copy.deepcopy,
    "pickle": lambda tensor: pickle.loads(pickle.dumps(tensor)),
    "torch.save": _with_torch_save,
    "torch.load(mmap=True)": _with_mmap,
    "state_dict": _with_state_dict,
}
"""Ways to have a tensor twice. What is loaded is loaded with `weights_only=True`."""


def _way(name: str, twice: Callable[[torch.Tensor], torch.Tensor]) -> None:
    @CLAUSES.add(
        37, "C", name, "a copy has the class, the context, the strides and the values, and requires grad as before"
    )
    def _(trial: Trial) -> None:
        tensor = trial.parameter() if name != "state_dict" else trial.make()
        other = twice(tensor)
        require(type(other) is trial.cls, f"it gives a {type(other).__name__}")
        sizes = size_of(other), size_of(tensor)
        require(sizes[0] == sizes[1], f"its size is {sizes[0]} afterwards, not {sizes[1]}")
        for fact in ("dtype", "requires_grad"):
            mine, theirs = getattr(other, fact), getattr(tensor, fact)
            require(mine == theirs, f"{fact} is {mine} afterwards, not {theirs}")
        ragged = "ragged" in sizes[1]  # and so are the strides
        require(
            ragged or other.stride() == tensor.stride(),
            f"strides are {other.stride()} afterwards, not {tensor.stride()}",
        )
        require(flattened(other) == flattened(tensor), f"names and context are {flattened(other)} afterwards")
        if name != "copy.copy":
            require(not storages(other) & storages(tensor), "it shares memory with the tensor")
        if trial.readings:
            trial.agrees(other, trial.read(tensor), "the copy")


for _name, _twice in WAYS.items():
    _way(_name, _twice)


@CLAUSES.add(38, "S", "Module.to(dtype)", "a parameter has the dtype that its module was given")
def _to_dtype(trial: Trial) -> None:
    tensor = trial.make()
    if not trial.is_real:
        raise DoesNotApply("modules convert floating-point parameters only")
    other = torch.float32 if tensor.dtype == torch.float64 else torch.float64
    module = _module(tensor).to(other)
    require(module.weight.dtype == other, f"it has {module.weight.dtype}, not {other}, and nothing was said")
    require(isinstance(module.weight, trial.cls), f"it is a {type(module.weight).__name__}")
    trial.agrees(module.weight, [value.to(other) for value in trial.values()], "the parameter")
    coarse = _module(trial.make()).to(torch.bfloat16)
    require(coarse.weight.dtype == torch.bfloat16, f"it has {coarse.weight.dtype}, not bfloat16")
    trial.agrees(coarse.weight, [value.to(torch.bfloat16) for value in trial.values()], "the parameter in bfloat16")


_MOVES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    'x.to("meta")': lambda x: x.to("meta"),
    'x.to("meta", copy=True)': lambda x: x.to("meta", copy=True),
    'Module.to("meta")': lambda x: _module(x).to("meta").weight,
}


@CLAUSES.add(38, "S", "to(device)", "a move takes all inner tensors to the device, and leaves the tensor where it is")
def _to_device(trial: Trial) -> None:
    for what, program in _MOVES.items():
        tensor = trial.make()
        moved = program(tensor)
        require(moved.device.type == "meta", f"after {what} it is on {moved.device}, not on meta")
        for name, part in inner_of(moved).items() if isinstance(moved, trial.cls) else ():
            if isinstance(part, torch.Tensor):
                require(part.device.type == "meta", f"after {what} its {name} is on {part.device}, not on meta")
        require(moved.shape == tensor.shape and moved.dtype == tensor.dtype, f"{what} changes size or dtype")
    trial.agrees(tensor, trial.values(), "what was moved")


@CLAUSES.add(38, "S", "to_empty", "a module that was on meta, made empty and loaded has what was saved")
def _to_empty(trial: Trial) -> None:
    tensor = trial.make()
    module = _module(tensor).to("meta").to_empty(device=tensor.device)
    module.load_state_dict({"weight": tensor})
    wrong = elsewhere(module.weight, tensor.device.type)
    require(not wrong, f'after to("meta"), to_empty and load_state_dict {wrong}, not on {tensor.device}')
    trial.agrees(module.weight, trial.values(), "the parameter")


def _loading(name: str, assign: bool) -> None:
    @CLAUSES.add(38, "S", name, "a parameter takes the values of a tensor of its class")
    def _(trial: Trial) -> None:
        source = _other(trial)
        module = _module(trial.make())
        module.load_state_dict({"weight": source}, assign=assign)
        require(isinstance(module.weight, trial.cls), f"the parameter is a {type(module.weight).__name__}")
        trial.holds(module.weight, trial.read(source), "the parameter")


_loading("load_state_dict", False)
_loading("load_state_dict(assign=True)", True)


@CLAUSES.add(38, "S", "load_state_dict of dense", "a parameter takes the values of a dense tensor, and keeps its class")
def _load_dense(trial: Trial) -> None:
    if len(trial.readings) != 1 or not trial.is_real:
        raise DoesNotApply("what a dense tensor means is not one thing")
    want = [value * 0.5 for value in trial.values()]
    module = _module(trial.make())
    module.load_state_dict({"weight": want[0]})
    require(isinstance(module.weight, trial.cls), f"the parameter is a {type(module.weight).__name__}")
    trial.holds(module.weight, want, "the parameter")


@CLAUSES.add(38, "S", "data", "`x.data = y` gives the tensor the values of y, or is refused")
def _data(trial: Trial) -> None:
    tensor = trial.parameter()
    require(tensor.data is not tensor and not tensor.data.requires_grad, "x.data is a part of what autograd sees")
    source = _other(trial)
    tensor.data = source
    trial.agrees(tensor, trial.read(source), "the tensor")


@CLAUSES.add(38, "C", "swap_tensors", "`torch.utils.swap_tensors` exchanges two tensors")
def _swap(trial: Trial) -> None:
    one, other = trial.make(), _other(trial)
    want, others = trial.read(one), trial.read(other)
    torch.utils.swap_tensors(one, other)
    trial.agrees(one, others, "the first")
    trial.agrees(other, want, "the second")


class _Holder(nn.Module):
    weight: nn.Parameter


def _module(tensor: torch.Tensor) -> _Holder:
    module = _Holder()
    module.weight = nn.Parameter(tensor.detach(), requires_grad=False)
    return module


def _other(trial: Trial) -> torch.Tensor:
    """Returns a tensor of the class and context that means something else."""
    if not trial.is_real:
        raise DoesNotApply("only real floating-point tensors are multiplied")
    with torch.no_grad():
        try:
            return trial.make().mul_(0.5)  # type: ignore[no-any-return]
        except Exception as error:
            pass_on_interruption(error)
            raise DoesNotApply("nobody knows how to make another of the class: it has no mul_") from None
