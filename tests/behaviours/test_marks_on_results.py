"""A result with symbolic sizes makes the next function compile with symbols, at its first compilation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from subclass_aot import Int8Weight, TwoTensor, aot_compile, mark_dynamic
from tests.behaviours.conftest import compare, observe
from tests.classes import Flat

SIZES = (4, 3, 7)


def marked(n: int) -> tuple[Any, ...]:
    x = torch.rand(n, 6).requires_grad_()
    mark_dynamic(x, 0)
    return (x,)


def two(n: int) -> tuple[Any, ...]:
    s = TwoTensor(torch.rand(n, 6), torch.rand(n, 6))
    mark_dynamic(s, 0)
    return (s,)


def nested(n: int) -> tuple[Any, ...]:
    s = TwoTensor(TwoTensor(torch.rand(n, 6), torch.rand(n, 6)), TwoTensor(torch.rand(n, 6), torch.rand(n, 6)))
    mark_dynamic(s, 0)
    return (s,)


def written(x: Tensor) -> Tensor:
    y = x * 2
    y[1:].mul_(3)
    return y


PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[[int], tuple[Any, ...]]]] = {
    "computed": (lambda x: x * 2, marked),
    "a view of an input": (lambda x: x.t(), marked),
    "expressions of symbols": (lambda x: torch.cat([x, x[1:]]).flatten(), marked),
    "written in place": (written, marked),
    "one view operator": (lambda x: (x * 2).unbind(1)[3], marked),
    "a wrapper": (lambda s: s * 2, two),
    "a wrapper in a wrapper": (lambda s: s * 2, nested),
    "an inner tensor": (lambda s: s.a * 2, two),
    "a view of a wrapper": (lambda s: s.t(), two),
    "an object": (lambda x: {"y": [x * 2]}["y"][0], marked),
}


def agree(first: Any, second: Any, make: Callable[[int], tuple[Any, ...]], **options: Any) -> tuple[Any, Any]:
    """Compares two compiled functions, one after the other, with eager mode."""
    compiled = aot_compile(first, **options), aot_compile(second)
    for n in SIZES:
        torch.manual_seed(n)
        expected = observe(lambda *args: second(first(*args)), make(n), None)
        torch.manual_seed(n)
        compare(expected, observe(lambda *args: compiled[1](compiled[0](*args)), make(n), None))
    return compiled


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_next_function_is_compiled_once(name: str) -> None:
    program, make = PROGRAMS[name]
    first, second = agree(program, lambda y: (y.sin(), y.sum(0)), make)
    assert not first.recompiles and not second.recompiles


def test_sizes_that_are_all_symbols() -> None:
    first, second = agree(lambda x: x.sin(), lambda y: y * y.shape[0], lambda n: (torch.rand(n, n + 1),), dynamic=True)
    assert not first.recompiles and not second.recompiles


def test_sizes_that_depend_on_data() -> None:
    def rows(n: int) -> tuple[Any, ...]:
        return (torch.rand(9, 2), torch.arange(9) < n)

    first, second = agree(lambda x, m: x[m], lambda y: y * y.shape[0], rows, dynamic=True)
    assert not first.recompiles and not second.recompiles


def test_known_sizes_stay_numbers() -> None:
    """What is assumed of a size is no symbol, and the other one is known."""
    first = aot_compile(lambda x: x * 2 if x.shape[0] == 4 else x * 3)
    second = aot_compile(lambda y: y.shape[0] * y)
    (x,) = marked(4)
    second(first(x))
    assert "s0" not in second.explain(), second.explain()


def test_weights_are_no_results_of_a_batch() -> None:
    """A parameter that a compiled function has made has the size that it has."""
    make = aot_compile(lambda n: nn.Linear(n.shape[0], 2).weight.detach() * 1, dynamic=True)

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("w", make(torch.rand(3)))

        def forward(self, x: Tensor) -> Any:
            return x @ self.w.t()  # type: ignore[operator]

    layer = Layer()
    compiled = aot_compile(layer)
    x = torch.rand(5, 3)
    torch.testing.assert_close(compiled(x), layer(x))
    assert "s0" not in compiled.explain(), compiled.explain()


def test_nothing_is_added_where_no_size_is_a_symbol() -> None:
    compiled = aot_compile(lambda x: x * 2)
    compiled(torch.ones(3))
    assert "note_sizes" not in compiled.source
    compiled(torch.ones(4))
    assert "note_sizes" in compiled.source


def test_an_input_is_not_marked() -> None:
    first, second = aot_compile(lambda x: (x, x * 2), dynamic=True), aot_compile(lambda y: y * 2)
    x = torch.ones(3)
    same, _ = first(x)
    assert same is x and not vars(x)
    second(x)
    second(torch.ones(4))
    assert len(second.recompiles) == 1


def rows(*lengths: int) -> Tensor:
    return torch.nested.nested_tensor([torch.rand(n, 4) for n in lengths], layout=torch.jagged)


def test_jagged_results_are_as_others() -> None:
    """They have the offsets of the argument. So nothing is marked, and sizes become symbols when they differ."""
    first, second, alone = aot_compile(lambda x: x * 2, dynamic=True), aot_compile(torch.sin), aot_compile(torch.sin)
    for lengths in ((2, 3, 4), (6, 2, 7), (2, 2, 3, 4), (5, 5)):
        x = rows(*lengths)
        torch.testing.assert_close(second(first(x)).values(), alone(x * 2).values())
    assert not first.recompiles and len(second.recompiles) == len(alone.recompiles)


def test_what_has_a_part_of_an_argument_is_not_marked() -> None:
    """The argument itself is not: it would be a wrapper of known sizes around a leaf with symbols."""
    first = aot_compile(lambda s: TwoTensor(s.a, s.b * 2), dynamic=True)
    s = TwoTensor(torch.rand(4, 6), torch.rand(4, 6))
    first(s)
    second = aot_compile(lambda y: y * 2)
    second(s)
    assert "s0" not in second.explain()


def test_the_next_class_may_have_other_inner_sizes() -> None:
    """Here it is a vector of all elements."""

    def make(n: int) -> tuple[Any, ...]:
        return (Flat(torch.rand(n * 3), (n, 3)),)

    _, second = agree(lambda s: s * 2, lambda s: s * 3, make, dynamic=True)
    assert not second.recompiles


def test_a_weight_in_the_next_function() -> None:
    weight = Int8Weight.from_float(torch.rand(5, 6))
    first, second = agree(lambda x: x * 2, lambda y: torch.nn.functional.linear(y, weight), marked)
    assert not first.recompiles and not second.recompiles
