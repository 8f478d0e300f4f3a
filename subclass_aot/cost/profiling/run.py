"""`profile`: runs a program without data, and reports what it costs."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any, overload

import optree
import torch

from subclass_aot.base import _torch
from subclass_aot.cost.devices import Device, bytes_of, claim_of
from subclass_aot.cost.profiling.figures import sizes_of
from subclass_aot.cost.profiling.recorder import Recorder
from subclass_aot.cost.profiling.report import Report
from subclass_aot.cost.profiling.timeline import Timeline
from subclass_aot.cost.profiling.unknown import unknown_of
from subclass_aot.cost.profiling.with_data import with_data
from subclass_aot.cost.profiling.without_data import PyTree, modules_in, of_training, optimizers_in, without_data
from subclass_aot.cost.without_data import called_compiled, meta, uses_no
from subclass_aot.errors import ProfileError

Optimizer = torch.optim.Optimizer | Callable[..., torch.optim.Optimizer]


@dataclass
class Setting:
    """How a program is run.

    Attributes:
        device: The device that it claims to be on: "H100", a `Device`, or "cuda:0" and the like; that of its tensors
            if left out.
        memory: What is there, as "80GiB"; that of the device if left out.
        optimizer: Of a module that is profiled itself: an optimizer of its parameters, or what makes one.
        assume: As of `meta()`.
        fraction: As of `meta()`.
    """

    device: str | os.PathLike[str] | Device | torch.device | None = None
    memory: str | int | float | None = None
    optimizer: Optimizer | None = None
    assume: bool | Mapping[str, Any] = False
    fraction: float = 1.0

    @property
    def profile_of_device(self) -> Device | None:
        """The data of the device, if one is named and not only claimed."""
        return claim_of(self.device)[1]

    @property
    def claim(self) -> torch.device | None:
        """The device that tensors claim, as tensors name it."""
        found = claim_of(self.device)[0]
        return found if found is None or found.type in ("cpu", "meta") else torch.device(found.type, found.index or 0)

    @property
    def rounding(self) -> int:
        """What the sizes of allocations are multiples of."""
        if self.profile_of_device is not None:
            return self.profile_of_device.rounding
        return 512 if self.claim is not None and self.claim.type == "cuda" else 1

    @property
    def bytes_there(self) -> int | None:
        """The memory in bytes; None if nobody said it."""
        if self.memory is not None:
            return bytes_of(self.memory)
        return None if self.profile_of_device is None else self.profile_of_device.memory


@overload
def profile(  # type: ignore[overload-overlap]  # a module is a function, too
    program: torch.nn.Module,
    *,
    device: str | os.PathLike[str] | Device | torch.device | None = ...,
    memory: str | int | float | None = ...,
    optimizer: Optimizer | None = ...,
    assume: bool | Mapping[str, Any] = ...,
    fraction: float = ...,
) -> Profiled: ...


@overload
def profile(
    program: Callable[..., Any],
    *args: Any,
    device: str | os.PathLike[str] | Device | torch.device | None = ...,
    memory: str | int | float | None = ...,
    optimizer: Optimizer | None = ...,
    assume: bool | Mapping[str, Any] = ...,
    fraction: float = ...,
    **kwargs: Any,
) -> Report: ...


def profile(
    program: Callable[..., Any],
    *args: Any,
    device: str | os.PathLike[str] | Device | torch.device | None = None,
    memory: str | int | float | None = None,
    optimizer: Optimizer | None = None,
    assume: bool | Mapping[str, Any] = False,
    fraction: float = 1.0,
    **kwargs: Any,
) -> Report | Profiled:
    """Reports what a program computes, keeps and holds, from a run without data.

    The program runs once on a copy of what it is given, in which no tensor has data, so nothing of yours changes, and
    sizes may be any. A module is run forward and, if it trains and one of its results requires grad, backward, with a
    step of `optimizer`, if there is one. With a module alone, it reports what runs in its `with` block, on real tensors
    and on such without data.

    Args:
        program: A function, as a step of training; or a module.
        *args: What it is called with: modules, optimizers, tensors, anything. Each is copied.
        device: The device to be: "H100" and others that are known, the path of a TOML file, or a device to claim, as
            "cuda:0". Hardware is not needed.
        memory: The memory that is there, as "80GiB"; that of the device if left out.
        optimizer: Of a module: an optimizer of its parameters, or a function that makes one of them.
        assume: Whether values that nobody knows are assumed, or what they are: see `meta`.
        fraction: Of a mask, the part that is true: see `meta`.
        **kwargs: Keyword arguments of the program.

    Returns:
        A `Report`. Printed, it is a table. Of a module alone, what `with` takes, which gives the report.

    >>> from torch import nn
    >>> report = profile(nn.Linear(1000, 1000), torch.empty(10**6, 1000), optimizer=torch.optim.SGD)
    >>> report.flops("forward"), report.parameters, report.peak_at.phase
    (2000000000000, 4004000, 'backward')
    >>> sum(report.owners().values()) == report.peak
    True
    """
    setting = Setting(device, memory, optimizer, assume, fraction)
    while isinstance(program, functools.partial):
        call: functools.partial[Any] = program
        program, args, kwargs = call.func, (*call.args, *args), {**call.keywords, **kwargs}
    if isinstance(program, torch.nn.Module) and not args and not kwargs:
        return Profiled({"": program}, setting)
    return Run(program, args, kwargs, setting).report()


@dataclass
class Run:
    """A program with what it is given.

    Attributes:
        program: As of `profile`.
        args: Its arguments.
        kwargs: Its keyword arguments.
        setting: How it is run.
        grad: Whether gradients are on.
    """

    program: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    setting: Setting
    grad: bool = field(default_factory=torch.is_grad_enabled)

    def report(self, batch: Callable[[PyTree], PyTree] | None = None) -> Report:
        """Runs it once without data.

        Args:
            batch: What changes the sizes of data.
        """
        setting = self.setting
        with meta(setting.device, assume=setting.assume, fraction=setting.fraction) as assumed:
            originals: list[torch.Tensor] = []
            tree = without_data(self._tree, setting.claim, originals)
            with uses_no(originals):
                report = self._ready(tree if batch is None else batch(tree)).report()
            report.compiled = called_compiled()
        report.assumed = [str(each) for each in assumed]
        report.run = self
        return report

    def on(self, device: torch.device) -> Run:
        """Returns the same on another device, which is claimed and no more."""
        return replace(self, setting=replace(self.setting, device=str(device), memory=None))

    def with_data(self) -> Ready:
        """Returns a copy of it on real tensors."""
        return self._ready(with_data(self._tree, self.setting.claim))

    @property
    def _tree(self) -> PyTree:
        tree = self.program, self.args, self.kwargs, self.setting.optimizer
        return (*tree, of_training(tree))

    def _ready(self, tree: PyTree) -> Ready:
        program, args, kwargs, optimizer, _ = tree
        program, optimizers = _step_of(program, optimizer, tree)
        return Ready(replace(self, program=program, args=args, kwargs=kwargs), _named(tree), optimizers)


@dataclass
class Ready:
    """A copy of a program with what it is given, which may change.

    Attributes:
        run: The copy.
        modules: The modules that have names, each by its prefix.
        optimizers: Whose states are there before.
    """

    run: Run
    modules: dict[str, torch.nn.Module]
    optimizers: list[torch.optim.Optimizer]

    def __call__(self) -> Any:
        """Runs it."""
        with torch.set_grad_enabled(self.run.grad):
            return self.run.program(*self.run.args, **self.run.kwargs)

    def report(self) -> Report:
        """Runs it, and reports that."""
        inputs = self.run.args, self.run.kwargs
        profiled = Profiled(self.modules, self.run.setting, inputs, self.optimizers)
        with profiled as report:
            results = self()
            profiled.recorder.label_outputs(optree.tree_leaves(results, none_is_leaf=True))
        return report


class Profiled:
    """A block that is profiled; its report is filled as the block ends.

    Args:
        modules: The modules that have names, each by its prefix.
        setting: How it is run.
        inputs: Tensors that are there before.
        optimizers: Whose states are there before.
    """

    def __init__(
        self,
        modules: dict[str, torch.nn.Module],
        setting: Setting,
        inputs: PyTree = (),
        optimizers: list[torch.optim.Optimizer] | None = None,
    ) -> None:
        known = setting.profile_of_device
        self.report = Report(Timeline(setting.claim, setting.rounding), known, setting.bytes_there)
        self.recorder = Recorder(self.report.timeline, modules, inputs, optimizers or (), known)
        self._stack = ExitStack()

    def __repr__(self) -> str:
        return f"<Profiled {self.report!r}>"

    def __enter__(self) -> Report:
        self._stack.enter_context(torch.autograd.set_multithreading_enabled(False))  # listeners are those of a thread
        self._stack.enter_context(self.recorder)
        return self.report

    def __exit__(self, *error: object) -> None:
        self._stack.close()
        report, timeline = self.report, self.report.timeline
        if timeline.device is None:
            timeline.device = _busiest(timeline)
        report.uncounted = self.recorder.uncounted
        report.wrappers = [
            sizes_of(name, tensor)
            for name, tensor in self.recorder.parameters.items()
            if _torch.wrappers.is_traceable_wrapper_subclass(tensor)
        ]
        report.unknown = unknown_of(self.recorder.workspaces, report.device)


def _busiest(timeline: Timeline) -> torch.device | None:
    """Returns the device that has the most memory."""
    found: dict[torch.device, int] = {}
    for allocation in timeline.allocations:
        found[allocation.device] = found.get(allocation.device, 0) + allocation.nbytes
    return max(found, key=found.__getitem__, default=None)


def _named(tree: PyTree) -> dict[str, torch.nn.Module]:
    """Returns the modules of a program by the prefix of their names: none where there is one module."""
    found = modules_in(tree)
    if len(found) == 1:
        return {"": found[0]}
    return {f"{type(module).__name__}{i}": module for i, module in enumerate(found)}


def _step_of(
    program: Callable[..., Any], optimizer: Optimizer | None, tree: PyTree
) -> tuple[Callable[..., Any], list[torch.optim.Optimizer]]:
    """Returns what is run, and the optimizers that are there before."""
    optimizers = optimizers_in(tree)
    if not isinstance(program, torch.nn.Module):
        if optimizer is not None:
            raise ProfileError(
                "`optimizer` is for a module that is profiled itself. Instead: pass it to your step: "
                "sa.profile(step, model, optimizer, batch)."
            )
        return program, optimizers
    if optimizer is not None and not isinstance(optimizer, torch.optim.Optimizer):
        optimizer = optimizer([p for p in program.parameters() if p.requires_grad])

    def step(*args: Any, **kwargs: Any) -> Any:
        results = program(*args, **kwargs)
        loss = _loss_of(results) if program.training and torch.is_grad_enabled() else None
        if loss is None:
            return results
        del results
        loss.backward()
        if optimizer is not None:
            optimizer.step()
        return loss

    return step, optimizers


def _loss_of(results: PyTree) -> torch.Tensor | None:
    """Returns the loss in what a module gives: `loss`, else the sum of its first result; None if nothing requires
    grad.
    """
    loss = results.get("loss") if isinstance(results, Mapping) else getattr(results, "loss", None)
    if isinstance(loss, torch.Tensor):
        return loss if loss.requires_grad else None
    leaves = results.values() if isinstance(results, Mapping) else optree.tree_leaves(results, none_is_leaf=True)
    first = next((x for x in leaves if isinstance(x, torch.Tensor) and x.requires_grad), None)
    if first is None:
        return None
    return first if first.numel() == 1 else first.float().sum()
