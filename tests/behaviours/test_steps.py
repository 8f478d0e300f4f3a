"""Iterators, files and queues as arguments, in containers and held: the function itself takes each step, once."""

from __future__ import annotations

import collections
import csv
import dataclasses
import functools
import io
import itertools
import os
import queue
import tempfile
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

import subclass_aot as sa
from subclass_aot.errors import OnlyInEagerModeError
from tests.by_door import check


def numbers(count: int = 9) -> Iterator[float]:
    yield from map(float, range(1, count))


def echo() -> Iterator[Any]:
    given = 1
    while True:
        given = (yield given) + given


def echoing() -> Any:
    made = echo()
    next(made)
    return made


@dataclasses.dataclass
class Batches:
    it: Any


class Counting(IterableDataset):  # type: ignore[type-arg]
    def __init__(self) -> None:
        self.count = 0

    def __iter__(self) -> Iterator[Any]:
        self.count += 1
        yield torch.ones(2) * self.count


Named = collections.namedtuple("Named", "it")
x = torch.ones(2)
PAIRS = [(x * i, i) for i in range(1, 7)]

Read = Callable[[Any], Any]
SOURCES: dict[str, tuple[Callable[[], Any], Read]] = {
    "a generator": (numbers, next),
    "an expression": (lambda: (x * i for i in range(9)), next),
    "a list": (lambda: iter([1.0, x, x * 3, 4.0]), next),
    "count": (itertools.count, next),
    "zip": (lambda: zip(range(9), numbers(), strict=False), lambda it: sum(next(it))),
    "map": (lambda: map(float, range(9)), next),
    "enumerate": (lambda: enumerate([x] * 9), lambda it: next(it)[0]),
    "until": (lambda: iter([3, 2, 1, 5].pop, 0), next),
    "reversed": (lambda: reversed([1, 2, 3, 4]), next),
    "in a list": (lambda: [numbers()], lambda held: next(held[0])),
    "in a tuple": (lambda: (numbers(), 1), lambda held: next(held[0])),
    "in a dict": (lambda: {"it": [numbers()]}, lambda held: next(held["it"][0])),
    "in a set": (lambda: {numbers()}, lambda held: next(*held)),
    "in a deque": (lambda: collections.deque([numbers()]), lambda held: next(held[0])),
    "in a named tuple": (lambda: Named(numbers()), lambda held: next(held.it)),
    "in an object": (lambda: Batches(numbers()), lambda held: next(held.it)),
    "in a partial": (lambda: functools.partial(next, numbers()), lambda held: held()),
    "its method": (lambda: numbers().__next__, lambda held: held()),  # type: ignore[attr-defined]
    "send": (echoing, lambda it: it.send(3)),
    "the method send": (lambda: echoing().send, lambda send: send(3)),
    "some of it": (lambda: iter(range(20)), lambda it: sum(itertools.islice(it, 3))),
    "beside another": (numbers, lambda it: sum(a * b for a, b in zip(range(2), it, strict=False))),
    "with a default": (lambda: iter([2.0]), lambda it: next(it, 7.0)),
    "caught": (numbers, lambda it: caught(lambda: next(it))),
    "closed": (numbers, lambda it: (it.close(), 2.0)[1]),
    "the batches of a loader": (lambda: iter(DataLoader(PAIRS, batch_size=2)), lambda it: next(it)[0].sum()),
    "a loader": (lambda: DataLoader(PAIRS, batch_size=2), lambda held: sum(a.sum() * b.sum() for a, b in held)),
    "a loader of a stream": (lambda: DataLoader(Counting()), lambda held: sum(a.sum() for a in held)),
    "a queue": (lambda: filled(queue.Queue()), lambda held: held.get()),
    "a simple queue": (lambda: filled(queue.SimpleQueue()), lambda held: held.get()),
    "a file in memory": (lambda: io.StringIO("1\n2\n3\n4\n"), lambda file: float(file.readline())),
    "bytes in memory": (lambda: io.BytesIO(b"abcdef"), lambda file: file.read(1)[0]),
    "lines": (lambda: io.StringIO("1\n2\n3\n4\n"), lambda file: float(next(file))),
    "a file": (lambda: temporary("w+"), lambda file: float(next(file))),
    "a file that is read": (lambda: temporary("r"), lambda file: float(file.readline())),
    "a pipe": (lambda: pipe(), lambda file: float(file.readline())),
    "rows of a file": (lambda: csv.reader(io.StringIO("1,2\n3,4\n5,6\n7,8\n")), lambda rows: float(next(rows)[0])),
}  # fmt: skip


def caught(step: Callable[[], Any]) -> Any:
    try:
        return step()
    except Exception:
        return 100.0


def filled(made: Any) -> Any:
    for i in range(1, 9):
        made.put(i)
    return made


def temporary(mode: str) -> Any:
    with tempfile.NamedTemporaryFile("w", delete=False) as made:
        made.write("1\n2\n3\n4\n")
    return open(made.name, mode.replace("w+", "r+"))


def pipe() -> Any:
    end, begin = os.pipe()
    os.write(begin, b"1\n2\n3\n4\n")
    os.close(begin)
    return os.fdopen(end)


def argument(door: Any, source: Any, read: Read) -> Any:
    return door(lambda held, x: x * read(held)), (source,)


def keyword(door: Any, source: Any, read: Read) -> Any:
    function = door(lambda x, *, held: x * read(held))
    return lambda held, x: function(x, held=held), (source,)


def attribute(door: Any, source: Any, read: Read) -> Any:
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale, self.held = torch.nn.Parameter(x * 2), source

        def forward(self, x: Any) -> Any:
            return x * self.scale * read(self.held)

    return door(Model()), ()


def closure(door: Any, source: Any, read: Read) -> Any:
    return door(lambda x: x * read(source)), ()


PLACES = [argument, keyword, attribute, closure]


def program(source: str, place: Any) -> Callable[..., Any]:
    make, read = SOURCES[source]

    def run(door: Any) -> Any:
        held = make()
        try:
            function, args = place(door, held, read)
            given = torch.ones(2, requires_grad=True)
            results = []
            for _ in range(3):
                results.append(function(*args, given))
                results[-1].sum().backward()
            return results, given.grad
        finally:
            if isinstance(held, io.IOBase):
                held.close()  # a file that was left open is a warning

    return run


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("source", SOURCES)
def test_each_call_takes_its_own_steps(source: str, place: Any) -> None:
    (warning,) = check(program(source, place))
    assert "takes a step of an iterator" in warning or "reads a file" in warning
    path = {argument: "args[0]", keyword: "kwargs['held']", attribute: "self.held", closure: "source"}[place]
    assert f"\n  {path}" in warning


@pytest.mark.parametrize("place", [argument, closure])
@pytest.mark.parametrize("source", [source for source in SOURCES if source != "its method"])  # Dynamo fails in itself
def test_by_torch_compile(source: str, place: Any) -> None:
    check(program(source, place), "torch.compile")


@pytest.mark.parametrize("make", [numbers, lambda: io.StringIO("1\n2\n"), lambda: filled(queue.Queue())])
def test_nothing_is_read_where_values_are_refused(make: Any) -> None:
    held = make()
    read = getattr(held, "get", None) or held.__next__
    with pytest.raises(OnlyInEagerModeError):
        sa.aot_compile(lambda held, x: x * float(getattr(held, "get", held.__next__)()), values="refuse")(held, x)
    assert float(read()) == 1


def test_what_is_not_asked_for_a_step_is_compiled() -> None:
    def run(door: Any) -> Any:
        held = types.SimpleNamespace(it=numbers(), log=io.StringIO(), loader=DataLoader(PAIRS, batch_size=2))

        def function(it: Any, x: Any) -> Any:
            held.log.write("a line")
            kinds = isinstance(it, types.GeneratorType), isinstance(held.loader, DataLoader), hasattr(it, "keys")
            return x * len(held.loader) * held.loader.batch_size, kinds, it is held.it

        f = door(function)
        return [f(held.it, x) for _ in range(2)], next(held.it)

    assert not check(run)


def test_a_branch_that_takes_no_step_is_compiled() -> None:
    def run(door: Any) -> Any:
        it = numbers()
        f = door(lambda x, step: x * next(it) if step else x + 1)
        return [f(x, step) for step in (False, True, False, True, True, False)], next(it)

    assert len(check(run)) == 1


def test_parameters_of_a_module() -> None:
    def run(door: Any) -> Any:
        model = torch.nn.Linear(2, 2)
        model(x).sum().backward()
        clip = door(lambda parameters: torch.nn.utils.clip_grad_norm_(parameters, 1.0))
        return [clip(model.parameters()) for _ in range(3)], model

    assert len(check(run)) == 1


def test_an_epoch() -> None:
    def run(door: Any) -> Any:
        model = torch.nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def epoch(batches: Any) -> None:
            for batch in batches:
                optimizer.zero_grad()
                model(batch).sum().backward()
                optimizer.step()

        f = door(epoch)
        for count in (3, 3, 2):
            f(x * i for i in range(count))
        return model

    assert len(check(run)) == 1


@pytest.mark.parametrize("view", ["keys", "values", "items"])
def test_views_of_a_dict(view: str) -> None:
    """They are live, and do not tell of which dict they are."""

    def run(door: Any) -> Any:
        table: dict[str, Any] = {"a": torch.ones(2, requires_grad=True), "b": x}
        f = door(lambda view, x: (x * len(view), list(view)))
        results = [f(getattr(table, view)(), x)]
        table["c"] = x * 2
        return results, f(getattr(table, view)(), x)

    assert len(check(run)) == 1


def test_methods_of_containers() -> None:
    """Of a list, a dict or a tensor, a method is the object and a name."""

    def run(door: Any) -> Any:
        table, found, weight = {"a": x}, [x], torch.ones(2, requires_grad=True)
        get, add, multiply = table.get, found.append, weight.mul

        def function(x: Any) -> Any:
            add(x + len(found))
            return multiply(x) + get("a")

        f = door(function)
        results = [f(x)]
        table["a"] = x * 5
        results += [f(x), f(x * 2)]
        results[-1].sum().backward()
        return results, found, weight.grad

    assert not check(run)
