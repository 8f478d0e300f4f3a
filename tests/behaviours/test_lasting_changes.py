"""What a call builds or changes for good: the function itself runs that call, and the next one is compiled."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune

import subclass_aot as sa
from subclass_aot.errors import LastingChangeError, MutationError
from tests.by_door import check

ROWS = torch.arange(8.0).view(4, 2) / 8


class Builds(nn.Module):
    """Does something in its first forward."""

    def __init__(self, build: Callable[[Any, Any], Any], use: Callable[[Any, Any], Any] | None = None) -> None:
        super().__init__()
        self.layer, self.built, self.build, self.use = nn.Linear(2, 2), False, build, use

    def forward(self, x: Any) -> Any:
        if not self.built:
            self.build(self, x)
            self.built = True
        y = self.layer(x)
        return y if self.use is None else self.use(self, y)


class Copies(nn.Module):
    """Copies a network every other call, as a target of Q-learning."""

    def __init__(self) -> None:
        super().__init__()
        self.net, self.target, self.calls = nn.Linear(2, 2), nn.Linear(2, 2), 0

    def forward(self, x: Any) -> Any:
        if self.calls % 3 == 0:
            self.target = copy.deepcopy(self.net)
        self.calls += 1
        with torch.no_grad():
            wanted = self.target(x) + 1
        return (self.net(x) - wanted).square()


def frozen(self: Any, x: Any) -> None:
    self.ema = copy.deepcopy(self.layer)
    for parameter in self.ema.parameters():
        parameter.requires_grad_(False)


def by(attribute: str, make: Callable[[Any], Any]) -> Callable[[Any, Any], None]:
    return lambda self, x: setattr(self, attribute, make(x))


ONCE: dict[str, Callable[[], nn.Module]] = {
    "LazyLinear": lambda: nn.Sequential(nn.LazyLinear(3), nn.ReLU(), nn.LazyLinear(2)),
    "LazyConv1d": lambda: nn.Sequential(nn.Unflatten(1, (2, 1)), nn.LazyConv1d(3, 1)),
    "a parameter": lambda: Builds(by("w", lambda x: nn.Parameter(torch.randn(x.shape[-1]))), lambda m, y: y * m.w),
    "of a wrapper": lambda: Builds(by("w", lambda x: nn.Parameter(sa.TwoTensor(x[0], x[1]))), lambda m, y: y * m.w.a),
    "of data": lambda: Builds(by("w", lambda x: nn.Parameter(x.mean(0))), lambda m, y: y * m.w if y.sum() > 9 else y),
    "another parameter": lambda: Builds(lambda m, x: setattr(m.layer, "weight", nn.Parameter(torch.ones(2, 2)))),
    "a module": lambda: Builds(by("head", lambda x: nn.Linear(2, 2)), lambda m, y: m.head(y)),
    "another module": lambda: Builds(by("layer", lambda x: nn.Linear(2, 2))),
    "a list": lambda: Builds(by("ps", lambda x: nn.ParameterList([torch.ones(2)])), lambda m, y: y * m.ps[0]),
    "weight_norm": lambda: Builds(lambda m, x: parametrizations.weight_norm(m.layer)),
    "weight_norm by hooks": lambda: Builds(lambda m, x: nn.utils.weight_norm(m.layer)),
    "spectral_norm": lambda: Builds(lambda m, x: parametrizations.spectral_norm(m.layer)),
    "spectral_norm by hooks": lambda: Builds(lambda m, x: nn.utils.spectral_norm(m.layer)),
    "pruned": lambda: Builds(lambda m, x: prune.l1_unstructured(m.layer, "weight", 1)),
    "assigned": lambda: Builds(lambda m, x: m.layer.load_state_dict(nn.Linear(2, 2).state_dict(), assign=True)),
    "a copy": lambda: Builds(frozen, lambda m, y: y + m.ema(y)),
    "a hook": lambda: Builds(lambda m, x: m.layer.weight.register_hook(lambda g: g * 2)),
    "frozen in part": lambda: Builds(lambda m, x: m.layer.weight.requires_grad_(False)),
    "a buffer with a gradient": lambda: Builds(
        lambda m, x: (m.register_buffer("zero", torch.zeros(1)), m.zero.requires_grad_()),
        lambda m, y: y + m.zero if y.sum() > 9 else y - m.zero,
    ),
    "a target": Copies,
}


def trained(make: Callable[[], nn.Module], mode: Any = torch.enable_grad) -> Callable[[Any], Any]:
    def run(door: Any) -> Any:
        model = make()
        function, results = door(model), []
        for count in (4, 4, 3, 2):
            with mode():
                results.append(function(ROWS[:count]))
            if results[-1].requires_grad:
                results[-1].sum().backward()
        return results, model, [(name, p.requires_grad) for name, p in model.named_parameters()]

    return run


@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated")
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad])
@pytest.mark.parametrize("name", ONCE)
def test_the_next_call_is_compiled(name: str, mode: Any) -> None:
    made: list[Any] = []

    def door(function: Any) -> Any:
        made.append(sa.aot_compile(function))
        return made[-1]

    assert not check(trained(ONCE[name], mode), door)
    assert "forward_graph" in made[-1].source or "run(" in made[-1].source


@pytest.mark.parametrize("name", [name for name in ONCE if "norm" not in name])
def test_by_torch_compile(name: str) -> None:
    assert not check(trained(ONCE[name]), "torch.compile")


def test_a_module_that_stays_lazy_runs_itself() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.LazyLinear(2), nn.LazyLinear(2)

        def forward(self, x: Any, first: bool) -> Any:
            return self.a(x) if first else self.b(x)

    def run(door: Any) -> Any:
        model = Two()
        function = door(model)
        return [function(ROWS, first) for first in (True, True, False, True, False)], model

    assert len(check(run)) == 1


EACH: dict[str, Callable[[Any, Any], Any]] = {
    "a parameter": lambda m, x: (setattr(m, "w", nn.Parameter(torch.ones(2))), x * m.w)[1],
    "a module": lambda m, x: (setattr(m, "head", nn.Linear(2, 2)), m.head(x))[1],
    "a module that is dropped": lambda m, x: nn.Linear(2, 2)(x),
    "a copy as a result": lambda m, x: (m.layer(x), copy.deepcopy(m.layer))[0],
    "copies in a list": lambda m, x: (m.kept.append(copy.deepcopy(m.layer)), m.layer(x))[1],
    "parameters that change places": lambda m, x: (exchanged(m), m.layer(x))[1],
}


def exchanged(m: Any) -> None:
    m.layer.weight, m.other.weight = m.other.weight, m.layer.weight


@pytest.mark.parametrize("name", EACH)
def test_what_builds_at_each_call_runs_itself(name: str) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.other, self.kept = nn.Linear(2, 2), nn.Linear(2, 2), []

        def forward(self, x: Any) -> Any:
            return EACH[name](self, x)

    def run(door: Any) -> Any:
        model = Model()
        function = door(model)
        return [function(ROWS) for _ in range(4)], model, model.kept

    assert len(check(run)) == (name in ("a parameter", "a module", "parameters that change places"))


def frees(w: Any, x: Any) -> Any:
    y = w * x
    w.requires_grad_(False)
    return y + w, w.view(-1)


def reads(w: Any, x: Any) -> Any:
    x.requires_grad_()
    return w * x * 2 if x.sum() > 0 else w * x


def toggles(w: Any, x: Any) -> Any:
    w.requires_grad_(False)
    w.mul_(2)
    w.requires_grad_(True)
    return w * x


def raises(w: Any, x: Any) -> Any:
    x.requires_grad_()
    if x.sum() > 0:
        raise ValueError("positive")
    return w * x


CHANGES: dict[str, Callable[[Any, Any], Any]] = {
    "frozen after use": frees,
    "frozen where values are read": lambda w, x: w.requires_grad_(not x.sum() > 0) * x,
    "detached": lambda w, x: (w.detach_() * x, w),
    "begins where values are read": reads,
    "begins under no_grad": lambda w, x: torch.no_grad()(lambda: x.requires_grad_() * x.sum().item())(),
    "toggled inside": toggles,
    "begins, and raises": raises,
    "hooked": lambda w, x: (w.register_hook(lambda g: g * 3), w * x)[1],
    "a copy with a gradient": lambda w, x: ((w * x).sum().backward(), copy.deepcopy(w), w.grad),
}


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("name", CHANGES)
def test_of_tensors_that_are_arguments(name: str, wrapped: bool) -> None:
    if wrapped and name in ("frozen where values are read", "begins under no_grad", "detached"):
        return  # the class has no rule for a read

    def run(door: Any) -> Any:
        function, seen = door(CHANGES[name]), []
        for sign, count in ((1.0, 2), (-1.0, 2), (1.0, 3), (1.0, 4)):
            w, x = torch.ones(count), torch.full((count,), sign)
            if wrapped:
                w = sa.TwoTensor(w, w * 2)
            w.requires_grad_()
            try:
                result = function(w, x)
            except ValueError:
                result = "raised"
            given = result[0] if isinstance(result, tuple) else result
            if isinstance(given, torch.Tensor) and given.requires_grad:
                given.sum().backward()
            seen.append((result, w, x, w.grad, x.grad))
        return seen

    check(run)


@pytest.mark.parametrize("exchange", [
    lambda a, b: a.set_(b),
    lambda a, b: a.set_(b * 2),
    lambda a, b: a.set_(b, 1, (2,), (1,)),
    lambda a, b: a.set_(b.untyped_storage(), 1, (2,), (1,)),
    lambda a, b: torch.empty(0).set_(b).add_(1),
    lambda a, b: a.view(-1)[:1].set_(b),
    lambda a, b: setattr(a.view(-1), "data", b),
])  # fmt: skip
@pytest.mark.parametrize("door", ["aot_compile", "torch.compile"])
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad])
def test_other_memory(exchange: Any, door: str, mode: Any) -> None:
    def program(a: Any, b: Any) -> Any:
        exchange(a, b)
        return a * 2, b + 1

    def run(door: Any) -> Any:
        function, results = door(program), []
        for count in (3, 3, 4, 5):
            a, b = torch.ones(3), torch.arange(float(count))
            with mode():
                results.append((function(a, b), a, b))
            b.add_(1)
            results.append(a)
        return results

    check(run, door)


def test_memory_of_weights_and_of_inner_tensors() -> None:
    def run(door: Any) -> Any:
        layer, wrapper = nn.Linear(2, 2), sa.TwoTensor(torch.ones(2, 2), torch.ones(2, 2))

        def program(w: Any, x: Any) -> Any:
            with torch.no_grad():
                layer.weight.set_(w)
            wrapper.a.set_(w)
            return layer(x), wrapper * 2

        function, results = door(program), []
        for i in range(3):
            results.append(function(torch.full((2, 2), float(i)), ROWS))
            results[-1][0].sum().backward()
        return results, layer, wrapper

    assert len(check(run)) == 1


@pytest.mark.parametrize("which", ["dense", "wrapper", "inner", "parameters"])
@pytest.mark.parametrize("training", [True, False])
def test_tensors_that_are_exchanged(which: str, training: bool) -> None:
    """The names of a program are of other tensors then, inside and after the call."""

    def run(door: Any) -> Any:
        layers = nn.Linear(2, 2), nn.Linear(2, 2)

        def program(a: Any, b: Any) -> Any:
            one, other = (layers[0].weight, layers[1].weight) if which == "parameters" else (a, b)
            if which == "inner":
                one, other = a.a, b.a
            torch.utils.swap_tensors(one, other)
            return a * 2, b + 1, layers[0](ROWS)

        function, results = door(program), []
        for count in (2, 2, 3):
            pair = [torch.full((count,), value) for value in (1.0, 5.0)]
            if which in ("wrapper", "inner"):
                pair = [sa.TwoTensor(x, x + 0.5) for x in pair]
            given = function(*[x.requires_grad_(training) for x in pair])
            results.append((given, pair, layers))
        return results

    check(run)


def test_copies_inside() -> None:
    """A copy has the `.grad` and the attributes of the tensor; one of what autograd has computed is refused."""

    def run(door: Any) -> Any:
        leaf = torch.ones(2, requires_grad=True)
        leaf.scale = torch.ones(2) * 3  # type: ignore[attr-defined]

        def program(x: Any) -> Any:
            made = copy.deepcopy(leaf)
            try:
                copy.deepcopy(leaf * 2)
            except RuntimeError as error:
                assert "graph leaves" in str(error)
                x = x + 1
            gradient = 0 if made.grad is None else made.grad
            return made * made.scale * x + gradient  # type: ignore[attr-defined]

        function, results = door(program), []
        for _ in range(3):
            leaf.grad = torch.ones(2) * len(results)
            results.append(function(leaf.detach()))
        return results

    check(run)


@pytest.mark.parametrize("name", ["a parameter", "a module", "frozen in part", "LazyLinear", "a hook", "weight_norm"])
def test_where_values_are_refused_nothing_is_changed(name: str) -> None:
    torch.manual_seed(0)
    model = ONCE[name]()
    hooks = [len(module._forward_pre_hooks) for module in model.modules()]
    before = [(key, x.requires_grad) for key, x in model.named_parameters()], list(map(type, model.modules()))
    with pytest.raises(LastingChangeError) as raised:
        sa.aot_compile(model, values="refuse")(ROWS)
    assert isinstance(raised.value, MutationError)
    assert before == ([(key, x.requires_grad) for key, x in model.named_parameters()], list(map(type, model.modules())))
    assert hooks == [len(module._forward_pre_hooks) for module in model.modules()]
