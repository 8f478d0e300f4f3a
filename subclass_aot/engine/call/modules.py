"""The modules of a call, and the tensors that they bring."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from subclass_aot.base import _torch
from subclass_aot.engine.call.parallel import refuse_parallel
from subclass_aot.engine.call.places import ModulePlace
from subclass_aot.engine.objects import Objects
from subclass_aot.errors import LastingChangeError, PlanError

_SCRIPTED = """{path}: {kind} is compiled by TorchScript, and keeps its tensors where Python cannot put others.
  Instead: compile the Python module that it was made of."""

_LAZY = """{path}: a parameter of a lazy module ({kind}) has no shape yet.
  The first call gives it one. Instead: run the module once, as it is, before the first compiled call."""


def new_modules(objects: Objects, known: list[tuple[str, torch.nn.Module]]) -> list[tuple[str, torch.nn.Module]]:
    """Finds modules that were met since, and their submodules. They are walked, and are among `known` afterwards.

    Raises:
        PlanError: Tensors of one are where Python cannot put others.
        LastingChangeError: They have no shape yet.
    """
    have = {id(module) for _, module in known}
    fresh = []
    for path, module in objects.modules:
        if id(module) in have:  # and so are its submodules: each of a deep model is met, too
            continue
        for name, submodule in module.named_modules():
            if id(submodule) not in have:
                have.add(id(submodule))
                fresh.append((f"{path}.{name}" if name else path, submodule))
    for path, module in fresh:
        kind = type(module).__name__
        if _torch.modules.has_flat_parameters(
            module
        ):  # these are views of one tensor, and no others can stand for them
            refuse_parallel(module, _torch.modules.is_parallel_wrapper(module))
        if isinstance(module, torch.jit.ScriptModule):
            raise PlanError(_SCRIPTED.format(path=path, kind=kind))
        tensors = (*_torch.modules.parameters_of(module).values(), *_torch.modules.buffers_of(module).values())
        if any(map(torch.nn.parameter.is_lazy, tensors)):
            raise LastingChangeError(_LAZY.format(path=path, kind=kind))
        objects.root(module, path, True)
    known += fresh
    return fresh


def places_of(modules: list[tuple[str, torch.nn.Module]]) -> Iterator[tuple[ModulePlace, torch.Tensor]]:
    """Yields the parameters and buffers of modules."""
    for path, module in modules:
        for table in (_torch.modules.PARAMETERS, _torch.modules.BUFFERS):
            for name, tensor in getattr(module, table).items():
                if tensor is not None:
                    yield ModulePlace(module, table, name, f"{path}.{name}"), tensor
