"""Results with symbolic sizes, on their way into the next graph. `aot_eager` is the oracle."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, _dynamo, nn
from torch._dynamo.testing import CompileCounterWithBackend

from subclass_aot import TwoTensor
from subclass_aot.base import _torch
from tests.doors.dynamo.checks import rand


@pytest.fixture(autouse=True)
def _sizes_of_data() -> Iterator[None]:
    """Sizes that depend on data are symbols."""
    with _dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        yield


def marks(value: object) -> set[int]:
    return set(_torch.dynamo.dims_marked_in(value)) if isinstance(value, Tensor) else set()


def marks_behind(backend: str, program: Callable[..., Any], make: Callable[[], list[Any]], **options: Any) -> list[Any]:
    """The marks of the results of two calls, and of the arguments."""
    _dynamo.reset()
    compiled = torch.compile(program, backend=backend, **{"dynamic": True, **options})
    found = []
    for _ in range(2):
        arguments = make()
        results = compiled(*arguments)
        results = results if isinstance(results, Sequence) else [results]
        found.append([[marks(x) for x in results], [marks(x) for x in arguments]])
    return found


def written(x: Tensor) -> Tensor:
    x.mul_(2)
    return x


def turned(x: Tensor) -> Tensor:
    x.t_()
    return x + 1


def of_one_base(x: Tensor) -> tuple[Tensor, ...]:
    y = x * 2
    return y, y.t(), y[0], y


def gradient(x: Tensor) -> Any:
    return torch.autograd.grad((x * 2).sum(), x)


def fixed(x: Tensor) -> tuple[Tensor, Tensor]:
    """The program assumes what the first size is."""
    y = x * 2
    return (y, x.sum()) if x.shape[0] == 4 else (y + 1, x.sum())


dense = [lambda: [rand(4, 3)], lambda: [rand(4, 3, grad=True)], lambda: [nn.Parameter(torch.rand(4, 3))]]
PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[[], list[Any]]]] = {
    "computed": (lambda x: (x * 2, x.sum(), x.sum(0)), dense[0]),
    "expressions of symbols": (lambda x: (torch.cat([x, x]), x.flatten(), x[1:], x.repeat(2, 1)), dense[0]),
    "views of an input": (lambda x: (x.view(-1), x.t(), x.detach(), x.view(x.shape)), dense[0]),
    "views with gradients": (lambda x: (x.view(-1), x * 2), dense[1]),
    "an input": (lambda x: (x, x * 1), dense[0]),
    "a written input": (written, dense[0]),
    "an input with other sizes": (turned, dense[0]),
    "views of what is computed": (of_one_base, dense[1]),
    "one view operator": (lambda x: (*(x * 2).unbind(1), *x.split(2)), dense[0]),
    "a gradient": (gradient, dense[1]),
    "of a parameter": (lambda p: (p, p * 2), dense[2]),
    "numbers": (lambda x: (x.shape[0], x * 2), dense[0]),
    "known sizes": (lambda x: x.new_ones(2, 2) * x.sum(), dense[0]),
    "a size that proves to be known": (fixed, dense[0]),
    "a wrapper": (lambda s: (s * 2, s.sum(0)), lambda: [rand(4, 3, cls=TwoTensor)]),
    "a view of a wrapper": (lambda s: s.view(-1), lambda: [rand(4, 3, cls=TwoTensor)]),
    "inner tensors": (lambda s: (s.a * 2, s.a.view(-1)), lambda: [rand(4, 3, cls=TwoTensor)]),
    "sizes that depend on data": (lambda x: (x[x[:, 0] > 0.5], x.nonzero()), dense[0]),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_marks_are_those_of_torch(name: str) -> None:
    program, make = PROGRAMS[name]
    torch.manual_seed(0)
    expected = marks_behind("aot_eager", program, make)
    torch.manual_seed(0)
    assert marks_behind("subclass_aot", program, make) == expected


def test_what_has_no_symbols_has_no_marks() -> None:
    found = marks_behind("subclass_aot", lambda x: (x * 2, x.view(-1)), dense[0], dynamic=False)
    assert found == [[[set(), set()], [set()]]] * 2


def test_inner_tensors_are_marked_as_the_outer_one() -> None:
    """Dynamo reads the marks of each."""
    compiled = torch.compile(lambda s: s.view(-1) * 2, backend="subclass_aot", dynamic=True)
    found = compiled(TwoTensor(rand(4, 3, cls=TwoTensor), rand(4, 3, cls=TwoTensor)))
    parts = [found, found.a, found.b, found.a.a, found.b.b]
    assert [marks(x) for x in parts] == [{0}] * 5


def broken(program: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose second graph takes what the first gives."""

    def run(*args: Any) -> Any:
        results = program(*args)
        _dynamo.graph_break()
        results = results if isinstance(results, tuple) else (results,)
        return tuple(x * 2 + 1 for x in results)

    return run


def marked(size: int) -> list[Any]:
    x = rand(size, 3)
    _dynamo.mark_dynamic(x, 0)
    return [x]


def marked_wrapper(size: int) -> list[Any]:
    s = rand(size, 3, cls=TwoTensor)
    for x in (s, s.a, s.b):
        _dynamo.mark_dynamic(x, 0)
    return [s]


BREAKS: dict[str, tuple[Callable[..., Any], Callable[[int], list[Any]]]] = {
    "dense": (lambda x: x * 3, marked),
    "a wrapper": (lambda s: s * 3, marked_wrapper),
    "a view of an input": (lambda x: x.view(-1), marked),
    "a view of a wrapper": (lambda s: s.view(-1), marked_wrapper),
    "expressions of symbols": (lambda x: (torch.cat([x, x]), x[1:], x.flatten()), marked),
    "a size that depends on data": (lambda x, n: x[n], lambda size: [rand(9, 3), torch.arange(9) < size]),
}


@pytest.mark.parametrize("name", BREAKS)
def test_the_next_graph_has_symbols_at_once(name: str) -> None:
    program, make = BREAKS[name]
    counter = CompileCounterWithBackend("subclass_aot")
    compiled: Any = torch.compile(broken(program), backend=counter)
    for size in (4, 5, 7):
        arguments = make(size)
        for found, expected in zip(compiled(*arguments), broken(program)(*arguments), strict=True):
            torch.testing.assert_close(found, expected)
    assert counter.frame_count == 2
