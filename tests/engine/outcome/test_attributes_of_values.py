"""Tuples, numbers and texts with attributes: see Note [Attributes of values]."""

from __future__ import annotations

import collections
import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from subclass_aot import aot_compile, load_compiled
from subclass_aot.errors import TraceError


class More(collections.namedtuple("More", "a b")):
    pass


class Row(tuple[Any, ...]):
    pass


class Tagged(tuple[Any, ...]):
    """Has an attribute from its constructor, which takes something else than the elements."""

    def __new__(cls, elements: Any, tag: str) -> Tagged:
        return tuple.__new__(cls, elements)

    def __init__(self, elements: Any, tag: str) -> None:
        self.tag = tag

    def __getnewargs__(self) -> tuple[Any, str]:
        return tuple(self), self.tag


class Whole(int):
    pass


class Real(float):
    pass


class Complex(complex):
    pass


class Word(str):
    pass


class Raw(bytes):
    pass


class Group(frozenset[Any]):
    pass


class Slotted(float):
    __slots__ = ("__dict__", "count")


MAKE: dict[str, Callable[[Any], Any]] = {
    "namedtuple": lambda x: More(x, 1),
    "namedtuple of numbers": lambda x: More(2, 1),
    "tuple": lambda x: Row([x, x]),
    "with a constructor": lambda x: Tagged([x, 3], "t"),
    "int": lambda x: Whole(3),
    "float": lambda x: Real(2.5),
    "complex": lambda x: Complex(1 + 2j),
    "str": lambda x: Word("hey"),
    "bytes": lambda x: Raw(b"ab"),
    "frozenset": lambda x: Group([1, 2]),
}


def used(value: Any, x: torch.Tensor) -> Any:
    """Computes with what a value is."""
    if isinstance(value, tuple):
        return sum(part.sum() if isinstance(part, torch.Tensor) else part for part in value) + x
    return x * value if isinstance(value, int | float | complex) else x * len(value)


def assigns(value: Any, x: torch.Tensor) -> Any:
    value.extra, value.computed = 1, x * 2
    return used(value, x)


def reads(value: Any, x: torch.Tensor) -> Any:
    return used(value, x) * getattr(value, "k", 1) + (value.t if hasattr(value, "t") else 0)


def counts(value: Any, x: torch.Tensor) -> Any:
    value.n = getattr(value, "n", 0) + 1
    return x * value.n


def deletes(value: Any, x: torch.Tensor) -> Any:
    value.q = 3
    del value.q
    if hasattr(value, "k"):
        del value.k
    return x + 1


def returns(value: Any, x: torch.Tensor) -> Any:
    value.z = x + 1
    return value, [value], {"same": (value, x * 2)}


def makes(value: Any, x: torch.Tensor) -> Any:
    made = copy.copy(value)
    made.extra, made.w, made.of = x * 3, [x, 5], value
    return [made, made], x


def nests(value: Any, x: torch.Tensor) -> Any:
    value.child = [x]
    value.child.append(Whole(5))
    value.child[1].t = x * 2
    return value, (x, {"d": value})


PROGRAMS = [assigns, reads, counts, deletes, returns, makes, nests]


class Box:
    """Holds a value."""

    def __init__(self, value: Any) -> None:
        self.value = value


def on_tensor(value: Any) -> torch.Tensor:
    tensor: Any = torch.ones(2)
    tensor.value = value
    return tensor


def on_parameter(value: Any) -> torch.Tensor:
    parameter: Any = torch.nn.Parameter(torch.ones(2))
    parameter.value = value
    return parameter


WHERE: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "an argument": (lambda value: value, lambda given: given),
    "a list": (lambda value: [value], lambda given: given[0]),
    "an object": (Box, lambda given: given.value),
    "a tensor": (on_tensor, lambda given: given.value),
    "a parameter": (on_parameter, lambda given: given.value),
}


def described(value: Any, values: list[Any], depth: int = 0) -> Any:
    """Says all of a result, and which values of a call are in it."""
    if isinstance(value, torch.Tensor):
        return "tensor", value.tolist(), value.requires_grad
    if isinstance(value, dict):
        return {key: described(part, values, depth + 1) for key, part in value.items()}
    found: Any = repr(value)
    if isinstance(value, list | tuple):
        found = [described(part, values, depth + 1) for part in value]
    is_same = [value is other for other in values]
    beside = vars(value) if hasattr(value, "__dict__") and depth < 6 else None
    return type(value).__name__, found, is_same, beside and described(beside, values, depth + 1)


def calls(make: Callable[[Any], Any], requires_grad: bool) -> Iterator[tuple[Any, torch.Tensor]]:
    """Values of which attributes change from call to call."""
    for i in (0, 0, 1, 2, 2, 0):
        x = torch.tensor([1.0, 2.0 + i], requires_grad=requires_grad)
        value = make(x.detach())
        if i:
            value.k = 1 + i
        if i == 2:
            value.t = x.detach() * 1.5
        yield value, x


def check(program: Callable[..., Any], make: Callable[[Any], Any], where: str, requires_grad: bool = False) -> Any:
    put, get = WHERE[where]

    def function(given: Any, x: torch.Tensor) -> Any:
        return program(get(given), x)

    compiled = aot_compile(function)
    for (one, x), (other, y) in zip(calls(make, requires_grad), calls(make, requires_grad), strict=True):
        expected, got = function(put(one), x), compiled(put(other), y)
        assert described((got, other), [other]) == described((expected, one), [one])
    return compiled


@pytest.mark.parametrize("requires_grad", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("name", MAKE)
def test_arguments(name: str, program: Callable[..., Any], requires_grad: bool) -> None:
    check(program, MAKE[name], "an argument", requires_grad)


@pytest.mark.parametrize("where", [where for where in WHERE if where != "an argument"])
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("name", MAKE)
def test_in_others(name: str, program: Callable[..., Any], where: str) -> None:
    check(program, MAKE[name], where)


def test_one_that_is_passed_twice_is_one() -> None:
    def program(one: Any, other: Any, x: torch.Tensor) -> Any:
        one.extra = x + 1
        return one is other, getattr(other, "extra", x)

    compiled, x = aot_compile(program), torch.ones(2)
    for is_one in (True, False, True):
        one = More(x, 1)
        same, extra = compiled(one, one if is_one else More(x, 1), x)
        assert same is is_one and extra.tolist() == ([2.0, 2.0] if is_one else [1.0, 1.0])
        assert one.extra.tolist() == [2.0, 2.0]


class Net(torch.nn.Module):
    """Counts in an attribute of a number, and has a record on a weight, as mup has."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer: Any = torch.nn.Linear(2, 2)
        self.layer.weight.record = Tagged([Box(4), Box(2)], "w")
        self.scale: Any = Whole(3)
        self.row: Any = Row([torch.ones(2)])
        self.row.shift = torch.ones(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.scale.calls = getattr(self.scale, "calls", 0) + 1
        self.row.last = x * 2
        width = self.layer.weight.record[0].value
        return self.layer(x) * width * self.scale + self.row.shift + self.row[0]  # type: ignore[no-any-return]


def test_in_a_module() -> None:
    one, other = Net(), Net()
    compiled, optimizers = aot_compile(other), [torch.optim.SGD(net.parameters(), 0.1) for net in (one, other)]
    for i in range(4):
        for net in (one, other):
            if i == 2:
                net.layer.weight.record[0].value = 7
                net.row.shift = torch.full((2,), 5.0)
        x = torch.arange(2.0) + i
        results = [one(x), compiled(x)]
        torch.testing.assert_close(*results)
        torch.testing.assert_close(one.row.last, other.row.last)
        for result, optimizer in zip(results, optimizers, strict=True):
            result.sum().backward()
            optimizer.step()
        assert one.scale.calls == other.scale.calls == i + 1


def test_a_global_number() -> None:
    factor: Any = Real(2.0)
    factor.k = 3
    compiled = aot_compile(lambda x: x * factor * factor.k)
    assert compiled(torch.ones(1)).item() == 6
    factor.k = 4
    assert compiled(torch.ones(1)).item() == 8


@pytest.mark.parametrize("dynamic", [None, True])
def test_sizes_that_change(dynamic: bool | None) -> None:
    def program(row: Any, x: torch.Tensor) -> Any:
        row.most = row.shift.max(0).values
        return row[0] * 2 + row.shift

    compiled = aot_compile(program, dynamic=dynamic)
    for n in (3, 4, 5):
        row: Any = Row([torch.ones(n, 2)])
        row.shift = torch.arange(2.0 * n).view(n, 2)
        assert compiled(row, torch.ones(2)).tolist() == (2 + row.shift).tolist()
        assert row.most.tolist() == row.shift[-1].tolist()
    assert len(compiled.recompiles) == (1 if dynamic is None else 0)


def test_writes_and_views() -> None:
    def program(row: Any, x: torch.Tensor) -> torch.Tensor:
        row.t.add_(1)
        row[0].mul_(2)
        row.first, row.same = row[0][:1], row[0]
        return x * row.first

    compiled = aot_compile(program)
    for _ in range(2):
        row: Any = Row([torch.ones(2)])
        row.t = torch.ones(2)
        assert compiled(row, torch.ones(2)).tolist() == [2.0, 2.0]
        assert row.t.tolist() == [2.0, 2.0] and row.same is row[0]
        assert row.first.data_ptr() == row[0].data_ptr()


def test_gradients() -> None:
    def program(x: torch.Tensor) -> Any:
        made: Any = Whole(4)
        made.t = x * 3
        return made

    x = torch.ones(2, requires_grad=True)
    made = aot_compile(program)(x)
    made.t.sum().backward()
    assert made == 4 and type(made) is Whole and x.grad is not None and x.grad.tolist() == [3.0, 3.0]


def test_what_hooks_put_there() -> None:
    def program(number: Any, x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y.register_hook(lambda gradient: setattr(number, "gradient", gradient))
        return y

    compiled = aot_compile(program)
    for _ in range(2):
        number: Any = Whole(3)
        compiled(number, torch.ones(2, requires_grad=True)).sum().backward()
        assert number.gradient.tolist() == [1.0, 1.0]


def test_another_compiler() -> None:
    def program(x: torch.Tensor) -> Any:
        made: Any = More(x * 2, x)
        made.extra = [x + 1]
        return made, made

    one, other = aot_compile(program, fw_compiler="inductor")(torch.ones(2))
    assert one is other and one.extra[0].tolist() == [2.0, 2.0] and one.a.tolist() == [2.0, 2.0]


def test_files(tmp_path: Path) -> None:
    def program(row: Any, x: torch.Tensor) -> Any:
        row.n = getattr(row, "n", 0) + 1
        made: Any = More(x * row[0], 1)
        made.w = Whole(2)
        made.w.t = x
        return made

    compiled, x = aot_compile(program), torch.ones(2)
    compiled(Row([x + 0]), x)
    compiled.save(tmp_path / "file")
    row: Any = Row([x + 0])
    made = load_compiled(tmp_path / "file", trust=True)(row, x * 2)
    assert row.n == 1 and made.w == 2 and made.w.t.tolist() == [2.0, 2.0] and made.a.tolist() == [2.0, 2.0]


def test_one_with_slots_is_known_by_its_identity() -> None:
    def program(number: Any, x: torch.Tensor) -> Any:
        number.count = getattr(number, "count", 0) + 1
        number.last = x * 2
        return x * number * number.count, number

    compiled, number, x = aot_compile(program), Slotted(2.0), torch.ones(1)
    for i in range(1, 4):
        result, same = compiled(number, x)
        assert same is number and number.count == i and result.item() == 2 * i and number.last.item() == 2  # type: ignore[attr-defined]
    assert compiled(Slotted(3.0), x)[0].item() == 3


def test_one_that_holds_itself() -> None:
    def program(row: Any, x: torch.Tensor) -> Any:
        row.me = row
        return row.me is row

    row: Any = Row([torch.ones(2)])
    assert aot_compile(program)(row, torch.ones(2)) is True and row.me is row

    def new(x: torch.Tensor) -> Any:
        made: Any = Row([x * 2])
        made.me = made
        return made

    with pytest.raises(TraceError, match="a Row holds itself"):
        aot_compile(new)(torch.ones(2))
