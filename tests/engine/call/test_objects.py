"""Objects, containers and the state of modules: read like arguments, and afterwards what eager makes of them."""

from __future__ import annotations

import argparse
import array
import collections
import copy
import functools
import gc
import types
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import optree
import pytest
import torch
from torch import nn

from subclass_aot import Int8Weight, TwoTensor, aot_compile, load
from subclass_aot.errors import MutationError, PlanError, TraceError


class Cache:
    """As many models have one: it grows."""

    def __init__(self) -> None:
        self.keys: list[torch.Tensor] = []
        self.seen = 0
        self.last: Any = None

    def update(self, k: torch.Tensor) -> torch.Tensor:
        self.keys.append(k)
        self.seen += k.shape[0]
        self.last = k * 2
        return torch.cat(self.keys)


class Slotted:
    __slots__ = ("value", "other")

    def __init__(self, value: Any) -> None:
        self.value = value


@dataclass
class Batch:
    x: torch.Tensor
    scale: float = 2.0
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Frozen:
    x: Any


class Point(NamedTuple):
    x: Any
    y: Any


class SymintNodes(list):  # type: ignore[type-arg]
    pass


class Named(dict):  # type: ignore[type-arg]
    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, value)
        self.changes = getattr(self, "changes", 0) + 1


class Node:
    def __init__(self, x: Any) -> None:
        self.x = x
        self.children: list[Node] = []
        self.parent: Any = None

    def add(self, child: Node) -> None:
        self.children.append(child)
        child.parent = weakref.ref(self)


def shown(value: Any, memo: dict[int, int] | None = None) -> Any:
    """A value as something that can be compared: classes, contents, which objects are the same."""
    memo = {} if memo is None else memo
    if isinstance(value, torch.Tensor):
        extra = {k: shown(v, memo) for k, v in vars(value).items() if k not in ("a", "b")}
        inner = [shown(value.a), shown(value.b)] if isinstance(value, TwoTensor) else value.detach().tolist()
        return type(value).__name__, inner, value.requires_grad, value.is_leaf, extra
    if isinstance(value, weakref.ref):
        return "ref", shown(value(), memo)
    if id(value) in memo and not isinstance(value, str | int | float | tuple | type(None)):
        return "again", memo[id(value)]
    memo[id(value)] = len(memo)
    name = type(value).__name__
    parts: list[Any] = []
    if isinstance(value, dict):
        parts += [(k, shown(v, memo)) for k, v in value.items()]
    elif isinstance(value, list | tuple | collections.deque):
        parts += [shown(v, memo) for v in value]
    elif isinstance(value, set):
        parts += sorted(value)
    if hasattr(value, "__dict__") and not isinstance(value, type | types.FunctionType):
        parts += [(k, shown(v, memo)) for k, v in vars(value).items()]
    if isinstance(value, Slotted):
        parts += [(k, shown(getattr(value, k), memo)) for k in Slotted.__slots__ if hasattr(value, k)]
    return (name, parts) if parts else (name, repr(value) if not hasattr(value, "__dict__") else "")


def agree(program: Callable[..., Any], make: Callable[[], tuple[Any, ...]], calls: int = 3, recompiles: int = 0) -> Any:
    """Calls both on arguments of their own, several times; results and arguments must be equal afterwards."""
    compiled = aot_compile(program)
    for _ in range(calls):
        eager_args, args = make(), make()
        expected, got = program(*eager_args), compiled(*args)
        assert shown((got, args)) == shown((expected, eager_args))
    assert len(compiled.recompiles) == recompiles, compiled.recompiles
    return compiled


def ones(*size: int) -> torch.Tensor:
    return torch.ones(*size)


def two(*size: int) -> TwoTensor:
    return TwoTensor(torch.ones(*size), torch.full(size, 2.0))


def appends(x: Any, cache: Any) -> Any:
    cache.append(x * 2)
    return x + len(cache)


def assigns(x: Any, batch: Any) -> Any:
    batch["labels"] = x * 2
    batch["ids"] = batch.pop("x") + 1
    return batch


def orders(x: Any, batch: Any) -> None:
    first = batch.pop("a")
    batch["a"] = first


def pops(x: Any, xs: Any) -> Any:
    last = xs.pop()
    xs.insert(0, x)
    xs.reverse()
    return last


def updates(x: Any, cache: Any) -> Any:
    return cache.update(x), cache


def slots(x: Any, s: Any) -> Any:
    s.other, s.value = s.value * x, x
    return s


def new_objects(x: Any, y: Any) -> Any:
    cache = Cache()
    cache.update(x)
    both = [cache, {"again": cache}]
    return both, Batch(x + y), Frozen((x * 2,)), Slotted(x), types.SimpleNamespace(a=x - 1), Named(a=x * 3)


def holds_itself(x: Any, y: Any) -> Any:
    found: list[Any] = [x * 2]
    found.append(found)
    return found


def tree(x: Any, node: Any) -> Any:
    node.add(Node(x * 2))
    return node.children[-1].parent().x + x


def given_objects(x: Any, cache: Any) -> Any:
    return {"cache": cache, "keys": cache.keys, "more": [cache.keys]}


PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]] = {
    "append": (appends, lambda: (ones(2), [ones(1)])),
    "append to an empty list": (appends, lambda: (ones(2), [])),
    "append a wrapper": (appends, lambda: (two(2), [1, "a"])),
    "append to a deque": (appends, lambda: (ones(2), collections.deque([ones(1), 3], maxlen=2))),
    "append to a list of a class": (appends, lambda: (ones(2), SymintNodes([ones(1)]))),
    "dict": (assigns, lambda: (ones(2), {"x": two(3), "n": 1})),
    "OrderedDict": (assigns, lambda: (ones(2), collections.OrderedDict(x=two(3), n=1))),
    "defaultdict": (assigns, lambda: (ones(2), collections.defaultdict(list, x=two(3), n=1))),
    "UserDict": (assigns, lambda: (ones(2), collections.UserDict(x=two(3), n=1))),
    "dict of a class": (assigns, lambda: (ones(2), Named(x=two(3), n=1))),
    "order of a dict": (orders, lambda: (ones(2), {"a": ones(1), "b": ones(2)})),
    "pop": (pops, lambda: (ones(2), [ones(1), two(2), "a"])),
    "nested containers": (lambda x, t: t[0]["xs"][0].append(x), lambda: (ones(2), ({"xs": ([ones(1)],)}, 3))),
    "object": (updates, lambda: (ones(2), Cache())),
    "object with a wrapper": (updates, lambda: (two(2), Cache())),
    "objects in a list": (lambda x, c: updates(x, c[1]), lambda: (ones(2), [1, Cache()])),
    "slots": (slots, lambda: (ones(2), Slotted(two(2)))),
    "namespace": (lambda x, n: setattr(n, "y", n.x * x), lambda: (ones(2), types.SimpleNamespace(x=two(2)))),
    "empty namespace": (lambda x, n: setattr(n, "y", x * 2), lambda: (ones(2), types.SimpleNamespace())),
    "arguments of a command line": (lambda x, n: x * n.scale, lambda: (ones(2), argparse.Namespace(scale=3.0))),
    "dataclass": (lambda x, b: b.extra.update(y=b.x * b.scale), lambda: (ones(2), Batch(two(2)))),
    "frozen dataclass": (lambda x, f: f.x[0] * x, lambda: (ones(2), Frozen([two(2)]))),
    "named tuple": (lambda x, p: Point(p.y * x, p), lambda: (ones(2), Point(1, two(2)))),
    "what torch returns": (lambda x, y: torch.return_types.max((x.max(0)[0], y)), lambda: (ones(2), ones(3))),
    "new objects": (new_objects, lambda: (ones(2), two(2))),
    "a list in itself": (holds_itself, lambda: (ones(2), two(2))),
    "weak references": (tree, lambda: (ones(2), Node(ones(2)))),
    "objects of the call": (given_objects, lambda: (ones(2), Cache())),
    "deleted": (lambda x, n: delattr(n, "x"), lambda: (ones(2), types.SimpleNamespace(x=two(2), y=3))),
    "set": (lambda x, s: s.add(3), lambda: (ones(2), {1, 2})),
    "attribute of a tensor": (lambda x, y: setattr(x, "scale", y * 2), lambda: (ones(2), two(2))),
    "attribute of a wrapper": (lambda x, y: setattr(y, "note", (x * 2, "a")), lambda: (ones(2), two(2))),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_in_eager_mode(name: str) -> None:
    agree(*PROGRAMS[name])


def test_a_cache_over_many_steps() -> None:
    """One cache, in and out: gradients go through what was put there by earlier calls."""

    def step(x: Any, cache: Cache) -> Any:
        return cache.update(x).sum() * x

    compiled = aot_compile(step)
    w, v = ones(2).requires_grad_(), ones(2).requires_grad_()
    one, other = Cache(), Cache()
    for _ in range(4):
        expected, got = step(w * 2, one), compiled(v * 2, other)
        torch.testing.assert_close(got, expected)
        assert shown(one) == shown(other)
    expected.sum().backward()
    got.sum().backward()
    assert w.grad is not None and v.grad is not None and torch.equal(w.grad, v.grad)
    compiled(v * 2, Cache())
    before = len(compiled.recompiles)
    for _ in range(2):
        compiled(v * 2, Cache())
    assert len(compiled.recompiles) == before


def test_what_torch_knows_as_a_pytree() -> None:
    class Output(collections.OrderedDict):  # type: ignore[type-arg]
        pass

    class Box:
        def __init__(self, inside: Any) -> None:
            self.inside = inside

    register = torch.utils._pytree.register_pytree_node
    register(Output, lambda d: (list(d.values()), list(d)), lambda v, k: Output(zip(k, v, strict=True)))
    register(Box, lambda b: ([b.inside], None), lambda parts, _: Box(*parts))
    agree(lambda x, o: Output(y=o["x"] * x, box=Box(x)), lambda: (ones(2), Output(x=two(2))))
    agree(lambda x, b: b.inside.append(x), lambda: (ones(2), Box([two(2)])))
    agree(lambda x, b: setattr(b, "inside", b.inside * x), lambda: (ones(2), Box(two(2))))


def test_a_new_object_of_the_same_shape_is_no_recompile_and_another_is() -> None:
    def scaled(x: Any, batch: Any) -> Any:
        whole = batch
        return x * whole.x * whole.scale

    compiled = aot_compile(scaled)
    for scale, size, recompiles in ((2.0, 2, 0), (2.0, 2, 0), (3.0, 2, 1), (2.0, 2, 1)):
        batch = Batch(torch.full((size,), 5.0), scale)
        assert torch.equal(compiled(ones(2), batch), 5 * scale * ones(2))
        assert len(compiled.recompiles) == recompiles
    assert "args[1].scale: 2.0 before, 3.0 now" in compiled.recompiles[0]
    compiled(ones(2), Batch(ones(2), extra={"a": 1}))
    assert "args[1].extra" in compiled.recompiles[1]


def test_objects_are_told_apart() -> None:
    """Two places that hold one object, and two that hold two."""

    def program(x: Any, a: Any, b: Any) -> Any:
        a.last = x * 2
        return b.last

    compiled = aot_compile(program)
    one, other = Cache(), Cache()
    one.last = other.last = ones(2)
    assert torch.equal(compiled(ones(2), one, other), ones(2))
    assert torch.equal(compiled(3 * ones(2), one, one), 6 * ones(2))
    fresh = Cache()
    fresh.last = ones(2)
    assert torch.equal(compiled(ones(2), one, fresh), ones(2)) and len(compiled.recompiles) == 2


def test_an_argument_that_the_function_holds_too() -> None:
    """A compilation for two objects does not serve one, nor the other way round."""
    held, another = Cache(), Cache()

    def program(x: Any, a: Any, b: Any) -> Any:
        a.last = x * 2
        return held.last + (1 if b is held else 0)

    compiled = aot_compile(program)
    for cache in (held, another):
        cache.last = ones(2)
    assert compiled(ones(2), another, another).tolist() == [1, 1]
    assert compiled(ones(2), held, held).tolist() == [3, 3]
    assert compiled(ones(2), another, another).tolist() == [2, 2]
    assert compiled(ones(2), another, held).tolist() == [3, 3]
    assert compiled(4 * ones(2), held, another).tolist() == [8, 8]
    count = len(compiled.recompiles)
    for a, b, expected in [(another, another, 8.0), (another, held, 9.0), (held, held, 3.0), (held, another, 2.0)]:
        assert compiled(ones(2), a, b).tolist() == [expected] * 2
    assert len(compiled.recompiles) == count


def test_long_tables_of_python_values() -> None:
    table = {"words": {f"word {i}": i for i in range(100)}, "more": list(range(50))}
    compiled = aot_compile(lambda x, table: x * table["words"]["word 7"] * table["more"][3])
    for _ in range(2):
        assert compiled(ones(1), copy.deepcopy(table)) == 21
    table["words"]["word 7"] = 7.0  # type: ignore[assignment]
    table["more"][3] = 4
    assert compiled(ones(1), table) == 28 and len(compiled.recompiles) == 1
    holder = types.SimpleNamespace(**table)
    compiled = aot_compile(lambda x, holder: x * sum(holder.more[3:4]) + len(holder.words))
    changes = (lambda: None, lambda: holder.more.append(1), lambda: holder.words.pop("word 9"))
    for recompiles, change in enumerate(changes):
        change()
        assert compiled(ones(1), holder) == 4 + len(holder.words) and len(compiled.recompiles) == recompiles
    assert "not table(" in compiled.source


def test_objects_of_numbers_are_told_apart() -> None:
    def program(x: Any, a: Any, b: Any) -> Any:
        a.n += 1
        return x * b.n

    compiled = aot_compile(program)
    first, second, same = (types.SimpleNamespace(n=1) for _ in range(3))
    assert compiled(ones(1), first, second) == 1
    assert compiled(ones(1), same, same) == 2 and len(compiled.recompiles) == 1


def test_objects_without_tensors_are_told_apart() -> None:
    def program(x: Any, a: Any, b: Any) -> Any:
        a.keys.append(x)
        return x * len(b.keys)

    compiled = aot_compile(program)
    for _ in range(2):
        cache = Cache()
        assert compiled(ones(2), Cache(), Cache()).tolist() == [0, 0]
        assert compiled(ones(2), cache, cache).tolist() == [1, 1]
    assert len(compiled.recompiles) == 1


@pytest.mark.parametrize("first", [True, False])
def test_a_list_that_an_argument_holds_too(first: bool) -> None:
    """It is refused also if it was another list when the function was traced."""

    def program(x: Any, xs: list[Any], holder: Any) -> Any:
        xs.append(x)
        return x * len(holder.xs)

    compiled = aot_compile(program)
    if not first:
        assert compiled(ones(2), [], types.SimpleNamespace(xs=[])).tolist() == [0, 0]
    xs: list[Any] = []
    with pytest.raises(MutationError, match=r"args\[1\]: this list or dict is passed twice"):
        compiled(ones(2), xs, types.SimpleNamespace(xs=xs))
    assert xs == []


class Loud(list):  # type: ignore[type-arg]
    """Its methods do more than those of a list."""

    def __init__(self, *values: Any) -> None:
        super().__init__(values)
        self.count = 0

    def append(self, value: Any) -> None:
        self.count += 1
        super().append(value * 10)

    def extend(self, values: Any) -> None:
        for value in values:
            self.append(value)

    def clear(self) -> None:
        self.count = -1
        super().clear()

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(key) * 100

    def __len__(self) -> int:
        return super().__len__() + 5


@pytest.mark.parametrize("change", [lambda x, xs: xs.append(x), lambda x, xs: xs.insert(0, x), lambda x, xs: xs[0]])
def test_methods_of_a_class_are_not_called_once_more(change: Callable[..., Any]) -> None:
    agree(change, lambda: (ones(2), Loud(ones(1))))


class Ring(collections.deque):  # type: ignore[type-arg]
    pass


class Groups(collections.defaultdict):  # type: ignore[type-arg]
    pass


def test_new_containers_of_a_class_are_whole() -> None:
    compiled = aot_compile(lambda x: (Ring([x, x * 2], maxlen=2), Groups(list, a=x)))
    for i in range(3):
        ring, groups = compiled(ones(2) * i)
        groups["b"].append(1)
        assert ring.maxlen == 2 and ring[1].tolist() == [2 * i, 2 * i] and groups["b"] == [1]


def test_what_a_container_has_beside_its_contents() -> None:
    def program(x: Any, holder: Any) -> Any:
        holder.ring.append(x)
        holder.groups["a"].append(x)

    compiled = aot_compile(program)
    for size, factory in ((1, list), (2, list), (2, collections.deque)):
        holder = types.SimpleNamespace(
            ring=collections.deque([ones(1)], maxlen=size), groups=collections.defaultdict(factory)
        )
        compiled(ones(2), holder)
        assert len(holder.ring) == size and type(holder.groups["a"]) is factory


def test_a_new_object_without_tensors_is_another_at_each_call() -> None:
    def program(x: Any, holder: Any) -> Any:
        holder.cache = Cache()
        return x * 2, Cache(), Kinds.one

    compiled = aot_compile(program)
    found: list[Any] = []
    for _ in range(3):
        holder = types.SimpleNamespace()
        _, result, kind = compiled(ones(2), holder)
        assert kind is Kinds.one
        for cache in (holder.cache, result):
            assert cache.seen == 0 and cache.keys == []
            cache.keys.append(1)
            cache.seen = 7
        found += [holder.cache, result]
    assert len(set(map(id, found))) == 6


class Kinds:
    one = types.SimpleNamespace(name="one")


def test_types_of_keys_and_members() -> None:
    compiled = aot_compile(lambda x, holder: ([type(k) for k in holder.table], [type(k) for k in holder.members]))
    for key in (1, True, 1.0, 1):
        holder = types.SimpleNamespace(table={key: ones(1)}, members={key})
        assert compiled(ones(2), holder) == ([type(key)], [type(key)])


def test_an_attribute_that_hides_one_of_the_class() -> None:
    class Options:
        scale = 2.0

    options = Options()
    compiled = aot_compile(lambda x, o: x * o.scale)
    assert compiled(ones(2), options).tolist() == [2, 2]
    options.scale = 3.0
    assert compiled(ones(2), options).tolist() == [3, 3]


class Stateful(nn.Module):
    def __init__(self, program: Callable[..., Any]) -> None:
        super().__init__()
        self.weight = nn.Parameter(ones(2))
        self.register_buffer("average", torch.zeros(2))
        self.scale = 3.0
        self.name = "a"
        self.sizes = (2, "b")
        self.mask = ones(2)
        self.options = types.SimpleNamespace(on=False, table={"a": 1})
        self.history: list[Any] = []
        self.program = program

    def forward(self, x: Any) -> Any:
        return self.program(self, x)


def average(m: Any, x: Any) -> Any:
    m.average = 0.5 * m.average + x.detach()
    return x * m.average * m.weight


def last(m: Any, x: Any) -> Any:
    m.last = x * m.weight
    return m.last * 2


def remembers(m: Any, x: Any) -> Any:
    m.history = [*m.history[-1:], x.detach() * 2]
    return m.history[0] * x


def counts(m: Any, x: Any) -> Any:
    m.steps = getattr(m, "steps", 0) + 1
    return x * m.steps


def switches(m: Any, x: Any) -> Any:
    m.eval()
    return x * 2 if m.training else x * 3


@pytest.mark.parametrize("program", [average, last, remembers, counts, switches], ids=lambda p: p.__name__)
def test_what_a_module_assigns_is_repeated_at_each_call(program: Callable[..., Any]) -> None:
    model, other = Stateful(program), Stateful(program)
    compiled = aot_compile(other)
    for i in range(5):
        x = torch.full((2,), float(i + 1))
        expected, got = model(x), compiled(x)
        torch.testing.assert_close(got, expected)
        theirs = {k: v for k, v in vars(model).items() if k not in ("_parameters", "_modules")}
        ours = {k: v for k, v in vars(other).items() if k not in ("_parameters", "_modules")}
        assert shown(ours) == shown(theirs)
    assert len(compiled.recompiles) <= 2, compiled.recompiles  # a counter is known at zero and one, then a symbol


CHANGES: dict[str, Callable[[Any], Any]] = {
    "scale": lambda m: setattr(m, "scale", 5.0),
    "name": lambda m: setattr(m, "name", "b"),
    "sizes": lambda m: setattr(m, "sizes", (2, "c")),
    "options": lambda m: setattr(m.options, "on", True),
    "table": lambda m: m.options.table.update(a=2),
    "history": lambda m: m.history.append(7),
    "a new attribute": lambda m: setattr(m, "fresh", 11),
}


def reads(m: Any, x: Any) -> Any:
    number = m.scale + len(m.name) + ord(m.name) + len(m.history) + m.options.on + m.options.table["a"]
    return x * (number + getattr(m, "fresh", 0) + ord(m.sizes[1])) * m.mask


@pytest.mark.parametrize("change", CHANGES)
def test_the_state_of_a_module_is_part_of_the_signature(change: str) -> None:
    model = Stateful(reads)
    compiled = aot_compile(model)
    for _ in range(2):
        assert torch.equal(compiled(ones(2)), model(ones(2)))
    CHANGES[change](model)
    for _ in range(2):
        assert torch.equal(compiled(ones(2)), model(ones(2)))
    assert len(compiled.recompiles) == 1
    assert "self." in compiled.recompiles[0]


@pytest.mark.parametrize("dynamic", [None, False, True])
def test_counters(dynamic: bool | None) -> None:
    """Numbers that the function itself changes, in several places, of which a branch and a size depend."""

    def program(x: Any, cache: Any, owner: Any) -> Any:
        cache.seen += len(x)
        owner.steps, owner.table["n"] = owner.steps + 1, owner.table["n"] * 2
        return x.new_ones(owner.steps) * cache.seen if owner.steps < 9 else x * owner.table["n"]

    compiled = aot_compile(program, dynamic=dynamic)
    pairs = [(Cache(), types.SimpleNamespace(steps=3, table={"n": 1})) for _ in range(2)]
    for i in range(10):
        x = ones(2 + i % 2)
        expected, got = program(x, *pairs[0]), compiled(x, *pairs[1])
        assert torch.equal(got, expected) and shown(pairs[0]) == shown(pairs[1])
        assert type(pairs[1][0].seen) is type(pairs[1][1].table["n"]) is int
    assert dynamic is False or len(compiled.recompiles) <= 5, compiled.recompiles


def test_a_tensor_of_a_module_that_is_no_buffer() -> None:
    model = Stateful(reads)
    compiled = aot_compile(model)
    for value in (1.0, 2.0, 3.0):
        model.mask = torch.full((2,), value)
        assert torch.equal(compiled(ones(2)), model(ones(2)))
    assert not compiled.recompiles
    model.mask.zero_()
    assert not compiled(ones(2)).any()


def test_dropout_and_normalization() -> None:
    model = nn.Sequential(nn.Dropout(0.0), nn.BatchNorm1d(3))
    compiled = aot_compile(model)
    compiled(torch.rand(4, 3))
    model[0].p, model[1].momentum = 1.0, 1.0
    x = torch.rand(4, 3)
    assert torch.equal(compiled(x), model[1].bias.expand(4, 3)) and len(compiled.recompiles) == 1
    assert torch.equal(model[1].running_mean, torch.zeros(3))


def test_bound_methods() -> None:
    model = nn.Linear(2, 3)
    compiled = aot_compile(model.forward)
    compiled(ones(1, 2)).sum().backward()
    assert model.weight.grad is not None and torch.equal(model.weight.grad, ones(3, 2))

    class Trainer:
        def __init__(self) -> None:
            self.model, self.losses, self.scale = nn.Linear(2, 1), [], 2.0

        def loss(self, x: Any) -> Any:
            self.latest = self.model(x).sum() * self.scale
            return self.latest

    trainer = Trainer()
    step = aot_compile(trainer.loss)
    step(ones(1, 2)).backward()
    assert torch.equal(trainer.model.weight.grad, 2 * ones(1, 2))
    trainer.scale = 5.0
    assert torch.equal(step(ones(1, 2)), trainer.loss(ones(1, 2))) and trainer.latest.requires_grad


def test_what_a_function_closes_over() -> None:
    model, weight, table, seen = nn.Linear(2, 2), ones(2).requires_grad_(), {"a": two(2)}, []
    scale = 2.0

    def inner(x: Any) -> Any:
        seen.append(x.detach())
        return model(x) * weight

    def program(x: Any) -> Any:
        table["b"] = table["a"] * scale
        return inner(x).sum()

    compiled = aot_compile(program)
    for i in range(3):
        compiled(ones(1, 2) * i).backward()
        assert len(seen) == i + 1 and torch.equal(seen[i], ones(1, 2) * i)
    assert weight.grad is not None and model.weight.grad is not None
    assert torch.equal(table["b"].a, 2 * ones(2))
    assert len(compiled.recompiles) <= 1  # `b` was not there at first
    scale = 3.0
    compiled(ones(1, 2))
    assert torch.equal(table["b"].a, 3 * ones(2))


def test_partial_functions_and_callable_objects() -> None:
    weight = ones(2).requires_grad_()
    compiled = aot_compile(functools.partial(torch.mul, weight))
    compiled(ones(2)).sum().backward()
    assert weight.grad is not None

    class Layer:
        def __init__(self) -> None:
            self.weight = ones(2).requires_grad_()

        def __call__(self, x: Any) -> Any:
            return x * self.weight

    layer = Layer()
    aot_compile(layer)(ones(2)).sum().backward()
    assert layer.weight.grad is not None


GLOBAL_MODEL = nn.Linear(2, 2)
GLOBAL_SCALE = 2.0


def uses_globals(x: Any) -> Any:
    return GLOBAL_MODEL(x) * GLOBAL_SCALE


def test_globals(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = aot_compile(uses_globals)
    compiled(ones(1, 2)).sum().backward()
    assert GLOBAL_MODEL.weight.grad is not None
    monkeypatch.setitem(uses_globals.__globals__, "GLOBAL_SCALE", 3.0)
    assert torch.equal(compiled(ones(1, 2)), uses_globals(ones(1, 2)))


@pytest.mark.parametrize("held", [True, False])
def test_what_a_function_among_the_arguments_closes_over(held: bool) -> None:
    scale, kept = [2.0], []

    def given(x: Any) -> Any:
        kept.append(x * 2)
        return x * scale[0] * len(kept)

    def program(x: Any, holder: Any) -> Any:
        return (holder.fn if held else holder)(x)

    compiled = aot_compile(program)
    holder = types.SimpleNamespace(fn=given) if held else given
    for i in range(3):
        scale[0] = float(i)
        assert compiled(ones(2), holder).tolist() == [i * (i + 1)] * 2
        assert kept[i].tolist() == [2, 2]


def test_objects_in_a_set() -> None:
    class Member:
        scale = 1.0

    one = Member()
    one.scale = 2.0
    compiled = aot_compile(lambda x, members: x * sum(m.scale for m in members))
    assert compiled(ones(2), {one}).tolist() == [2, 2]
    one.scale = 3.0
    assert compiled(ones(2), {one}).tolist() == [3, 3]


@pytest.mark.parametrize("make", [lambda: bytearray(b"ab"), lambda: array.array("i", [1])])
def test_arrays_that_are_no_tensors(make: Callable[[], Any]) -> None:
    """They are read, and not written."""
    holder = types.SimpleNamespace(values=make())
    compiled = aot_compile(lambda x, h: x * h.values[0])
    for value in (3, 4):
        holder.values[0] = value
        assert compiled(ones(2), holder).tolist() == [value, value]
    with pytest.raises(MutationError, match=r"args\[1\].values: the function writes into an object of class"):
        aot_compile(lambda x, h: h.values.append(1))(ones(2), holder)


def test_a_dict_whose_attributes_are_its_items() -> None:
    class Items(dict):  # type: ignore[type-arg]
        def __missing__(self, key: str) -> Any:
            self[key] = torch.zeros(2)
            return self[key]

        def __getattr__(self, key: str) -> Any:
            return self[key]

    def program(x: Any, items: Any) -> Any:
        items["sum"] = items.sum + x
        return items.sum * 2

    compiled, items = aot_compile(program), Items()
    for i in range(1, 4):
        assert compiled(ones(2), items).tolist() == [2 * i, 2 * i]
    assert list(items) == ["sum"]


def test_a_tensor_that_is_held_and_whose_history_is_used_up() -> None:
    """As an object holds the last loss. Nothing is computed from it, so nothing goes through its history."""
    weight = ones(2).requires_grad_()
    holder = types.SimpleNamespace(last=(weight * weight).sum())
    holder.last.backward()
    aot_compile(lambda w, h: (w * 2).sum())(weight, holder).backward()
    assert weight.grad is not None and weight.grad.tolist() == [4, 4]


ACTIVATION: Any = torch.sin
FLAG: Any = None
LAST: Any = None


def test_what_globals_name() -> None:
    """None, functions of torch, classes: whatever is another one later."""
    global ACTIVATION, FLAG

    def program(x: Any) -> Any:
        made = ACTIVATION() if isinstance(ACTIVATION, type) else ACTIVATION
        return made(x if FLAG is None else x * FLAG)

    compiled = aot_compile(program)
    for activation in (torch.sin, torch.cos, nn.functional.relu, nn.functional.silu, nn.Tanh, nn.Sigmoid):
        for flag in (None, 2.0):
            ACTIVATION, FLAG = activation, flag
            torch.testing.assert_close(compiled(ones(2)), program(ones(2)))


@pytest.mark.parametrize("value", [lambda x: x * 2, lambda x: tuple(x.shape)])
def test_globals_that_are_assigned_from_none(value: Callable[..., Any]) -> None:
    global LAST
    LAST = None

    def program(x: Any) -> None:
        global LAST
        LAST = value(x)

    compiled = aot_compile(program)
    for size in (2, 3, 2):
        compiled(ones(size))
        assert shown(LAST) == shown(value(ones(size)))


def test_attributes_of_functions() -> None:
    def program(x: Any) -> Any:
        program.calls += 1  # type: ignore[attr-defined]
        return x * program.scale  # type: ignore[attr-defined]

    compiled = aot_compile(program)
    program.calls, program.scale = 0, 2.0  # type: ignore[attr-defined]
    assert compiled(ones(2)).tolist() == [2, 2]
    program.scale = 3.0  # type: ignore[attr-defined]
    assert compiled(ones(2)).tolist() == [3, 3]
    assert program.calls == 2  # type: ignore[attr-defined]


class Counted:
    """A decorator with state of its own."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        functools.update_wrapper(self, fn)
        self.fn, self.scale, self.calls = fn, 2.0, 0

    def __call__(self, x: Any) -> Any:
        self.calls += 1
        return self.fn(x) * self.scale


@pytest.mark.parametrize("itself", [True, False])
def test_decorators_with_state(itself: bool) -> None:
    counted = Counted(lambda x: x + 1)
    compiled = aot_compile(counted if itself else lambda x: counted(x))
    assert compiled(ones(2)).tolist() == [4, 4]
    counted.scale = 3.0
    assert compiled(ones(2)).tolist() == [6, 6] and counted.calls == 2


def test_attributes_of_parameters() -> None:
    class Quantized(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2, 2))
            self.weight.state = types.SimpleNamespace(scale=torch.full((2,), 3.0), bits=4)

        def forward(self, x: Any) -> Any:
            return x @ self.weight * self.weight.state.scale * self.weight.state.bits

    model = Quantized()
    compiled = aot_compile(model)
    assert torch.equal(compiled(ones(2, 2)), model(ones(2, 2)))
    model.weight.state.scale = torch.zeros(2)
    assert not compiled(ones(2, 2)).any() and not compiled.recompiles
    model.weight.state.bits, model.weight.state.scale = 8, ones(2)
    assert torch.equal(compiled(ones(2, 2)), model(ones(2, 2))) and len(compiled.recompiles) == 1


def test_hooks_that_keep_features() -> None:
    model, features = nn.Sequential(nn.Linear(2, 3), nn.ReLU()), {}

    def keep(module: Any, args: Any, result: Any) -> None:
        features["first"] = result

    model[0].register_forward_hook(keep)
    compiled = aot_compile(model)
    for i in range(3):
        x = torch.full((1, 2), float(i))
        compiled(x)
        torch.testing.assert_close(features["first"], torch.nn.functional.linear(x, model[0].weight, model[0].bias))


REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "a new parameter": (
        lambda: aot_compile(Stateful(lambda m, x: setattr(m, "weight", nn.Parameter(x))), values="refuse")(ones(2)),
        MutationError, "self.weight: the function assigns another parameter",
    ),
    "a new module": (
        lambda: aot_compile(Stateful(lambda m, x: setattr(m, "layer", nn.Linear(2, 2))), values="refuse")(ones(2)),
        MutationError, "self.layer: the function makes a module",
    ),
    "a list that is passed twice": (
        lambda: aot_compile(lambda a, b: (a.append(1), b))(*[[]] * 2), MutationError, r"args\[1\]: this list or dict",
    ),
    "a lazy module": (
        lambda: aot_compile(nn.LazyLinear(3), values="refuse")(ones(1, 2)),
        MutationError, "self: a parameter of a lazy module",
    ),
    "TorchScript": (
        lambda: aot_compile(torch.jit.trace(nn.Linear(2, 2), ones(1, 2)))(ones(1, 2)), PlanError, "by TorchScript",
    ),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*(torch.jit|Lazy).*")
@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(name: str) -> None:
    call, kind, message = REFUSED[name]
    with pytest.raises(kind, match=message) as caught:
        call()
    assert "Instead:" in str(caught.value)


@pytest.mark.parametrize("is_refused", [False, True])
def test_objects_after_an_error(is_refused: bool) -> None:
    """What a function does before it raises is done, as in eager mode; what is refused leaves everything as it was."""

    def program(x: Any, cache: Any, xs: Any) -> Any:
        cache.update(x)
        xs.append(x)
        model.scale = 4.0
        raise TraceError if is_refused else ZeroDivisionError

    found = []
    for compiler in (aot_compile, lambda fn: fn):
        model = Stateful(reads)
        cache, xs = Cache(), [ones(1)]
        cache.update(ones(1))
        before = shown((cache, xs)), dict(vars(model))
        with pytest.raises(TraceError if is_refused else ZeroDivisionError):
            compiler(program)(ones(2), cache, xs)
        found.append((shown((cache, xs)), model.scale))
        if is_refused:
            assert (shown((cache, xs)), dict(vars(model))) == before
            return
    assert found[0] == found[1]


def test_quantized_weights_in_objects() -> None:
    weight = Int8Weight.from_float(torch.randn(4, 3))
    holder = types.SimpleNamespace(weights=[weight], out=None)

    def program(x: Any, holder: Any) -> None:
        holder.out = torch.nn.functional.linear(x, holder.weights[0])

    compiled = aot_compile(program)
    for _ in range(2):
        x = torch.randn(2, 3)
        compiled(x, holder)
        torch.testing.assert_close(holder.out, torch.nn.functional.linear(x, weight))


def test_copies_of_a_module_with_state() -> None:
    model = Stateful(average)
    model.forward = aot_compile(functools.partial(Stateful.forward, model))  # type: ignore[method-assign]
    model(ones(2))
    assert model.average.sum() == 2
    twin = copy.deepcopy(model.average)
    assert torch.equal(twin, ones(2))


def test_tensors_that_are_not_read_cost_nothing_wrong() -> None:
    """What an object holds beside what the program reads may overlap, be views, or require grad."""
    base = torch.ones(4, requires_grad=True)
    holder = types.SimpleNamespace(base=base, part=base[:2], whole=base * 1)
    compiled = aot_compile(lambda x, h: x * h.part)
    out = compiled(ones(2), holder)
    out.sum().backward()
    assert base.grad is not None and base.grad.tolist() == [1, 1, 0, 0]
    assert optree.tree_leaves([out])


def trained(
    optimizer: Callable[..., Any],
    detached: bool = True,
    steps: int = 5,
    compiled: bool = False,
    dynamic: bool | None = None,
) -> Any:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    opt = optimizer(model.parameters())

    def step(x: Any, y: Any) -> Any:
        opt.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        opt.step()
        return loss.detach() if detached else loss

    run = aot_compile(step, dynamic=dynamic) if compiled else step
    losses = [run(torch.randn(3, 4), torch.randn(3, 2)).item() for _ in range(steps)]
    state = [[v for v in opt.state[p].values() if isinstance(v, torch.Tensor)] for p in model.parameters()]
    return losses, [p.detach() for p in model.parameters()], [p.grad for p in model.parameters()], state, run


@pytest.mark.parametrize("detached", [True, False])
@pytest.mark.parametrize(
    ("optimizer", "most"),
    [
        (lambda p: torch.optim.SGD(p, lr=0.1), 1),
        (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01, nesterov=True), 1),
        (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, foreach=True), 1),
        (lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.9), 1),
        (lambda p: torch.optim.Adadelta(p), 1),
        (lambda p: torch.optim.Rprop(p), 1),
        (lambda p: torch.optim.AdamW(p, foreach=True), 2),
        (lambda p: torch.optim.AdamW(p, fused=True), 1),
        (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, fused=True), 1),
    ],
)
def test_a_whole_training_step(optimizer: Callable[..., Any], most: int, detached: bool) -> None:
    """Forward, `.backward()` and the optimizer that the function closes over, in one graph."""
    expected, got = trained(optimizer, detached), trained(optimizer, detached, compiled=True)
    torch.testing.assert_close(got[:4], expected[:4])
    assert len(got[4].recompiles) <= most  # gradients and momentum are not there at first; then steps are a symbol


@pytest.mark.parametrize(
    "optimizer", [torch.optim.AdamW, torch.optim.Adam, torch.optim.NAdam, torch.optim.Adagrad, torch.optim.Adamax]
)
def test_optimizers_that_count_steps_in_a_tensor(optimizer: Any) -> None:
    """The count is a number that depends on data."""
    expected = trained(lambda p: optimizer(p, lr=0.01))
    got = trained(lambda p: optimizer(p, lr=0.01), compiled=True, dynamic=True)
    torch.testing.assert_close(got[:4], expected[:4], rtol=0, atol=0)
    assert len(got[4].recompiles) <= 1


def test_an_optimizer_that_is_given() -> None:
    weight = torch.ones(3, requires_grad=True)
    opt = torch.optim.SGD([weight], lr=0.5)

    def update(opt: Any, gradient: Any) -> None:
        opt.param_groups[0]["params"][0].grad = gradient * 2
        opt.step()

    compiled = aot_compile(update)
    for i in range(3):
        compiled(opt, torch.ones(3))
        assert weight.tolist() == [-i] * 3 and weight.grad is not None and weight.grad.tolist() == [2] * 3
    opt.param_groups[0]["lr"] = 0.0
    compiled(opt, torch.ones(3))
    assert weight.tolist() == [-2] * 3


def test_gradients_accumulate_inside() -> None:
    x = torch.ones(3, requires_grad=True)

    def program(x: Any) -> Any:
        (x * x).sum().backward()
        return x.grad * 2

    compiled = aot_compile(program)
    for i in range(1, 4):
        assert compiled(x).tolist() == [4 * i] * 3 and x.grad is not None and x.grad.tolist() == [2 * i] * 3
    x.grad = None
    assert compiled(x).tolist() == [4] * 3


def test_explain_says_what_is_put_where() -> None:
    compiled = aot_compile(updates)
    compiled(ones(2), Cache())
    text = compiled.explain()
    assert "put into args[1].last" in text and "changed: args[1].keys" in text
    assert "args[1].__dict__" not in text and "leaves[1]" in compiled.source


def test_a_key_is_exchanged_for_an_equal_one_of_another_class() -> None:
    def exchange(x: torch.Tensor, holder: types.SimpleNamespace) -> torch.Tensor:
        value = holder.table.pop(1)
        holder.table[True] = value
        return x * 2

    compiled = aot_compile(exchange)
    for _ in range(2):
        holder = types.SimpleNamespace(table={1: "a"})
        compiled(torch.ones(2), holder)
        assert repr(holder.table) == "{True: 'a'}"


class Scale:
    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        self.w = torch.full((2,), 2.0, dtype=dtype, requires_grad=True)
        self.n: Any = torch.zeros(2)

    def use(self, x: Any) -> Any:
        self.n = self.n + x
        return x * self.w


def _method(scale: Scale) -> Callable[..., Any]:
    use = weakref.WeakMethod(scale.use)
    return lambda x: use()(x)  # type: ignore[misc]


def _default(scale: Scale) -> Callable[..., Any]:
    def use(x: Any, reference: Any = weakref.ref(scale)) -> Any:  # noqa: B008
        return reference().use(x)

    return use


def _module(scale: Scale) -> Callable[..., Any]:
    module = torch.nn.Module()
    module.reference = weakref.ref(scale)
    return lambda x: module.reference().use(x)


def _holding(make: Callable[[Scale], Any], use: Callable[[Any], Scale]) -> Callable[[Scale], Callable[..., Any]]:
    def program(scale: Scale) -> Callable[..., Any]:
        held = make(scale)
        return lambda x: use(held).use(x)

    return program


WEAKLY: dict[str, Callable[[Scale], Callable[..., Any]]] = {
    "a closure": _holding(weakref.ref, lambda held: held()),
    "a proxy": _holding(weakref.proxy, lambda held: held),
    "with a callback": _holding(lambda scale: weakref.ref(scale, print), lambda held: held()),
    "a list": _holding(lambda scale: [weakref.ref(scale)], lambda held: held[0]()),
    "a tuple in a dict": _holding(lambda scale: {"a": (1, weakref.ref(scale))}, lambda held: held["a"][1]()),
    "a set": _holding(lambda scale: {weakref.ref(scale)}, lambda held: next(iter(held))()),
    "a weak set": _holding(lambda scale: weakref.WeakSet([scale]), lambda held: next(iter(held))),
    "a weak dict": _holding(lambda scale: weakref.WeakValueDictionary(a=scale), lambda held: held["a"]),
    "a method": _method,
    "a partial": lambda scale: functools.partial(lambda held, x: held().use(x), weakref.ref(scale)),
    "a default argument": _default,
    "a module": _module,
}


@pytest.mark.parametrize("name", WEAKLY)
def test_weak_references_are_followed(name: str) -> None:
    """And keep nothing alive."""
    programs, found, scales = [], [], []
    for compile in (lambda fn: fn, aot_compile):
        scale = Scale()
        programs.append(compile(WEAKLY[name](scale)))
        scales.append(scale)
        results: list[Any] = []
        for i in range(3):
            out = programs[-1](torch.full((2,), 1.0 + i))
            out.sum().backward()
            results += [out.tolist(), scale.n.tolist(), scale.w.grad.tolist()]  # type: ignore[union-attr]
            if i == 1:
                scale.w = torch.full((2,), 5.0, requires_grad=True)
        found.append(results)
    assert found[0] == found[1] and not programs[1].recompiles
    gone = weakref.ref(scales.pop())
    del scale
    gc.collect()
    assert gone() is None


def test_weak_references_to_tensors() -> None:
    value = ones(2).requires_grad_()
    reference: Any = weakref.ref(value)
    compiled = aot_compile(lambda x: x if reference() is None else x * reference())
    compiled(ones(2) * 3).sum().backward()
    assert value.grad is not None and value.grad.tolist() == [3, 3]
    del value
    gc.collect()
    assert compiled(ones(2) * 3).tolist() == [3, 3]


def test_weak_references_as_arguments() -> None:
    compiled, scale, value = aot_compile(lambda x, r: r().use(x)), Scale(), ones(2).requires_grad_()
    for _ in range(3):
        compiled(ones(2), weakref.ref(scale))
    assert scale.n.tolist() == [3, 3] and not compiled.recompiles
    aot_compile(lambda x, r: x * r())(ones(2), weakref.ref(value)).sum().backward()
    assert value.grad is not None


def test_new_weak_references() -> None:
    def program(x: Any, scale: Any) -> Any:
        scale.y = x * 2
        scale.refs = [weakref.ref(scale.y), weakref.WeakMethod(scale.use), weakref.proxy(scale)]
        return x

    scale = Scale()
    aot_compile(program)(ones(2), scale)
    tensor, method, proxy = scale.refs  # type: ignore[attr-defined]
    assert tensor() is scale.y and method().__self__ is scale and proxy.y is scale.y  # type: ignore[attr-defined]
    known: weakref.WeakSet[Any] = weakref.WeakSet()
    with pytest.raises(TraceError, match=r"data\[0\]: the function puts a weak reference with a callback here"):
        aot_compile(lambda x, scale: known.add(scale))(ones(2), scale)


@pytest.mark.parametrize("make", [
    lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 1),
    lambda optimizer: torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=20),
    lambda optimizer: torch.optim.lr_scheduler.CyclicLR(optimizer, 0.01, 0.1, mode="triangular2"),
])  # fmt: skip
def test_the_step_of_an_optimizer_that_has_a_scheduler(make: Callable[..., Any]) -> None:
    """The scheduler puts a function in its place that knows the optimizer by a weak reference."""
    weights = []
    for compile in (lambda fn: fn, aot_compile):
        weight = ones(2).requires_grad_()
        optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9)
        scheduler = make(optimizer)
        step = compile(optimizer.step)
        for _ in range(3):
            weight.grad = ones(2)
            step()
            scheduler.step()
        weights.append(weight.detach())
    torch.testing.assert_close(*weights)
    assert optimizer._opt_called  # type: ignore[attr-defined]


def test_weak_references_in_a_file(tmp_path: Path) -> None:
    def program(scale: Scale) -> Callable[..., Any]:
        reference = weakref.ref(scale)

        def use(x: Any) -> Any:
            reference().last = x * 3  # type: ignore[union-attr]
            return reference().use(x)  # type: ignore[union-attr]

        return use

    path, scales = tmp_path / "weak", [Scale(), Scale()]
    scales[1].w = torch.full((2,), 5.0, requires_grad=True)
    compiled = aot_compile(program(scales[0]))
    compiled(ones(2))
    compiled.save(path)
    loaded = load(path, program(scales[1]), trust=True)
    assert loaded(ones(2)).tolist() == [5, 5] and scales[1].last.tolist() == [3, 3]  # type: ignore[attr-defined]


@pytest.mark.parametrize("make", [weakref.ref, weakref.proxy, lambda scale: weakref.WeakMethod(scale.use)])
def test_weak_references_to_what_is_gone(make: Callable[[Any], Any]) -> None:
    scale = Scale()
    references = [make(scale)]
    del scale
    compiled = aot_compile(lambda x: x * len(references))
    for count in (1, 2, 2):
        references[1:] = [make(Scale())] * (count - 1)
        assert compiled(ones(2)).tolist() == [count, count]
    assert "references" in compiled.recompiles[0]
