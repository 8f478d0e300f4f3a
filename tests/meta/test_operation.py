"""What listeners are told of an operator: its phase, module, line and products."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import subclass_aot as sa
from subclass_aot.meta import Listener, Operation
from subclass_aot.meta.operation import made_at


class Places(Listener):
    def __init__(self) -> None:
        self.found: list[tuple[str, str, str]] = []

    def on_operator(self, operation: Operation) -> None:
        name, module = operation.func.overloadpacket.__name__, operation.module
        self.found.append((name, operation.phase, type(module).__name__ if module is not None else ""))
        assert operation.line is not None and operation.line[0] == __file__
        assert operation.line[2] != "on_operator"
        assert (operation.node is None) == (operation.phase in ("forward", "optimizer"))

    def phases_of(self, name: str) -> list[str]:
        return [phase for other, phase, _ in self.found if other == name]

    def modules_of(self, name: str, phase: str) -> list[str]:
        return [module for other, its, module in self.found if (other, its) == (name, phase)]


def test_a_step_has_three_phases_and_backward_has_the_modules_of_forward() -> None:
    with sa.meta():
        model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Sequential(nn.Linear(4, 2), nn.Sigmoid()))
        optimizer = torch.optim.AdamW(model.parameters())
        with Places() as places:
            model(torch.ones(2, 3)).sum().backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    assert {phase for _, phase, _ in places.found} == {"forward", "backward", "optimizer"}
    assert places.modules_of("tanh", "forward") == ["Tanh"]
    assert places.modules_of("tanh_backward", "backward") == ["Tanh"]
    assert places.modules_of("sigmoid_backward", "backward") == ["Sigmoid"]
    assert set(places.modules_of("mm", "backward")) == {"Linear"}
    assert set(places.phases_of("linalg_vector_norm")) == {"optimizer"}
    assert set(places.phases_of("_foreach_addcdiv_")) <= {"optimizer"}


def in_function(x: torch.Tensor) -> torch.Tensor:
    return x.erf().cos()


def test_what_a_checkpoint_computes_again_is_a_phase_of_its_own() -> None:
    for reentrant in (False, True):
        with sa.meta(), Places() as places:
            x = torch.ones(3, requires_grad=True)
            y = checkpoint(in_function, x, use_reentrant=reentrant)
            checkpoint(nn.Sequential(nn.Tanh(), nn.Sigmoid()), y, use_reentrant=reentrant).sum().backward()
        assert places.phases_of("erf") == ["forward", "recompute"]
        assert places.modules_of("tanh", "recompute") == ["Tanh"]
        assert places.modules_of("tanh_backward", "backward") == ["Tanh"]


def test_gradients_of_gradients_are_backward() -> None:
    with sa.meta(), Places() as places:
        x = torch.ones(3, requires_grad=True)
        (grad,) = torch.autograd.grad(x.exp().sum(), x, create_graph=True)
        grad.sum().backward()
    assert places.phases_of("exp") == ["forward"]
    assert set(places.phases_of("mul")) == {"backward"}


def test_callbacks_of_the_engine_are_backward() -> None:
    class Called(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: object, grad: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            torch.autograd.Variable._execution_engine.queue_callback(lambda: torch.ones(3).asinh())  # type: ignore[attr-defined]
            return grad

    with sa.meta(), Phases() as phases:
        Called.apply(torch.ones(3, requires_grad=True)).sum().backward()  # type: ignore[no-untyped-call]
    assert phases.found["asinh"] == ["backward"]


class Phases(Listener):
    def __init__(self) -> None:
        self.found: dict[str, list[str]] = {}

    def on_operator(self, operation: Operation) -> None:
        self.found.setdefault(operation.func.overloadpacket.__name__, []).append(operation.phase)


def test_a_function_of_ones_own_runs_backward_in_its_phase() -> None:
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: object, grad: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
            return grad.abs()

    with sa.meta(), Places() as places:
        Doubled.apply(torch.ones(3, requires_grad=True)).sum().backward()  # type: ignore[no-untyped-call]
    assert places.phases_of("abs") == ["backward"]


def test_products_are_counted_where_they_are_read() -> None:
    class Flops(Listener):
        total = 0

        def on_operator(self, operation: Operation) -> None:
            self.total += operation.flops

    with sa.meta(), Flops() as flops:
        torch.ones(2, 3) @ torch.ones(3, 5)
    assert flops.total == 2 * 2 * 3 * 5


def test_nothing_is_kept_when_the_last_listener_goes() -> None:
    with sa.meta(), Places():
        torch.ones(3, requires_grad=True).sin()
        assert made_at
    assert not made_at
