"""What was recorded so far, run on the call's own tensors: in its order, once, and without a trace of it afterwards."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

from subclass_aot import MetaTensor, Spec, aot_compile
from subclass_aot.engine.graph import Looks, Recorder, Retrace, generators
from subclass_aot.engine.graph.looks import Recorded, may_be_compared
from subclass_aot.meta.symbols import Symbols, unbacked_sizes
from tests.engine.graph.recording import raw, recorded

aten: Any = torch.ops.aten


def now(recorder: Recorder) -> Recorded:
    """What was recorded so far, of which the program has every tensor."""
    nodes = recorder.in_order()
    constants = recorder.listeners.real_tensors.constants
    return Recorded(nodes, constants, recorder.written_nodes(), nodes)


def run(program: Callable[..., Any], *values: torch.Tensor) -> tuple[Any, list[Any]]:
    """What the nodes of a program's results have as values in a call, and all that it recorded."""
    looks = Looks()
    recorder, results = recorded(program, *map(Spec.of, values))
    looks.start(dict(zip(recorder.in_order(), values, strict=False)), generators())
    return [looks.value(now(recorder), leaf.meta_tag) for leaf in results], raw(recorder)


CONSTANT = torch.arange(3.0)
PROGRAMS: dict[str, Callable[[Any, Any], tuple[Any, ...]]] = {
    "views": lambda x, y: (x.t()[0], x.sum(1), (x @ y)),
    "several results": lambda x, y: (*x.max(0), x.split(1)[1]),
    "a real tensor": lambda x, y: (x + CONSTANT,),
    "a write": lambda x, y: (x.mul_(2), x + y),
    "a write into a view": lambda x, y: (x[0].zero_(), x.sum(), y * x),
    "a look of its own": lambda x, y: ((x + y).t_() @ y,),
    "an input turned": lambda x, y: (x.t_().contiguous(), x.sum(0)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_are_those_of_eager_mode_and_inputs_stay_as_they_are(name: str) -> None:
    values = [torch.randn(3, 3), torch.randn(3, 3, requires_grad=True)]
    before = [(x.clone(), x._version, x.stride()) for x in values]
    with torch.no_grad():
        expected = PROGRAMS[name](*[x.clone() for x in values])
    got, _ = run(PROGRAMS[name], *values)
    for one, other in zip(expected, got, strict=True):
        torch.testing.assert_close(other, one)
        assert not other.requires_grad
    for value, (copy, version, stride) in zip(values, before, strict=True):
        assert torch.equal(value, copy) and value._version == version and value.stride() == stride


def test_inputs_that_share_memory_share_the_copy_of_it() -> None:
    base = torch.zeros(4)
    (written, seen), _ = run(lambda x, y: (x.add_(1), y * 2), base[:3], base[1:])
    assert seen.tolist() == [2, 2, 0] and base.tolist() == [0] * 4


def test_each_operator_runs_once_and_draws_go_on() -> None:
    looks, recorder = Looks(), Recorder()
    torch.manual_seed(0)
    expected = [torch.rand(3), torch.rand(3)]
    torch.manual_seed(0)
    state = torch.get_rng_state()
    looks.start({}, generators())
    got = []
    for _ in range(2):
        with recorder:
            leaf: Any = torch.rand(3)
        got += [looks.value(now(recorder), leaf.meta_tag) for _ in range(2)]
    assert all(map(torch.equal, got, [expected[0], expected[0], expected[1], expected[1]]))
    assert got[0] is got[1] and got[2] is got[3] and torch.equal(torch.get_rng_state(), state)


def test_a_write_that_comes_later_has_all_run_again_on_a_copy() -> None:
    """With the numbers that were drawn the first time."""
    looks, value = Looks(), torch.ones(3)
    recorder, (x, noise) = recorded(lambda x: (x, torch.rand(3)))
    looks.start({x.meta_tag: value}, generators())
    first = looks.value(now(recorder), noise.meta_tag)
    torch.rand(3)  # of somebody else
    with recorder:
        x.add_(noise)
    assert torch.equal(looks.value(now(recorder), x.meta_tag), first + 1) and value.tolist() == [1] * 3


def test_a_call_without_data_has_no_values() -> None:
    for value in (torch.ones(3, device="meta"), MetaTensor(torch.ones(3))):
        assert run(lambda x: (x.sin(),), value)[0] == [None]


@pytest.mark.parametrize("let_go", [Looks.forget, lambda looks: looks.start({}, generators())])
def test_nothing_of_a_call_is_kept(let_go: Callable[[Looks], None]) -> None:
    looks, value = Looks(), torch.ones(3)
    recorder, y = recorded(lambda x: x.sin())
    looks.start({recorder.in_order()[0]: value}, generators())
    result = looks.value(now(recorder), y.meta_tag)
    assert looks.has_answered
    gone = weakref.ref(value), weakref.ref(result)
    del value, result
    let_go(looks)
    gc.collect()
    assert [ref() for ref in gone] == [None, None] and looks.found == []


REAL, BOOL = torch.ones(3), torch.ones(3, dtype=torch.bool)
ITEM, SELECT = aten._local_scalar_dense.default, aten.nonzero.default


@pytest.mark.parametrize(
    ("looks", "func", "tensor", "has_symbols", "expected"),
    [
        (Looks(), ITEM, REAL, False, True),
        (Looks(), ITEM, REAL, True, True),
        (Looks(symbolic=True), ITEM, REAL, True, False),
        (Looks(symbolic=True), ITEM, REAL, False, True),
        (Looks(symbolic=True), ITEM, BOOL, True, True),
        (Looks(symbolic=True), ITEM, REAL.to(torch.complex64), True, True),
        (Looks(["there"]), ITEM, REAL, True, False),
        (Looks(["elsewhere"]), ITEM, REAL, True, True),
        (Looks(), SELECT, REAL, True, False),
        (Looks(fixed=True), SELECT, REAL, True, True),
        (Looks(fixed=True), SELECT, REAL, False, True),
        (Looks(), aten.index.Tensor, REAL, True, False),
    ],
)
def test_what_the_call_answers_and_what_is_a_symbol(
    looks: Looks, func: Any, tensor: torch.Tensor, has_symbols: bool, expected: bool
) -> None:
    assert looks.are_wanted(func, tensor, "there", has_symbols) is expected


def test_a_size_by_data_wants_a_trace_with_symbols() -> None:
    with pytest.raises(Retrace, match="data_dependent_sizes"):
        Looks().are_wanted(SELECT, REAL, "there", has_symbols=False)


def test_a_symbol_has_the_value_of_the_call() -> None:
    symbols, looks, value = Symbols(), Looks(), torch.tensor([0.0, 1.0, 2.0])
    symbols.answer(looks.of_symbol, False)
    recorder = Recorder(looks=looks)

    def program(x: MetaTensor) -> tuple[bool, bool]:
        looks.start({x.meta_tag: value}, generators())
        rows = x.nonzero().shape[0]
        return bool(rows == 2), bool(rows > 5)

    with unbacked_sizes(symbols):
        _, answers = recorded(program, recorder=recorder)
    assert answers == (True, False)


def test_how_many_values_may_be_compared() -> None:
    assert may_be_compared(torch.empty(1 << 16)) and not may_be_compared(torch.empty((1 << 16) + 1))


def _dropped(x: Any) -> Any:
    for factor in (2, 3):
        x = torch.nn.functional.dropout(x, 0.5)
        if torch.rand([]) < 0.5:
            x = x * factor
    return x


def _skipped(x: Any) -> Any:
    x = torch.nn.functional.scaled_dot_product_attention(x, x, x, dropout_p=0.5)
    for factor in (2, 3):
        if torch.rand([]) < 0.5:
            x = torch.nn.functional.dropout(x * factor, 0.5)
    return x


def _drawn_number(x: Any) -> Any:
    return x * torch.rand([]).item() + torch.randint(0, 9, ()).item()


@pytest.mark.parametrize("program", [_dropped, _skipped, _drawn_number])
def test_what_is_drawn_for_a_look_is_what_the_call_draws(program: Any) -> None:
    compiled = aot_compile(program)
    for seed in range(6):
        x = torch.randn(2, 2, 4, 4, requires_grad=True)
        torch.manual_seed(seed)
        expected, state = program(x), torch.get_rng_state()
        torch.manual_seed(seed)
        torch.testing.assert_close(compiled(x), expected)
        assert torch.get_rng_state().equal(state)
