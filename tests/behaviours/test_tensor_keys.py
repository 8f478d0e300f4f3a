"""State that is found by a tensor as key: what stands below such a key is changed at each call, as in eager mode."""

from __future__ import annotations

import collections
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.weak import WeakTensorKeyDictionary

import subclass_aot as sa
from subclass_aot.testing import difference

State = tuple[Callable[[torch.Tensor], Any], Callable[[], Any]]
"""A function that keeps something, and what tells that."""


class Slot:
    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)


def parameter(n: int = 2) -> nn.Parameter:
    return nn.Parameter(torch.ones(n))


def counted() -> State:
    p, state = parameter(), {}
    state[p] = {"n": 0}

    def run(x: torch.Tensor) -> torch.Tensor:
        state[p]["n"] += 1
        return x + p * state[p]["n"]

    return run, lambda: (state, [key is p for key in state])


def reassigned() -> State:
    p = parameter()
    state = {p: {"momentum": torch.zeros(2)}}

    def run(x: torch.Tensor) -> torch.Tensor:
        state[p]["momentum"] = state[p]["momentum"] * 0.9 + x
        return state[p]["momentum"] + p

    return run, lambda: state


def appended() -> State:
    p = parameter()
    state: dict[Any, list[Any]] = {p: []}

    def run(x: torch.Tensor) -> torch.Tensor:
        state[p].append(x * len(state[p]))
        return x + p

    return run, lambda: state


def with_attributes() -> State:
    p = parameter()
    state = {p: Slot(n=0, mean=torch.zeros(2), other=None)}

    def run(x: torch.Tensor) -> torch.Tensor:
        state[p].n += 1
        state[p].mean = state[p].mean + (x - state[p].mean) / state[p].n
        state[p].other = Slot(last=x * 2)
        return state[p].mean * p

    return run, lambda: [vars(slot) | {"other": vars(slot.other or Slot())} for slot in state.values()]


def deep() -> State:
    p, q = parameter(), parameter(3)
    state = {p: {q: ({"a": [{"n": 0}]}, 1)}}

    def run(x: torch.Tensor) -> torch.Tensor:
        state[p][q][0]["a"][0]["n"] += 2
        return x + p + q.sum()

    return run, lambda: state


def by_a_wrapper() -> State:
    p = nn.Parameter(sa.TwoTensor(torch.ones(2), torch.ones(2)))
    state = {p: {"n": 0, "mean": torch.zeros(2)}}

    def run(x: torch.Tensor) -> torch.Tensor:
        state[p]["n"] += 1
        state[p]["mean"] = state[p]["mean"] + x
        return x * 2

    return run, lambda: [*state.values()]


def by_parameters_of_a_module() -> State:
    module: Any = nn.BatchNorm1d(2)
    module.kept = {p: {"n": i} for i, p in enumerate((module.weight, module.bias, module.running_mean))}

    def run(x: torch.Tensor) -> torch.Tensor:
        for p in (*module.parameters(), module.running_mean):
            module.kept[p]["n"] += 1
        result: torch.Tensor = module(torch.stack([x, x * 2]))
        return result

    return run, lambda: [slot["n"] for slot in module.kept.values()]


def by_what_the_call_makes() -> State:
    state: dict[Any, dict[str, int]] = {}

    def run(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        state[y] = {"n": 0}
        for key in state:
            state[key]["n"] += 1
        return y

    return run, lambda: [*state.items()]


def by_an_argument() -> State:
    state: dict[Any, dict[str, int]] = {}

    def run(x: torch.Tensor) -> torch.Tensor:
        state.setdefault(x, {"n": 0})["n"] += 1
        return x * 2

    return run, lambda: [*state.items()]


def by_an_object() -> State:
    key = Slot(a=1)
    state = {key: {"n": 0}}

    def run(x: torch.Tensor) -> torch.Tensor:
        state[key]["n"] += 1
        return x + state[key]["n"]

    return run, lambda: [*state.values()]


def taken_out_and_put_back() -> State:
    p = parameter()
    state = {p: {"n": 0}, parameter(): {"n": 5}}

    def run(x: torch.Tensor) -> torch.Tensor:
        slot = state.pop(p)
        slot["n"] += 1
        state[p] = slot
        return x + p

    return run, lambda: [*state.values()]


def made_when_it_is_missing() -> State:
    p = parameter()
    state: dict[Any, Any] = collections.defaultdict(lambda: {"n": 0})

    def run(x: torch.Tensor) -> torch.Tensor:
        state[p]["n"] += 1
        return x + p

    return run, lambda: ([*state.values()], [key is p for key in state])


def returned() -> State:
    p = parameter()
    state = {p: {"n": 0, "sum": torch.zeros(2)}}

    def run(x: torch.Tensor) -> Any:
        state[p]["sum"] = state[p]["sum"] + x
        return state[p]

    return run, lambda: state


def by_weak_references() -> State:
    p, key = parameter(), Slot(a=1)
    of_tensors, of_objects = WeakTensorKeyDictionary(), weakref.WeakKeyDictionary()
    of_tensors[p], of_objects[key] = {"n": 0}, {"n": 0}

    def run(x: torch.Tensor) -> torch.Tensor:
        of_tensors[p]["n"] += 1
        of_objects[key]["n"] += 2
        of_tensors[p]["last"] = x * 2
        if of_tensors[p]["n"] == 2:
            of_objects[run] = {"n": 5}  # type: ignore[index]
        return x + of_objects[key]["n"]

    return run, lambda: ([*of_tensors.values()], [*of_objects.values()], [k is p for k in of_tensors])


class Momentum(torch.optim.Optimizer):
    """As optimizers outside of torch are written."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.1})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["step"], state["momentum"] = 0, torch.zeros_like(p)
                state["step"] += 1
                state["momentum"] = state["momentum"] * 0.9 + p.grad
                p.sub_(state["momentum"] * group["lr"] / state["step"])


def _trained(make: Callable[[Any], torch.optim.Optimizer]) -> State:
    torch.manual_seed(0)
    module = nn.Linear(2, 2)
    optimizer = make(module.parameters())

    def closure(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss: torch.Tensor = (module(x) - 1).pow(2).sum()
        loss.backward()
        return loss

    def run(x: torch.Tensor) -> torch.Tensor:
        if isinstance(optimizer, torch.optim.LBFGS):
            return optimizer.step(lambda: closure(x)).detach()
        loss = closure(x).detach()
        optimizer.step()
        return loss

    def told() -> Any:
        keys = [type(key) for key in optimizer.state]
        return keys, [*optimizer.state.values()], [p.detach() for p in module.parameters()]

    return run, told


def stepping(make: Callable[[Any], torch.optim.Optimizer]) -> State:
    """A step alone: the parameters have one rank and several sizes, and so has what stands at them as keys."""
    parameters = [nn.Parameter(torch.ones(n, 2)) for n in (2, 3, 3, 1)]
    optimizer = make(parameters)

    def run(x: torch.Tensor) -> torch.Tensor:
        optimizer.step()
        return x * 2

    def told() -> Any:
        for p in parameters:
            p.grad = p.detach() / 3
        return [*optimizer.state.values()], [p.detach().clone() for p in parameters]

    return run, told


class Named:
    """A key that is compared by identity, and says nothing of itself."""

    def __repr__(self) -> str:
        return "Named"


def by_several(*keys: Any) -> State:
    """State of several sizes that stands at keys whose texts may be equal."""
    state: dict[Any, Any] = {}

    def run(x: torch.Tensor) -> torch.Tensor:
        for n, key in enumerate(keys):
            state[key] = state.get(key, torch.zeros(2 + n, 2)) + x
        return torch.cat([state[key] for key in keys]).sum(0)

    return run, lambda: [*state.values()]


PROGRAMS: dict[str, Callable[[], State]] = {
    "a step of SGD": lambda: stepping(lambda parameters: torch.optim.SGD(parameters, 0.1, momentum=0.9)),
    "a step of Adam": lambda: stepping(torch.optim.Adam),
    "a step of Adagrad": lambda: stepping(torch.optim.Adagrad),
    "a step of RMSprop": lambda: stepping(lambda parameters: torch.optim.RMSprop(parameters, momentum=0.9)),
    "a step of an optimizer of one's own": lambda: stepping(Momentum),
    "several objects": lambda: by_several(Named(), Named()),
    "several tensors": lambda: by_several(torch.ones(2), torch.ones(2), torch.ones(3)),
    "several modules": lambda: by_several(nn.ReLU(), nn.ReLU()),
    "several functions": lambda: by_several(lambda: 1, lambda: 2),
    "several names": lambda: by_several("a", 1, True, None, (1, "a"), nn.ReLU, torch.float32),
    "a number": counted,
    "a tensor that is assigned": reassigned,
    "a list": appended,
    "attributes": with_attributes,
    "deep below": deep,
    "a wrapper as key": by_a_wrapper,
    "parameters and buffers as keys": by_parameters_of_a_module,
    "a tensor of the call as key": by_what_the_call_makes,
    "an argument as key": by_an_argument,
    "an object as key": by_an_object,
    "taken out": taken_out_and_put_back,
    "a default": made_when_it_is_missing,
    "a result": returned,
    "weak references": by_weak_references,
    "an optimizer of one's own": lambda: _trained(Momentum),
    "LBFGS": lambda: _trained(lambda parameters: torch.optim.LBFGS(parameters, max_iter=3)),
}


def flattened(value: Any) -> list[Any]:
    """What is in containers, in order."""
    if isinstance(value, dict):
        return [part for item in value.items() for x in item for part in flattened(x)]
    if isinstance(value, list | tuple | collections.deque):
        return [part for x in value for part in flattened(x)]
    return [value.detach().clone() if isinstance(value, torch.Tensor) else value]


def outcomes(make: Callable[[], State], compile: Callable[[Any], Any], calls: int = 4) -> list[list[Any]]:
    run, told = make()
    compiled = compile(run)
    return [flattened([compiled(torch.arange(2.0) + i), told()]) for i in range(calls)]


def compare(expected: list[list[Any]], got: list[list[Any]]) -> None:
    for number, (before, after) in enumerate(zip(expected, got, strict=True)):
        assert len(before) == len(after), number
        for x, y in zip(before, after, strict=True):
            same = not difference(x, y) if isinstance(x, torch.Tensor) else type(x) is type(y) and x == y
            assert same, (number, x, y)


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_each_call_changes_it_as_in_eager_mode(name: str, dynamic: bool | None) -> None:
    expected = outcomes(PROGRAMS[name], lambda run: run)
    compare(expected, outcomes(PROGRAMS[name], lambda run: sa.aot_compile(run, dynamic=dynamic)))


def state_by_ids(compile: Callable[[Any], Any]) -> list[Any]:
    """What calls give and leave behind, where tensors are known by their ids; these by names, since runs differ."""
    p, q = parameter(), parameter(3)
    state: dict[Any, Any] = {id(p): {"n": 0}, (id(q), "rows"): []}
    seen: set[int] = set()
    order, last = [id(q), 3, id(p)], Slot(id=None)

    def run(x: torch.Tensor) -> Any:
        state[id(p)]["n"] += 1
        state[id(q), "rows"].append(x * 2)
        state["last"] = id(q)
        state[id(q)] = state.get(id(q), 0) + 1
        x = x + 1 if id(p) in seen else x - 1
        seen.update((id(p), id(q)))
        x = x * (1 + order.index(id(p)))
        x = x * 2 if last.id == id(p) else x
        last.id = id(p) if last.id != id(p) else id(q)
        return x + p + q.sum(), id(p)

    def named(value: Any) -> Any:
        if isinstance(value, tuple | list | set):
            return sorted(map(named, value), key=str) if isinstance(value, set) else [*map(named, value)]
        if isinstance(value, dict):
            return [named(part) for item in value.items() for part in item]
        return {id(p): "p", id(q): "q"}.get(value, value) if isinstance(value, int) else value

    compiled = compile(run)
    return [flattened(named([compiled(torch.arange(2.0) + i), state, seen, last.id])) for i in range(5)]


def test_tensors_that_are_known_by_their_ids() -> None:
    compare(state_by_ids(lambda run: run), state_by_ids(sa.aot_compile))


def test_an_id_of_another_tensor_is_another_signature() -> None:
    state: dict[int, int] = {}

    def run(x: torch.Tensor) -> torch.Tensor:
        return x * state.get(id(x), 10)

    compiled = sa.aot_compile(run)
    x, y = torch.ones(2), torch.ones(2)
    state[id(x)] = 3
    for given in (x, y, x, y):
        assert torch.equal(compiled(given), run(given))


@pytest.mark.parametrize("name", ["a number", "an optimizer of one's own"])
def test_within_torch_compile(name: str, fresh_dynamo: None) -> None:
    expected = outcomes(PROGRAMS[name], lambda run: run)
    compare(expected, outcomes(PROGRAMS[name], lambda run: torch.compile(run, backend="subclass_aot")))


def keeps(state: dict[Any, Any], p: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    state[p]["n"] += 1
    state[p]["sum"] = state[p]["sum"] + x
    return x * p


def test_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def make() -> tuple[dict[Any, Any], torch.Tensor, torch.Tensor]:
        p = torch.full((2,), 3.0)
        return {p: {"n": 2, "sum": torch.ones(2)}}, p, torch.arange(2.0)

    compiled = sa.aot_compile(keeps)
    compiled(*make())
    compiled.save(tmp_path / "file.sa")
    monkeypatch.setattr("subclass_aot.engine.compile.trace_arguments", None)
    for loaded in (
        sa.load_compiled(tmp_path / "file.sa", keeps, trust=True),
        sa.load_compiled(tmp_path / "file.sa", trust=True),
    ):
        expected, got = make(), make()
        compare([flattened([keeps(*expected), expected])], [flattened([loaded(*got), got])])
        assert next(iter(got[0])) is got[1]


def _entries() -> dict[str, tuple[Callable[[Any], torch.optim.Optimizer], bool]]:
    """The optimizers of torch's own tests, each with all of its configurations."""
    from torch.testing._internal.common_optimizers import optim_db

    found = {}
    for entry in optim_db:
        for i, given in enumerate(entry.optim_inputs_func(device="cpu")):
            if not given.kwargs.get("differentiable") and entry.optim_cls.__name__ != "SparseAdam":
                make = lambda parameters, cls=entry.optim_cls, kwargs=given.kwargs: cls(parameters, **kwargs)  # noqa: E731
                found[f"{entry.optim_cls.__name__} {i} {given.desc}"] = make, entry.optim_cls.__name__ == "LBFGS"
    return found


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name, (_, is_lbfgs) in _entries().items() if is_lbfgs])
def test_all_configurations_of_lbfgs(name: str) -> None:
    make, _ = _entries()[name]
    expected = outcomes(lambda: _trained(make), lambda run: run)
    compare(expected, outcomes(lambda: _trained(make), sa.aot_compile))
