"""Operators of `torch.library.custom_op`: what they write, lists they take and return, in graphs for any compiler."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from subclass_aot import TwoTensor, aot_compile, register_meta
from subclass_aot.errors import MutationError
from subclass_aot.testing import check_compiled

BACKENDS = ["eager", "inductor"]


@torch.library.custom_op("test_custom::increase", mutates_args={"x"})
def increase(x: torch.Tensor, by: float = 1.0) -> None:
    x.add_(by)


@torch.library.custom_op("test_custom::fill", mutates_args={"out"})
def fill(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    out.copy_(x + 2)
    return x * 3


@fill.register_fake
def _(x: Any, out: Any) -> Any:
    return torch.empty_like(x)


@torch.library.custom_op("test_custom::fill_two", mutates_args={"out", "also"})
def fill_two(x: torch.Tensor, out: torch.Tensor, also: torch.Tensor | None = None) -> torch.Tensor:
    out.copy_(x + 2)
    if also is not None:
        also.mul_(3)
    return x * 3


@fill_two.register_fake
def _(x: Any, out: Any, also: Any = None) -> Any:
    return torch.empty_like(x)


@torch.library.custom_op("test_custom::double_all", mutates_args={"xs"})
def double_all(xs: list[torch.Tensor], x: torch.Tensor) -> list[torch.Tensor]:
    for t in xs:
        t.mul_(2)
    return [x + 1, x.sum(-1)]


@double_all.register_fake
def _(xs: Any, x: Any) -> Any:
    return [torch.empty_like(x), x.new_empty(x.shape[:-1])]


@torch.library.custom_op("test_custom::halves", mutates_args=())
def halves(x: torch.Tensor) -> tuple[list[torch.Tensor], torch.Tensor]:
    return [x[: len(x) // 2].clone(), x[len(x) // 2 :].clone()], x * 2


@halves.register_fake
def _(x: Any) -> Any:
    return [torch.empty_like(x[: len(x) // 2]), torch.empty_like(x[len(x) // 2 :])], torch.empty_like(x)


def an_input(x: Any, y: Any) -> Any:
    increase(x)
    return x * 2


def by_name(x: Any, y: Any) -> Any:
    increase(x=x, by=2.5)
    return x * 2


def a_view_of_an_input(x: Any, y: Any) -> Any:
    increase(x[1:], 3.0)
    return x.sum() + y


def what_was_made(x: Any, y: Any) -> Any:
    z = torch.empty_like(x)
    return fill(x, z), z, z.t()


def twice(x: Any, y: Any) -> Any:
    increase(x)
    increase(x.t(), 0.5)
    return fill(y, x), x


def an_argument_left_out_or_not(x: Any, y: Any) -> Any:
    z = y.clone()
    return fill_two(x, y), fill_two(x, z, y), fill_two(x, z, also=x), z


def a_list(x: Any, y: Any) -> Any:
    z = x + 1
    return double_all([z, y], x), z


def nested_results(x: Any, y: Any) -> Any:
    (a, b), c = halves(x)
    return a.sin(), b * 2, c


def between_gradients(x: Any, y: Any) -> Any:
    with torch.no_grad():
        scale = y.detach().clone()
        increase(scale)
    return (x * scale).sin()


PROGRAMS = [
    an_input, by_name, a_view_of_an_input, what_was_made, twice, an_argument_left_out_or_not, a_list, nested_results,
    between_gradients,
]  # fmt: skip


@pytest.mark.filterwarnings("ignore")  # inductor warns of parts of torch that torch itself has deprecated
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_as_in_eager(program: Any, backend: str) -> None:
    x, y = torch.rand(4, 4), torch.rand(4, 4)
    if program is an_argument_left_out_or_not:
        try:
            program(x.clone(), y.clone())
        except IndexError:
            pytest.skip("this torch fails in eager mode where an argument that is written is left out")
    check_compiled(program, [x, y], fw_compiler=backend)
    check_compiled(program, [x, y.t()], fw_compiler=backend, dynamic=True)


def test_gradients_beside() -> None:
    check_compiled(between_gradients, [torch.rand(3, 3, requires_grad=True), torch.rand(3, 3)])


@pytest.mark.parametrize("program", [an_input, a_view_of_an_input, what_was_made])
def test_on_wrappers(program: Any) -> None:
    """A class that hands operators to its inner tensors writes these."""
    check_compiled(program, [TwoTensor(torch.rand(4, 4), torch.rand(4, 4)), torch.rand(())])


def test_a_rule_for_its_shape() -> None:
    @torch.library.custom_op("test_custom::without_fake", mutates_args={"x"})
    def without_fake(x: torch.Tensor) -> torch.Tensor:
        return x.mul_(2).sum(0)

    @register_meta(torch.ops.test_custom.without_fake)
    def _(x: Any) -> Any:
        return x.new_empty(x.shape[1:])

    check_compiled(lambda x: (without_fake(x), x + 1), [torch.rand(2, 3)])


def test_the_graph_has_a_form_without_writes() -> None:
    graphs = []

    def compiler(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    aot_compile(lambda x: (increase(x[0]), x * 2)[1], fw_compiler=compiler)(torch.rand(2, 3))
    assert [n.target for n in graphs[0].graph.nodes if "increase" in str(n.target)] == [
        torch.ops.subclass_aot.test_custom__increase__default__x.default
    ]


OVERLAPS: dict[str, Any] = {
    "a view": lambda x, y: fill(x, x.t()),
    "two written": lambda x, y: fill_two(x, z := y + 1, z),
    "an element of a written list": lambda x, y: double_all([y, x], x),
    "twice in a written list": lambda x, y: double_all([y, y], x),
    "two inputs": lambda x, y: fill(x, y),
}


@pytest.mark.parametrize("name", OVERLAPS)
def test_what_shares_memory_with_what_is_written_is_refused(name: str) -> None:
    """The functional variant would write into copies that share none."""
    base = torch.rand(4, 3)
    x, y = (base[:3], base[1:]) if name == "two inputs" else (torch.rand(3, 3), torch.rand(3, 3))
    before = base.clone()
    with pytest.raises(MutationError, match="has elements in the same places of memory"):
        aot_compile(OVERLAPS[name])(x, y)
    assert torch.equal(base, before)


def test_inputs_that_lie_apart_in_one_storage() -> None:
    base = torch.rand(4, 3)
    check_compiled(lambda x, y: fill(x, y), [base[:2], base[2:]])
