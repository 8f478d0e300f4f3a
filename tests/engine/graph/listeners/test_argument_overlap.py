"""Operators of libraries that write places in memory that another of their arguments has, too, are refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from subclass_aot import Spec, aot_compile
from subclass_aot.engine.graph import Recorder
from subclass_aot.engine.graph.listeners.argument_overlap import ArgumentOverlap
from subclass_aot.errors import MutationError
from subclass_aot.meta import Storage
from subclass_aot.meta.symbols import SizesMustBeKnown, Symbols
from tests.engine.graph.recording import raw, recorded

SQUARE = Spec.of(torch.ones(3, 3))


@torch.library.custom_op("test_argument_overlap::fill", mutates_args={"x"})
def fill(x: torch.Tensor, y: torch.Tensor) -> None:
    """Writes one tensor into another."""
    x.copy_(y)


@torch.library.custom_op("test_argument_overlap::fill_all", mutates_args={"xs"})
def fill_all(xs: list[torch.Tensor], y: torch.Tensor) -> None:
    """Writes one tensor into several."""
    for x in xs:
        x.copy_(y)


@pytest.mark.parametrize(
    "program",
    [
        lambda x: fill(x, x.t()),
        lambda x: fill(x[0], x[:, 0]),
        lambda x: fill((y := x * 1)[:2], y[1:]),
        lambda x: fill(x[:2, :2], x[1:, 1:]),
        lambda x: fill(x.view(-1)[:4], x.view(-1)[2::2]),
        lambda x: fill(x[0], x.view(torch.int32)[0]),
        lambda x: fill_all([x[0], x[0]], x[1]),
    ],
)
def test_what_has_places_in_common(program: Any) -> None:
    match = r"(?s)fill.*writes `xs?`, and `(y|xs)` has elements in the same places.*test_argument_overlap.py.*x\[0\]"
    with pytest.raises(MutationError, match=match):
        recorded(program, SQUARE)


@pytest.mark.parametrize(
    "program",
    [
        lambda x: fill(x[0], x[1]),
        lambda x: fill((y := x * 1)[0], y[1]),
        lambda x: fill(*x.unbind(1)[:2]),
        lambda x: fill(x[:2, :1], x[1:, 1:2]),
        lambda x: fill(x.diagonal(1), x.diagonal(-1)),
        lambda x: fill(x.view(-1)[::2][:4], x.view(-1)[1::2]),
        lambda x: fill(x[0], x[1].view(torch.int32)),
        lambda x: fill_all([*x.split(1)], x.new_zeros(3)),
    ],
)
def test_parts_that_lie_apart(program: Any) -> None:
    recorder, _ = recorded(program, SQUARE)
    assert raw(recorder)[-1].startswith("fill")


@pytest.mark.parametrize(
    "program",
    [
        lambda x: fill(x[0], x[1]),
        lambda x: fill(x[:, 0], x[:, 1]),
        lambda x: fill(*x.chunk(2, 1)),
        lambda x: fill(x[:, ::2], x[:, 1::2]),
    ],
)
def test_parts_that_lie_apart_however_many_rows_there_are(program: Any) -> None:
    rows = Symbols().size(6, "rows")
    recorder, _ = recorded(program, Spec.make((rows, 4), (4, 1)))
    assert raw(recorder)[-1] == "fill"


def test_where_symbolic_sizes_do_not_tell_they_must_be_known() -> None:
    rows = Symbols().size(6, "rows")
    with pytest.raises(SizesMustBeKnown):
        recorded(lambda x: fill(x[:, 0], x[:, 1]), Spec.make((rows, rows), (rows, 1)))


def test_inputs_that_overlap() -> None:
    def program(x: Any, y: Any) -> None:
        fill(x, y)
        recorder.listeners.argument_overlap.of_inputs = {Storage.of(x): (0, 1), Storage.of(y): (0, 1)}
        with pytest.raises(MutationError, match="has elements in the same places"):
            fill(x, y)

    recorder = Recorder()
    recorded(program, SQUARE, SQUARE, recorder=recorder)
    assert raw(recorder) == ["fill"]


def test_what_lies_apart_and_what_is_given_again_to_be_read() -> None:
    recorder, _ = recorded(lambda x: (fill(x, x * 1), fill(x, x), x.add_(x)), SQUARE)
    assert raw(recorder) == ["mul", "fill", "fill_1", "add_"]


ONE_AFTER_THE_OTHER = {
    "swapped": lambda x, y: torch._foreach_add_([x, y], [y, x]),
    "one twice": lambda x, y: torch._foreach_add_([x, x, y], 1),
    "one twice, with others": lambda x, y: torch._foreach_add_([x, x], [y, y]),
    "views that overlap": lambda x, y: torch._foreach_mul_([x[:2], x[1:]], 2),
    "another layout": lambda x, y: torch._foreach_copy_([x.t(), y], [y, x]),
}


@pytest.mark.parametrize("program", ONE_AFTER_THE_OTHER.values(), ids=ONE_AFTER_THE_OTHER)
def test_lists_that_read_what_they_write_elsewhere(program: Any) -> None:
    """Eager mode takes one tensor after the other, and a graph reads all before it writes."""
    with pytest.raises(MutationError, match="has elements in the same places"):
        recorded(program, SQUARE, SQUARE)


def test_lists_that_read_what_they_write_at_one_place() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> None:
        torch._foreach_add_([x, y], [x, y])
        torch._foreach_mul_([x[:1], x[1:]], [y, y])
        torch._foreach_add_([x, y], 1)

    compiled = aot_compile(program)
    here, there = [[torch.arange(4.0).view(2, 2), torch.ones(2)] for _ in range(2)]
    compiled(*here)
    program(*there)
    assert all(map(torch.equal, here, there))


def _out(name: str, *sources: Any) -> Any:
    """Makes a program that computes into its argument what it reads there."""

    def program(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            getattr(torch, name)(*[source(x) if callable(source) else source for source in sources], out=x)
        return x

    return program


def _writes(write: Any) -> Any:
    def program(x: torch.Tensor) -> torch.Tensor:
        write(x)
        return x

    return program


READING_WHAT_IT_WRITES = {
    "one element": _out("mul", lambda x: x.view(-1)[:1], lambda x: x.clone()),
    "a row": _out("mul", lambda x: x[:1], lambda x: x.clone()),
    "the tensor": _out("mul", lambda x: x, lambda x: x),
    "the same places": _out("mul", lambda x: x.view(6, 6), 2.0),
    "of a composite operator": _out("kron", lambda x: x.view(-1)[:6].view(6, 1), lambda x: x[:1].clone()),
    "an outer product": _out("outer", lambda x: x[0], lambda x: x[1].clone()),
    "in place": _writes(lambda x: x.sub_(x[:1])),
    "transposed": _writes(lambda x: x.add_(x.t())),
    "shifted": _writes(lambda x: torch.exp(x.view(-1)[:6], out=x.view(-1)[2:8])),
    "copied": _writes(lambda x: x.view(-1)[1:].copy_(x.view(-1)[1:])),
    "cat": _writes(lambda x: torch.cat([x[1:3], x[1:3]], out=x[:4])),
    "where": _out("where", lambda x: x[:1] > 0, lambda x: x[:1], lambda x: x * 1),
    "lerp": _writes(lambda x: x.lerp_(x[:1], 0.5)),
    "into the same": _writes(lambda x: torch.sigmoid(x, out=x)),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", READING_WHAT_IT_WRITES)
def test_torchs_operators_are_refused_where_their_kernels_refuse(name: str, dynamic: bool) -> None:
    program = READING_WHAT_IT_WRITES[name]

    def outcome(function: Any) -> Any:
        x = torch.arange(1.0, 37).reshape(6, 6) / 36
        try:
            return function(x)
        except RuntimeError as error:
            return "unsupported operation" in str(error)

    eager, ours = outcome(program), outcome(aot_compile(program, dynamic=dynamic))
    assert isinstance(eager, bool) is isinstance(ours, bool)
    if isinstance(eager, torch.Tensor):
        torch.testing.assert_close(ours, eager)
    else:
        assert eager and ours


def test_no_collective_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would talk to other ranks: one gathers into a buffer of which its own part is the input."""
    gather: Any = torch.ops._c10d_functional.all_gather_into_tensor_out.default
    tried: list[Any] = []
    monkeypatch.setattr(ArgumentOverlap, "_refuse_as_its_kernel", lambda *given: tried.append(given))

    def program(x: Any) -> None:
        ArgumentOverlap().on_operator(Recorder(), gather, (x[:1], 3, "0"), {"out": x}, None)

    recorded(program, SQUARE)
    assert not tried


def last_column(y: torch.Tensor) -> torch.Tensor:
    y[..., -1] += 1e-6
    return y


def into_itself(y: torch.Tensor) -> torch.Tensor:
    return torch.add(y, 1, out=y)


def half(y: torch.Tensor) -> torch.Tensor:
    y[: y.shape[0] // 2].mul_(2)
    return y


def both(y: torch.Tensor) -> torch.Tensor:
    z = torch.cat([y, y])
    z[: y.shape[0]].add_(z[: y.shape[0]])
    return z


def transposed(y: torch.Tensor) -> torch.Tensor:
    z = y.t().contiguous()
    z[0].sub_(z[0] * 2).clamp_(max=z[0])
    return z


@pytest.mark.parametrize("program", [last_column, into_itself, half, both, transposed])
def test_sizes_that_depend_on_data(program: Any) -> None:
    def with_rows(x: torch.Tensor) -> torch.Tensor:
        return program(x[x[:, 0] > 0])

    compiled = aot_compile(with_rows)
    for rows in (4, 5, 6):
        x = torch.randn(rows, 3)
        x[:2, 0] = torch.tensor([2.0, -2.0])
        torch.testing.assert_close(compiled(x), with_rows(x))
    assert "nothing was compiled" not in compiled.explain()


def test_an_overlap_in_rows_that_depend_on_data_is_refused() -> None:
    def shifted(x: torch.Tensor) -> torch.Tensor:
        y = x[x > 0]
        return y[1:].add_(y[:-1])

    with pytest.raises(MutationError, match="its kernel refuses"):
        aot_compile(shifted)(torch.ones(4))
