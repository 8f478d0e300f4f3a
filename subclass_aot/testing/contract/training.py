"""Clauses 39 to 41: parameters, optimizers, and what goes around a step."""

from __future__ import annotations

import copy
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
import torch.nn.utils.parametrize
from torch import nn
from torch.utils.checkpoint import checkpoint

from subclass_aot.testing.contract.clause import Clauses
from subclass_aot.testing.contract.gradients import require_real
from subclass_aot.testing.contract.trial import Program, Trial, flattened, require

CLAUSES = Clauses()

_OPTIMIZERS: dict[str, tuple[type[torch.optim.Optimizer], dict[str, Any]]] = {
    "SGD": (torch.optim.SGD, {"foreach": False}),
    "SGD with momentum": (torch.optim.SGD, {"momentum": 0.9, "foreach": False}),
    "SGD(foreach=True)": (torch.optim.SGD, {"momentum": 0.9, "foreach": True}),
    "AdamW": (torch.optim.AdamW, {"foreach": False}),
    "AdamW(foreach=True)": (torch.optim.AdamW, {"foreach": True}),
    "AdamW(fused=True)": (torch.optim.AdamW, {"fused": True}),
}


@CLAUSES.add(39, "S", "Parameter", "`nn.Parameter` keeps the class, the attributes, the context and the values")
def _parameter(trial: Trial) -> None:
    tensor = trial.make()
    parameter = nn.Parameter(tensor, requires_grad=trial.is_real)
    require(isinstance(parameter, trial.cls), f"it is a {type(parameter).__name__}")
    require(isinstance(parameter, nn.Parameter), "it is no nn.Parameter")
    gone = sorted(set(vars(trial.make())) - set(vars(parameter)))
    require(not gone, f"{gone} are not there any more")
    require(flattened(parameter) == flattened(trial.parameter()), "it has other names or another context")
    if trial.readings:
        trial.agrees(parameter, trial.values(), "the parameter")


def _optimizer(name: str) -> None:
    @CLAUSES.add(40, "S", name, "three steps of an optimizer are those of a dense parameter")
    def _(trial: Trial) -> None:
        require_real(trial)
        make, options = _OPTIMIZERS[name]

        def steps(tensor: torch.Tensor) -> torch.Tensor:
            parameter = nn.Parameter(tensor)
            optimizer = make([parameter], lr=0.01, **options)  # type: ignore[call-arg]
            for _ in range(3):
                optimizer.zero_grad()
                (parameter * parameter).sum().backward()
                optimizer.step()
            return parameter.detach()

        want = [trial.of_dense(steps, value) for value in trial.values()]
        trial.agrees(steps(trial.make()), want, "the parameter", 6 * trial.rounding)


for _name in _OPTIMIZERS:
    _optimizer(_name)


@CLAUSES.add(40, "S", "clip_grad_norm_", "gradients are cut to the norm that dense ones are cut to")
def _clip(trial: Trial) -> None:
    require_real(trial)

    def clipped(tensor: torch.Tensor) -> torch.Tensor:
        parameter = nn.Parameter(tensor)
        (parameter * parameter).sum().backward()
        nn.utils.clip_grad_norm_([parameter], 0.5)
        assert parameter.grad is not None
        return parameter.grad

    want = [trial.of_dense(clipped, value) for value in trial.values()]
    trial.agrees(clipped(trial.make()), want, "the gradient")


_TRANSFORMS: dict[str, Program] = {
    "vmap": lambda x: torch.vmap(lambda row: row * 2)(x),
    "func.grad": lambda x: torch.func.grad(lambda w: (w * w).sum())(x),
    "checkpoint": lambda x: checkpoint(lambda w: (w * w).sin(), x, use_reentrant=False),
    "inference_mode": torch.inference_mode()(lambda x: x * 2),
    "autocast": lambda x: _autocast(x),
    "func.vjp": lambda x: torch.func.vjp(lambda w: w * 2, x)[0],
    "func.functional_call": lambda x: torch.func.functional_call(_Twice(x), {"weight": x}, ()),
    "threads": lambda x: _in_thread(lambda: x * 2 + x),
    "deepcopy of a module": lambda x: copy.deepcopy(_Twice(x))(),
    "parametrize": lambda x: _parametrized(x),
    "module hooks": lambda x: _hooked(x),
}


class _Twice(nn.Module):
    """A module that has the tensor as its parameter."""

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight.detach(), requires_grad=False)

    def forward(self) -> torch.Tensor:
        return self.weight * 2


class _Negative(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return -x


def _in_thread(program: Callable[[], torch.Tensor]) -> torch.Tensor:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(program).result()


def _parametrized(x: torch.Tensor) -> torch.Tensor:
    module = _Twice(x)
    nn.utils.parametrize.register_parametrization(module, "weight", _Negative(), unsafe=True)
    result: torch.Tensor = module()
    return result


def _hooked(x: torch.Tensor) -> torch.Tensor:
    module = _Twice(x)
    module.register_forward_hook(lambda module, args, result: result + 1)
    result: torch.Tensor = module()
    return result


def _autocast(x: torch.Tensor) -> torch.Tensor:
    with torch.autocast(x.device.type, dtype=torch.bfloat16):
        return torch.nn.functional.linear(torch.ones(2, x.shape[-1], dtype=x.dtype, device=x.device), x)


def _transform(name: str, program: Program) -> None:
    @CLAUSES.add(41, "S", name, "what goes around a program does the same to a wrapper as to a dense tensor")
    def _(trial: Trial) -> None:
        trial.commutes(name, program)


for _name, _program in _TRANSFORMS.items():
    _transform(_name, _program)
