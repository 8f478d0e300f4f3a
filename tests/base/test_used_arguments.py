"""What a function does not read of its arguments makes no difference, and all that it reads does."""

from __future__ import annotations

import argparse
import enum
import functools
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch

import subclass_aot as sa
from subclass_aot.base import used_arguments
from subclass_aot.base.bytecode import Step
from subclass_aot.base.used_arguments import Parts, UsedArguments
from subclass_aot.errors import MutationError


class Mode(enum.Enum):
    FAST = 1
    SLOW = 2


@dataclass
class Options:
    scale: float = 2.0
    name: object = None


@dataclass(frozen=True)
class Frozen:
    scale: float
    name: object


@dataclass(slots=True)
class Slots:
    scale: float
    name: object


class Pair(NamedTuple):
    scale: float
    name: object


class Computed:
    """An object of which an attribute runs code."""

    def __init__(self, scale: float, name: object) -> None:
        self.half, self.name = scale / 2, name

    @property
    def scale(self) -> float:
        return self.half * (2 if self.name != "t3" else 3)


class Other(dict[str, Any]):
    """A dict that reads more than what it is asked for."""

    def __getitem__(self, key: str) -> Any:
        return super().__getitem__(key) * (1 if self.get("name") != "t3" else 3)


NAMES = [*(f"t{i}" for i in range(5)), None, True, Mode.FAST, Mode.SLOW, 3, 4.5, object(), [1], {"a": "b"}, len]
X = torch.arange(3.0)


def by_key(x: Any, s: Any) -> Any:
    return x * s["scale"]


def by_name(x: Any, s: Any) -> Any:
    return x * s.scale


def first(x: Any, s: Any) -> Any:
    return x * s[0]


def last(x: Any, s: Any) -> Any:
    return x * s[-1] + s[0]


def by_get(x: Any, s: Any) -> Any:
    return x * s.get("scale") + s.get("shift", 1.0) + (1.0 if "bias" in s else 0.0)


def nested(x: Any, s: Any) -> Any:
    return x * s["a"][1].scale


def unread(x: Any, s: Any) -> Any:
    return x * 2


def unread_keywords(x: Any, *rest: Any, s: Any = None, **kwargs: Any) -> Any:
    return x * kwargs.get("scale", 3.0)


class Module(torch.nn.Module):
    def forward(self, x: Any, s: Any) -> Any:
        return x * s["scale"]


def results(
    function: Callable[..., Any], calls: list[tuple[tuple[Any, ...], dict[str, Any]]]
) -> sa.CompiledFunction[..., Any]:
    """Compares each of several calls with eager mode; returns the compiled function."""
    compiled = sa.aot_compile(function, fw_compiler="eager")
    for args, kwargs in calls:
        torch.testing.assert_close(compiled(*args, **kwargs), function(*args, **kwargs), rtol=0, atol=0)
    return compiled


UNREAD: dict[str, tuple[Callable[..., Any], Callable[[Any], Any]]] = {
    "dict": (by_key, lambda name: {"name": name, "scale": 2.0}),
    "OrderedDict": (by_key, lambda name: OrderedDict(scale=2.0, name=name)),
    "defaultdict": (by_key, lambda name: defaultdict(list, scale=2.0, name=name)),
    "module": (Module(), lambda name: {"scale": 2.0, "name": name}),
    "method": (SimpleNamespace(f=Module().forward).f, lambda name: {"scale": 2.0, "name": name}),
    "get": (by_get, lambda name: {"scale": 2.0, "name": name}),
    "dataclass": (by_name, lambda name: Options(2.0, name)),
    "frozen": (by_name, lambda name: Frozen(2.0, name)),
    "slots": (by_name, lambda name: Slots(2.0, name)),
    "named tuple": (by_name, lambda name: Pair(2.0, name)),
    "first of a named tuple": (first, lambda name: (2.0, name)),
    "SimpleNamespace": (by_name, lambda name: SimpleNamespace(scale=2.0, name=name)),
    "Namespace": (by_name, lambda name: argparse.Namespace(scale=2.0, name=name)),
    "list": (first, lambda name: [2.0, name]),
    "end of a list": (last, lambda name: [1.0, name, 2.0]),
    "nested": (nested, lambda name: {"a": [name, Options(2.0, name), name], "b": name}),
    "tensor inside": (by_key, lambda name: {"scale": torch.full((3,), 2.0), "name": name}),
    "unread": (unread, lambda name: name),
    "unread structure": (unread, lambda name: [{"a": name}] * (1 if name is None else 2)),
    "keys": (by_key, lambda name: {"scale": 2.0, str(name): 1}),
}


@pytest.mark.parametrize("function, make", UNREAD.values(), ids=list(UNREAD))
def test_what_is_not_read_makes_no_difference(function: Any, make: Callable[[Any], Any]) -> None:
    compiled = results(function, [((X, make(name)), {}) for name in NAMES])
    assert compiled.recompiles == []


def test_keywords_that_are_not_read_make_no_difference() -> None:
    """Neither does whether they are there, where they go into `**kwargs`."""
    calls: list[Any] = [((X, *(["a"] * i)), {"s": name, str(name): 1}) for i, name in enumerate(NAMES[:5])]
    assert results(unread_keywords, calls).recompiles == []
    assert len(results(unread_keywords, [*calls, ((X,), {"scale": 5.0})]).recompiles) == 1


@pytest.mark.parametrize("name", ["dict", "dataclass", "named tuple", "list", "nested", "get", "module", "slots"])
def test_what_is_read_is_compared(name: str) -> None:
    """A text in the place of a number is another fact, and so is what is no such object at all."""
    function, make = UNREAD[name]
    compiled = sa.aot_compile(function, fw_compiler="eager")
    compiled(X, make("a"))
    with pytest.raises(Exception) as ours:  # noqa: PT011  # what eager mode raises
        compiled(X, "no such thing")
    with pytest.raises(type(ours.value)):
        function(X, "no such thing")


def test_values_that_are_read_are_seen_where_the_container_stays_the_same() -> None:
    settings, options, numbers = {"scale": 2.0, "name": "a"}, Options(), [1.0, 2.0, 3.0]
    for function, holder, change in (
        (by_key, settings, lambda n: settings.update(scale=n)),
        (by_name, options, lambda n: setattr(options, "scale", n)),
        (first, numbers, lambda n: numbers.__setitem__(0, n)),
    ):
        compiled = sa.aot_compile(function, fw_compiler="eager")
        for number in (1.0, 2.0, 5.0, 2.0):
            change(number)
            assert compiled(X, holder).equal(function(X, holder))


@pytest.mark.parametrize("make", [Computed, lambda scale, name: Other(scale=scale, name=name)])
def test_what_runs_code_when_it_is_read_is_read_as_a_whole(make: Callable[..., Any]) -> None:
    results(by_name if make is Computed else by_key, [((X, make(2.0, name)), {}) for name in NAMES[:5]])


def test_a_key_that_is_missing() -> None:
    """It fails as in eager mode, or gives what the class of the dict makes of it."""
    compiled = sa.aot_compile(by_key, fw_compiler="eager")
    compiled(X, {"scale": 2.0, "name": "a"})
    with pytest.raises(KeyError, match="scale"):
        compiled(X, {"name": "b"})
    assert compiled(X, Counter("a")).equal(X * 0)
    made = defaultdict(lambda: 3.0, a=1)
    assert compiled(X, made).equal(X * 3) and dict(made) == {"a": 1, "scale": 3.0}


ESCAPES: dict[str, Callable[..., Any]] = {
    "returned": lambda x, s: (x * s["scale"], s),
    "passed on": lambda x, s: by_key(x, s) + len(s),
    "iterated over": lambda x, s: x * s["scale"] + len([k for k in s if k == "name"]),
    "its values": lambda x, s: x * s["scale"] + sum(v == "t3" for v in s.values()),
    "compared": lambda x, s: x * s["scale"] + (s == {"scale": 2.0, "name": "t3"}),
    "unpacked": lambda x, s: x * (lambda scale, name: scale + (name == "t3"))(**s),
    "copied": lambda x, s: x * s["scale"] + (dict(s)["name"] == "t3"),
    "text": lambda x, s: x * s["scale"] + ("t3" in str(s)),
    "matched": lambda x, s: _matched(x, s),
    "locals": lambda x, s: x * locals()["s"]["scale"] + (locals()["s"]["name"] == "t3"),
    "closure": lambda x, s: (lambda: x * s["scale"] + (s["name"] == "t3"))(),
    "another name": lambda x, s: [x * t["scale"] + (t["name"] == "t3") for t in [s]][0],
    "asked": lambda x, s: x * s["scale"] + ("t3" in s.values()),
    "walrus": lambda x, s: x * (t := s)["scale"] + (t["name"] == "t3"),
    "with a key that is computed": lambda x, s: x * s["scale"] + (s["na" + "me"] == "t3"),
}


def _matched(x: Any, s: Any) -> Any:
    match s:
        case {"name": "t3", **rest}:
            return x * rest["scale"] + 1
        case {"scale": scale}:
            return x * scale


@pytest.mark.parametrize("function", ESCAPES.values(), ids=list(ESCAPES))
def test_what_escapes_is_read_as_a_whole(function: Callable[..., Any]) -> None:
    compiled = sa.aot_compile(function, fw_compiler="eager")
    for name in NAMES[:5]:
        given = {"scale": 2.0, "name": name}
        ours, theirs = compiled(X, given), function(X, given)
        assert isinstance(ours, tuple) is isinstance(theirs, tuple)
        torch.testing.assert_close(ours[0], theirs[0])


def writes_by_another_way(x: Any, s: Any, t: Any) -> Any:
    t["scale"] = t["scale"] + 1.0
    return x * s["scale"]


def appends_by_another_way(x: Any, s: Any, t: Any) -> Any:
    t.append(x)
    return x * s[-1]


def sets_by_another_way(x: Any, s: Any, t: Any) -> Any:
    def change(o: Any) -> None:
        o.scale = 5.0

    change(t)
    return x * s.scale


@pytest.mark.parametrize(
    "function, make",
    [
        (writes_by_another_way, lambda: {"scale": 2.0, "name": "a"}),
        (appends_by_another_way, lambda: [torch.ones(3), torch.ones(3), torch.ones(3)]),
        (sets_by_another_way, Options),
    ],
)
@pytest.mark.parametrize("first_alike", [False, True])
def test_what_changes_by_another_way(function: Callable[..., Any], make: Callable[[], Any], first_alike: bool) -> None:
    """What is one object is one to the function, or the call is refused by name."""
    compiled = sa.aot_compile(function, fw_compiler="eager")
    for alike in (first_alike, not first_alike, first_alike):
        one, other = make(), make()
        expected = function(X, one, one if alike else make())
        try:
            found = compiled(X, other, other if alike else make())
        except MutationError:
            continue
        assert found.equal(expected)


HELD = {"scale": 2.0, "name": "a"}


def changes_what_it_holds(x: Any, s: Any) -> Any:
    HELD["scale"] += 1.0
    return x * s["scale"]


def test_what_the_function_holds_and_changes() -> None:
    compiled = sa.aot_compile(changes_what_it_holds, fw_compiler="eager")
    assert compiled(X, {"scale": 2.0, "name": "a"}).equal(X * 2.0)
    for _ in range(2):
        with pytest.raises(MutationError, match="passed twice, and the function changes HELD"):
            compiled(X, HELD)
    assert compiled(X, {"scale": 3.0, "name": "a"}).equal(X * 3.0)


def test_what_is_unread_is_unread_where_objects_change() -> None:
    def append(x: Any, cache: Any, name: Any) -> Any:
        cache.append(x)
        return x * 2

    compiled = sa.aot_compile(append, fw_compiler="eager")
    for name in NAMES:
        cache: list[Any] = []
        compiled(X, cache, name)
        assert len(cache) == 1
    assert compiled.recompiles == []


def test_a_module_with_hooks_gives_them_all() -> None:
    """They get the arguments, too, and may read anything."""
    module, seen = Module(), []
    compiled = sa.aot_compile(module, fw_compiler="eager")
    compiled(X, {"scale": 2.0, "name": "a"})
    handle = module.register_forward_pre_hook(lambda _, args: (args[0] + (args[1]["name"] == "t3"), args[1]))
    for name in ("t2", "t3", "t2"):
        given = {"scale": 2.0, "name": name}
        seen.append(compiled(X, given).equal(module(X, given)))
    handle.remove()
    assert all(seen)
    assert compiled(X, {"scale": 2.0, "name": "t3"}).equal(X * 2)


def test_code_that_is_replaced_is_read_anew() -> None:
    def function(x: Any, s: Any) -> Any:
        return x * s["scale"]

    def other(x: Any, s: Any) -> Any:
        return x * s["other"]

    compiled = sa.aot_compile(function, fw_compiler="eager")
    given = {"scale": 2.0, "other": 3.0, "name": "a"}
    assert compiled(X, given).equal(X * 2)
    function.__code__ = other.__code__
    assert compiled(X, given).equal(X * 3)


def test_gradients_flow_through_parts() -> None:
    weight = torch.full((3,), 2.0, requires_grad=True)
    compiled = sa.aot_compile(lambda x, s: (x * s["w"]).sum(), fw_compiler="eager")
    for name in NAMES[:3]:
        compiled(X, {"w": weight, "name": name}).backward()
    assert weight.grad is not None and weight.grad.equal(3 * X)
    assert compiled.recompiles == []


def test_files_have_what_is_read(tmp_path: Path) -> None:
    """So a file fits calls that differ in what is not read, without the function, too."""
    compiled = sa.aot_compile(by_key, fw_compiler="eager")
    compiled(X, {"scale": 2.0, "name": "a"})
    compiled.save(tmp_path / "step.sa")
    for function in (by_key, None):
        loaded = sa.load(tmp_path / "step.sa", function, trust=True)
        assert loaded(X, {"scale": 2.0, "name": "b", "more": [1]}).equal(X * 2)
        assert loaded.recompiles == []


@pytest.mark.parametrize("name", ["dict", "list", "SimpleNamespace"])
def test_results_that_are_parts_of_arguments_are_these(name: str) -> None:
    inner = ["a", "b"]
    functions = {"dict": lambda x, s: s["name"], "list": lambda x, s: s[1], "SimpleNamespace": lambda x, s: s.name}
    given = UNREAD[name][1](inner)
    compiled = sa.aot_compile(functions[name], fw_compiler="eager")
    assert compiled(X, given) is inner and compiled(X, given) is inner


class Trainer:
    """An object whose method is compiled: it is an argument like others."""

    def __init__(self) -> None:
        self.scale, self.steps, self.name = 2.0, 0, ""

    @sa.aot_compile
    def step(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale

    @sa.aot_compile
    def counted(self, x: torch.Tensor) -> torch.Tensor:
        self.steps += 1
        return x * self.steps


def test_objects_of_methods() -> None:
    trainer = Trainer()
    for i in range(4):
        trainer.name = f"t{i}"
        assert trainer.step(X).equal(X * 2) and trainer.counted(X).equal(X * (i + 1))
        assert trainer.steps == i + 1
    assert Trainer.step.recompiles == []


def test_an_argument_of_a_wrapped_function_is_read() -> None:
    @functools.wraps(by_key)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return by_key(*args, **kwargs)

    assert UsedArguments.of(functools.partial(by_key, X)) is None
    results(wrapped, [((X, {"scale": 2.0, "name": name}), {}) for name in NAMES[:4]])


def test_long_tables_cost_no_more_than_what_is_read() -> None:
    """A call flattens the parts that are read, and nothing else."""
    d = {f"k{i}": i for i in range(1000)}
    for function, given in (
        (lambda x, s: x * s["k3"] + s["k7"], d),
        (lambda x, s: x * s[3] + s[-7], list(range(1000))),
        (lambda x, s: x * s.k3, SimpleNamespace(**d)),
        (lambda x, s: x * s[3].scale, [Options(float(i)) for i in range(1000)]),
    ):
        used = UsedArguments.of(function)
        assert used is not None
        (_, part), _ = used.parts_of(((X, given), {}))
        assert len(vars(part) if isinstance(part, SimpleNamespace) else part) <= 11


def test_parts_keep_what_is_read_as_a_whole() -> None:
    everything: Any = {"a": 1}
    assert Parts({Step("item", "a"): None}).of(everything) is everything
    assert Parts({}).of(X) is X
    assert Parts({Step("item", "b"): None}).of(everything) is everything
    assert Parts({Step("attribute", "value"): None}).of(Mode.FAST) is Mode.FAST
    assert Parts({Step("attribute", "weight"): None}).of(torch.nn.Linear(1, 1)).in_features == 1
    assert Parts({Step("item", 3): None}).of([1, 2, 3]) == [1, 2, 3]
    assert Parts({Step("item", -1): None, Step("item", 0): None}).of((1, 2, 3, 4)) == (1, 4)


def test_without_bytecode_all_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(used_arguments, "uses_of", lambda code: dict.fromkeys(code.co_varnames))
    used = UsedArguments.of(by_key)
    assert used is not None and not used.takes_parts
