"""Numbers that only the call knows, as nodes: each is read where it was first seen, and computed once."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from subclass_aot import Spec, aot_compile
from subclass_aot.engine.descriptors import PlainInput
from subclass_aot.engine.graph import Recorder
from subclass_aot.engine.graph.symint_nodes import reads_size
from subclass_aot.meta.symbols import Symbols, unbacked_sizes
from tests.engine.graph.recording import raw, recorded


def square() -> tuple[Any, Spec]:
    """A symbol, and how a tensor looks that has so many rows and columns."""
    n = Symbols().size(8, "x.size(0)")
    return n, Spec.make((n, n), (n, 1))


def computed(node: fx.Node, values: dict[str, Any]) -> Any:
    """What a node gives, where its inputs have these values."""
    if node.op == "placeholder":
        return values[node.name]
    assert callable(node.target)
    return node.target(*[computed(arg, values) if isinstance(arg, fx.Node) else arg for arg in node.args])


def test_a_symbol_is_read_once_from_what_brought_it_first() -> None:
    n, spec = square()
    recorder, _ = recorded(lambda x, y: (x.new_zeros(n), y.new_zeros(n)), spec, spec)
    assert raw(recorder) == ["sym_size_int", "new_zeros", "new_zeros_1"]
    read = recorder.node_of(n)
    assert read.args == (recorder.in_order()[0], 0) and read.meta["val"] is n
    assert [reads_size(node) for node in recorder.in_order()] == [False, False, True, False, False]


def test_a_stride_is_read_where_no_size_is_the_number() -> None:
    n = Symbols().size(8, "x.stride(0)")
    recorder, _ = recorded(lambda x: x.new_zeros(n), Spec.make((3, 2), (n, 1)))
    read = recorder.node_of(n)
    assert read.target is torch.ops.aten.sym_stride.int and read.args[1] == 0 and reads_size(read)


def test_an_expression_is_computed_once_and_right() -> None:
    n, spec = square()
    recorder, _ = recorded(lambda x: (x.new_zeros(n * 2 + 1), x.new_zeros(1 + n + n)), spec)
    node = recorder.node_of(2 * n + 1)
    *numbers, first, second = recorder.in_order()[1:]
    assert first.args[1] == second.args[1] == [node] and numbers[-1] is node
    assert len({(other.target, other.args) for other in numbers}) == len(numbers)
    for size in (3, 5):
        assert computed(node, {"primals_1": torch.zeros(size, size)}) == 2 * size + 1
    assert all("partitioner_tag" in other.meta and "stack_trace" in other.meta for other in recorder.in_order())


def test_a_number_that_became_known_needs_no_node() -> None:
    n, spec = square()
    recorder, x = recorded(lambda x: x, spec)
    assert n * 2 == 16  # an assumption
    with recorder:
        assert recorder.node_of(n) == 8 and recorder.node_of(n + 1) == 9 and raw(recorder) == []


def test_an_input_that_is_a_number_gives_it() -> None:
    n, recorder = Symbols().size(8, "n"), Recorder()
    assert isinstance(n, torch.SymInt)
    with recorder:
        node = recorder.symint_placeholder("n", n, PlainInput("args[0]", 0))
        assert recorder.node_of(n) is node and recorder.node_of(n * 3).all_input_nodes == [node]


def test_a_fork_knows_what_was_read_before_and_not_what_others_read() -> None:
    n, spec = square()
    recorder, x = recorded(lambda x: x.new_zeros(n), spec)
    forks = [recorder.fork(), recorder.fork()]
    doubles = []
    for fork in forks:
        with fork:
            doubles.append(fork.node_of(n * 2))
            assert fork.node_of(n) is recorder.node_of(n)
    assert doubles[0] is not doubles[1] and all(node not in recorder.nodes for node in doubles)


def test_a_number_that_depends_on_data_is_read_although_the_program_says_what_it_is() -> None:
    """The program may be wrong, and the call finds out."""
    with unbacked_sizes(Symbols()):
        recorder, found = recorded(lambda x: x.nonzero())
        count = found.shape[0]
        torch._check(count == 2)
        node = recorder.node_of(count)
        assert node.target is torch.ops.aten.sym_size.int and node.args == (found.meta_tag, 0)
        assert [str(n) for n in recorder.symints.unbacked()] == [str(node.meta["val"])]


def test_numbers_are_what_was_written_where_a_graph_runs_again() -> None:
    """Writes are removed by another run."""

    def program(x: torch.Tensor) -> Any:
        r = x.sum().item()
        x.mul_(2)
        return x * ((1 - r + 0.1 + 0.2) * 3.0 * 7.0) + (r + 1) ** 0.5

    values: set[str] = set()

    def compiler(graph: fx.GraphModule, example_inputs: object) -> Any:
        numbers = [node.meta.get("val") for node in graph.graph.nodes]
        values.update(str(number.node.expr) for number in numbers if type(number) is torch.SymFloat)
        return graph.forward

    compiled = aot_compile(program, fw_compiler=compiler)
    for number in (1.0, 2.0, 3.0):
        x = torch.full((2,), number)
        assert torch.equal(compiled(x.clone()), program(x))
    assert any("FloatMul" in value for value in values) and any("FloatPow" in value for value in values), values
    assert not any("+" in value or "*" in value for value in values), values
