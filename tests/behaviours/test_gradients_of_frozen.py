"""The `.grad` of tensors that do not require grad: from before they were frozen, or given by the program."""

from __future__ import annotations

import types
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import subclass_aot as sa
from subclass_aot import TwoTensor
from subclass_aot.errors import CompiledFileError, MutationError

Program = Callable[[Any, Any, torch.Tensor], Any]


def ones(tensor: Any) -> Any:
    return torch.ones_like(tensor.detach())


def with_gradient(t: Any) -> Any:
    gradient = ones(t)
    gradient.grad = ones(t)
    return gradient


def zero(t: Any, live: Any, x: torch.Tensor) -> Any:
    t.grad = None
    return x * 2


def delete(t: Any, live: Any, x: torch.Tensor) -> Any:
    del t.grad
    return x * 2


def assign(t: Any, live: Any, x: torch.Tensor) -> Any:
    t.grad = t.detach() * 3
    return x * 2


def accumulate(t: Any, live: Any, x: torch.Tensor) -> Any:
    t.grad = t.detach() * 1 if t.grad is None else t.grad + t.detach()
    return x * 2


def clear_in_place(t: Any, live: Any, x: torch.Tensor) -> Any:
    if t.grad is not None:
        t.grad.zero_()
    return x * 2


def swap(t: Any, live: Any, x: torch.Tensor) -> Any:
    t.grad, live.grad = live.grad, None
    return x * 2


def train(t: Any, live: Any, x: torch.Tensor) -> Any:
    live.grad = t.grad = None
    ((live * x).sum() + (t * 2).sum()).backward()
    return x * 2


PROGRAMS: dict[str, Program] = {
    "zero": zero,
    "delete": delete,
    "assign": assign,
    "accumulate": accumulate,
    "clear in place": clear_in_place,
    "swap": swap,
    "train": train,
    "branch": lambda t, live, x: x * 2 if t.grad is None else x * 3,
    "read": lambda t, live, x: x * 2 if t.grad is None else t.grad * 2,
    "return": lambda t, live, x: t.grad,
    "size": lambda t, live, x: x if t.grad is None else x * t.grad.shape[0],
    "count": lambda t, live, x: x * sum(p.grad is not None for p in (t, live)),
    "its own gradient": lambda t, live, x: x if t.grad is None or t.grad.grad is None else x * 5,
}
BETWEEN: dict[str, list[Callable[[Any], object]]] = {
    "it had one": [lambda t: setattr(t, "grad", ones(t)), lambda t: None, lambda t: setattr(t, "grad", None)],
    "frozen": [lambda t: setattr(t, "grad", ones(t)), lambda t: t.requires_grad_(False), lambda t: None],
    "toggled": [lambda t: t.requires_grad_(), lambda t: setattr(t, "grad", ones(t)), lambda t: t.requires_grad_(False)],
    "its gradient has one": [lambda t: setattr(t, "grad", ones(t)), lambda t: setattr(t, "grad", with_gradient(t))],
}
"""What is done with the tensor between calls."""


class World:
    """A tensor at a place, and a parameter beside it."""

    def __init__(self, place: str, make: Callable[[], Any], requires_grad: bool) -> None:
        self.live, self.module, self.object = nn.Parameter(torch.ones(3)), nn.Module(), types.SimpleNamespace()
        value = make()
        if place == "parameter":
            self.module.p = value = nn.Parameter(value, requires_grad=requires_grad)
        value.requires_grad_(requires_grad)
        if place == "buffer":
            self.module.register_buffer("p", value)
        if place == "object":
            self.object.p = value
        self.tensor, self.argument = value, value if place == "argument" else None

    def function(self, place: str, program: Program) -> Callable[[torch.Tensor, Any], Any]:
        module, live, held, closed = self.module, self.live, self.object, self.tensor
        match place:
            case "argument":
                return lambda x, given: program(given, live, x)
            case "object":
                return lambda x, given: program(held.p, live, x)
            case "closure":
                return lambda x, given: program(closed, live, x)
        return lambda x, given: program(module.p, live, x)


def told(value: Any) -> Any:
    if isinstance(value, TwoTensor):
        return told(value.a), told(value.b), value.requires_grad
    return (value.tolist(), value.requires_grad) if isinstance(value, torch.Tensor) else value


def outcome(  # noqa: PLR0913  # what a case is
    place: str, make: Callable[[], Any], requires_grad: bool, name: str, between: str,
    mode: Callable[[], AbstractContextManager[Any]], compile: Callable[[Any], Any],
) -> list[Any]:  # fmt: skip
    world, found = World(place, make, requires_grad), []
    run = compile(world.function(place, PROGRAMS[name]))
    for number, change in enumerate([lambda t: None, *BETWEEN[between]]):
        change(world.tensor)
        before = world.tensor.grad
        with mode():
            result = run(torch.full((3,), 1.0 + number), world.argument)
        now = world.tensor.grad
        found.append((told(result), result is before, now is before, told(now), told(world.live.grad)))
    return found


MAKES: dict[str, Callable[[], Any]] = {
    "dense": lambda: torch.arange(3.0),
    "wrapper": lambda: TwoTensor(torch.arange(3.0), torch.ones(3)),
}


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("between", BETWEEN)
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("made_of", MAKES)
@pytest.mark.parametrize("place", ["parameter", "buffer", "argument", "object", "closure"])
def test_as_in_eager_mode(place: str, made_of: str, name: str, between: str, requires_grad: bool, mode: Any) -> None:
    if name == "train" and mode is not torch.enable_grad:
        mode = torch.enable_grad
    case = place, MAKES[made_of], requires_grad, name, between, mode
    assert outcome(*case, sa.aot_compile) == outcome(*case, lambda run: run)


@pytest.mark.parametrize("name", ["zero", "branch", "accumulate", "count"])
def test_behind_torch_compile(name: str, fresh_dynamo: None) -> None:
    case = "parameter", MAKES["dense"], True, name, "frozen", torch.enable_grad
    compiled = outcome(*case, lambda run: torch.compile(run, backend="subclass_aot"))
    assert compiled == outcome(*case, lambda run: run)


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool])
def test_of_numbers_that_have_no_gradient(dtype: torch.dtype) -> None:
    x = torch.ones(2).to(dtype)
    compiled = sa.aot_compile(lambda x, y: y if x.grad is None else y * x.grad)
    assert compiled(x, torch.ones(2)).tolist() == [1, 1]
    x.grad = torch.ones(2).to(dtype)
    assert compiled(x, torch.full((2,), 3.0)).tolist() == [3, 3] and len(compiled.recompiles) == 1


def test_changing_sizes() -> None:
    net = nn.Linear(3, 2)

    def step(x: torch.Tensor) -> torch.Tensor:
        for p in net.parameters():
            p.grad = None
        loss = net(x).square().sum()
        loss.backward()
        return loss.detach()

    compiled, found = sa.aot_compile(step), []
    for run in (compiled, step):
        net.requires_grad_()
        for rows in (1, 4, 5, 6, 7):
            net.weight.requires_grad_(rows < 5)
            run(torch.ones(rows, 3))
            found.append(told(net.weight.grad))
    assert found[:5] == found[5:] and found[2:5] == [None] * 3
    assert len(compiled.recompiles) <= 4


def test_no_file_has_it(tmp_path: Path) -> None:
    net = nn.Linear(2, 1).requires_grad_(False)

    def step(x: torch.Tensor) -> torch.Tensor:
        net.weight.grad = None
        return x * 2

    compiled = sa.aot_compile(step)
    compiled(torch.ones(1))
    with pytest.raises(CompiledFileError, match="reads or changes the gradients of its inputs"):
        compiled.save(tmp_path / "step")


def test_what_retains_its_gradient_is_read() -> None:
    w = torch.ones(2, requires_grad=True)
    compiled = sa.aot_compile(lambda h: h * 2 if h.grad is None else h * h.grad)
    for retains, expected in ((True, [5, 5]), (False, [2, 2]), (True, [5, 5])):
        h = w * 1
        if retains:
            h.retain_grad()
            (h * 5).sum().backward()
        with warnings.catch_warnings(action="ignore"):  # torch warns of what does not retain it, in eager mode, too
            assert compiled(h).tolist() == expected
    assert len(compiled.recompiles) == 1


def test_a_change_of_the_gradient_of_what_is_computed_is_refused() -> None:
    h = torch.ones(2, requires_grad=True) * 1
    h.retain_grad()
    with pytest.raises(MutationError, match=r"changes the \.grad of this input, which is no leaf"):
        sa.aot_compile(assigned)(h)


def assigned(h: Any) -> None:
    h.grad = torch.ones(2)


def test_going_backward_beyond_an_input_is_refused() -> None:
    w = torch.ones(2, requires_grad=True)

    def program(h: Any) -> None:
        (h * 3).sum().backward()

    with pytest.raises(MutationError, match="gradients go on from there into what was computed before the call"):
        sa.aot_compile(program)(w * 2)
    sa.aot_compile(program)(w)
    assert told(w.grad) == ([3, 3], False)


def on_a_result(x: Any) -> Any:
    result = x * 2
    result.grad = x * 3
    return result


def on_a_parameter(x: Any) -> Any:
    result = nn.Parameter((x * 2).detach(), requires_grad=False)
    result.grad = x * 3
    return [result, result.grad]


def on_a_wrapper(x: Any) -> Any:
    result = TwoTensor(x * 2, x)
    result.grad = TwoTensor(x * 3, x)
    return result


def on_a_view(x: Any) -> Any:
    result = x.view(-1)
    result.grad = x * 2
    return {"a": result}


def in_an_object(x: Any) -> Any:
    held = types.SimpleNamespace(of=x.detach())
    held.of.grad = x * 2
    return held.of


def with_gradients(value: Any) -> Any:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [with_gradients(x) for x in value]
    return told(value), None if value.grad is None else with_gradients(value.grad)


@pytest.mark.parametrize("program", [on_a_result, on_a_parameter, on_a_wrapper, on_a_view, in_an_object])
def test_what_is_made_gets_one(program: Callable[[Any], Any]) -> None:
    compiled = sa.aot_compile(program)
    for number in (1.0, 2.0):
        x = torch.full((2,), number)
        assert with_gradients(compiled(x)) == with_gradients(program(x))
