"""A step of an optimizer is that of eager mode, to the last bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn, optim
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks

import subclass_aot as sa

STEPS = 6
OPTIMIZERS: dict[str, tuple[Callable[..., optim.Optimizer], dict[str, Any]]] = {
    "Adam": (optim.Adam, {}),
    "Adam, amsgrad, decay": (optim.Adam, {"amsgrad": True, "weight_decay": 0.1}),
    "AdamW": (optim.AdamW, {"lr": 0.01}),
    "NAdam": (optim.NAdam, {}),
    "RAdam": (optim.RAdam, {}),
    "Adamax": (optim.Adamax, {}),
    "Adagrad": (optim.Adagrad, {"lr_decay": 0.1}),
    "RMSprop": (optim.RMSprop, {"momentum": 0.5, "centered": True}),
    "Rprop": (optim.Rprop, {}),
    "Adadelta": (optim.Adadelta, {}),
    "SGD": (optim.SGD, {"lr": 0.1, "momentum": 0.9}),
}


def trained(make: Callable[..., optim.Optimizer], compiler: object, wraps: bool = False, **options: Any) -> list[Any]:
    """Trains a small model, by a compiled function of forward, backward and step, or in eager mode."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))
    for layer in (net[0], net[2]) if wraps else ():
        for name, tensor in list(layer.named_parameters()):
            setattr(layer, name, nn.Parameter(sa.TwoTensor(tensor.detach(), tensor.detach() * 2)))
    optimizer = make(net.parameters(), **options)

    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    run: Any = step if compiler is None else sa.aot_compile(step, fw_compiler=compiler)  # type: ignore[arg-type]
    losses = [run(torch.randn(5, 4)) for _ in range(STEPS)]
    if compiler is not None:
        assert len(run.recompiles) <= 3
    assert not torch.compiler.is_compiling()
    state = [x for p in net.parameters() for _, x in sorted(optimizer.state[p].items())]
    leaves = [leaf for x in (*losses, *net.parameters(), *state) for leaf in sa.FlattenPlan.leaves_of(x)]
    return [x.detach() if isinstance(x, torch.Tensor) else x for x in leaves]


@pytest.mark.every_case
@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_are_those_of_eager_mode(name: str, foreach: bool) -> None:
    make, options = OPTIMIZERS[name]
    options = {**options, "foreach": foreach}
    eager, ours = trained(make, None, **options), trained(make, "eager", **options)
    assert all(torch.equal(a, b) for a, b in zip(eager, ours, strict=True))


@pytest.mark.every_case
@pytest.mark.parametrize("name", ["Adam", "AdamW", "NAdam", "RAdam"])
def test_steps_of_wrappers_are_those_of_eager_mode(name: str) -> None:
    make, options = OPTIMIZERS[name]
    eager, ours = trained(make, None, wraps=True, **options), trained(make, "eager", wraps=True, **options)
    assert all(torch.equal(a, b) for a, b in zip(eager, ours, strict=True))


def test_where_no_value_may_be_read_the_branch_for_compilers_is_traced() -> None:
    parameter = nn.Parameter(torch.ones(3))
    optimizer = optim.Adam([parameter], foreach=True)

    def step(gradient: torch.Tensor) -> None:
        parameter.grad = gradient
        optimizer.step()

    run = sa.aot_compile(step, fw_compiler="eager", values="refuse")
    for _ in range(3):
        run(torch.ones(3))
    assert parameter.max() < 1


def test_a_step_that_fails_or_makes_another_leaves_nothing() -> None:
    inner = optim.Adam([nn.Parameter(torch.ones(2))])
    seen = []

    class Outer(optim.SGD):
        def step(self, closure: Any = None) -> None:  # type: ignore[override]
            inner.step()
            seen.append(torch.compiler.is_compiling())
            if closure:
                raise ValueError("no step")

    outer = Outer([nn.Parameter(torch.ones(2))], lr=0.1)

    def program(x: torch.Tensor, fails: bool) -> torch.Tensor:
        seen.append(torch.compiler.is_compiling())
        outer.step(print if fails else None)
        seen.append(torch.compiler.is_compiling())
        return x * 2

    sa.aot_compile(program, fw_compiler="eager")(torch.ones(2), False)
    assert seen[-3:] == [True, False, True]
    with pytest.raises(ValueError, match="no step"):
        sa.aot_compile(program, fw_compiler="eager")(torch.ones(2), True)
    assert not torch.compiler.is_compiling()
    assert not _global_optimizer_pre_hooks and not _global_optimizer_post_hooks
