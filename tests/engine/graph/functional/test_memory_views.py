"""Views that are written, made of what owns the memory, in graphs without writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from subclass_aot import Spec, aot_compile, trace_joint
from subclass_aot.engine.graph.functional.memory_views import FlatStorage
from subclass_aot.errors import MutationError
from tests.engine.graph.recording import finished, recorded

aten: Any = torch.ops.aten
LATER = Spec.of(torch.ones(20)[3:15])


def operators(program: Callable[..., Any], spec: Spec = LATER) -> list[str]:
    recorder, result = recorded(program, spec)
    return [name.rstrip("_0123456789") for name, reads in finished(recorder, result) if reads]


SLICES = {"slice", "slice_scatter", "view", "mul", "unsqueeze", "squeeze", "select", "select_scatter"}


@pytest.mark.parametrize(
    "write",
    [
        lambda x: x.unfold(0, 5, 5).mul_(2),
        lambda x: x.unfold(0, 2, 4).mul_(2),
        lambda x: x[1:].as_strided((3,), (3,)).mul_(2),
        lambda x: x.as_strided((2, 2), (6, 1), 4).mul_(2),
        lambda x: x.as_strided_((2, 2), (6, 1), 4).mul_(2),
    ],
)
def test_what_is_made_of_slices_is_written_by_slices(write: Callable[[Any], Any]) -> None:
    names = operators(lambda x: (write(x), x * 1)[1])
    assert "slice_scatter" in names and "clone" not in names and not any("as_strided" in name for name in names)


def test_what_is_not_is_written_in_a_flat_copy() -> None:
    names = operators(lambda x: (x.unfold(0, 2, 5).mul_(2), x * 1)[1])
    assert names[0] == "clone" and "as_strided_scatter" in names


@pytest.mark.parametrize(
    ("view", "names"),
    [
        (lambda x: x.as_strided((3,), (2,), 4), ["slice"]),
        (lambda x: x.as_strided((3, 3), (2, 1), 4), ["slice", "unfold", "unfold", "select"]),
        (lambda x: x.as_strided((3,), (2,)), ["as_strided"]),
        (lambda x: x.unfold(0, 3, 1), ["unfold"]),
    ],
)
def test_what_is_only_read(view: Callable[[Any], Any], names: list[str]) -> None:
    """An offset no longer counts from where the storage of an input begins; what counts from nothing is as it was."""
    found = operators(lambda x: view(x) * 2)
    assert found == [*names, "mul"]


@pytest.mark.parametrize(
    ("program", "names"),
    [
        (lambda x: aten._unsafe_view(x, (3, 4)).mul_(2), ["view", "mul", "view", "view"]),
        (lambda x: aten._unsafe_view(x * 1, (3, 4)).mul_(2), ["mul", "view", "mul", "view", "view"]),
        (lambda x: aten._unsafe_view(x, (3, 4)).mul(2), ["unsafe_view", "mul"]),
        (lambda x: (aten._unsafe_view(y := x * 1, (3, 4)).mul_(2), y)[1], ["mul", "view", "mul", "view"]),
    ],
)
def test_unsafe_views_are_views_where_the_memory_is_written(program: Callable[[Any], Any], names: list[str]) -> None:
    found = [name.lstrip("_") for name in operators(program)]
    assert found == names


def test_several_types_are_refused() -> None:
    def program(x: Any) -> Any:
        x.view(torch.int32).unfold(0, 2, 5).fill_(2)
        x.unfold(0, 2, 5).mul_(2)
        return x

    with pytest.raises(MutationError, match=r"(?s)seen as several types.*aten.unfold.*test_memory_views.py"):
        operators(program)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.complex64])
@pytest.mark.parametrize("part", [lambda x: x, lambda x: x[3:], lambda x: x[::2], lambda x: x.view(2, 6).t()])
def test_a_storage(part: Callable[[torch.Tensor], torch.Tensor], dtype: torch.dtype) -> None:
    value = part(torch.arange(12).to(dtype))
    spec = Spec.of(value)
    storage = FlatStorage.of(value, spec, dtype)
    assert torch.equal(storage.view(spec), value) and storage.flat.dim() == 1
    inner = value[1:]
    assert torch.equal(storage.view(Spec.of(inner)), inner)
    if spec.is_packed and dtype is torch.complex64:
        real = torch.view_as_real(value)
        storage = FlatStorage.of(value, spec, torch.float32)
        assert torch.equal(storage.view(spec), value) and torch.equal(storage.view(Spec.of(real[1:])), real[1:])


@st.composite
def programs(draw: st.DrawFn) -> list[tuple[str, ...]]:
    """Writes through windows and strided views of one tensor, one after the other."""
    found = []
    for _ in range(draw(st.integers(1, 3))):
        parts = draw(st.lists(st.sampled_from(["[1:]", "[::2]", ".view(-1)", ".flip(0)", ""]), max_size=1))
        size, step = draw(st.integers(1, 3)), draw(st.integers(1, 5))
        view = draw(
            st.sampled_from([f".unfold(0, {size}, {max(size, step)})", f".as_strided((2, 2), ({step + 1}, 1))"])
        )
        found.append((*parts, view))
    return found


@settings(max_examples=60)
@given(programs(), st.integers(0, 3), st.booleans())
def test_any_of_them(views: list[tuple[str, ...]], begins: int, computed: bool) -> None:
    lines = [f"x{''.join(view)}.mul_({i + 2})" for i, view in enumerate(views)]
    scope: dict[str, Any] = {}
    first = "x = x * 1\n    " if computed else ""
    exec(f"def program(x):\n    {first}" + "\n    ".join([*lines, "return x * 1"]), scope)
    memory = torch.arange(20.0)
    expected = scope["program"](memory.clone()[begins : begins + 12])
    graph = trace_joint(scope["program"], memory.clone()[begins : begins + 12]).graph_module
    *written, got = graph(memory.clone()[begins : begins + 12])
    assert torch.equal(got, expected) and (computed or torch.equal(written[0], expected))


@pytest.mark.parametrize(
    "part",
    [
        lambda x: torch.unsafe_split(x, 1)[0],
        lambda x: torch.unsafe_split(x, 1)[1],
        lambda x: torch.unsafe_split(x, 2, 1)[0],
        lambda x: torch.unsafe_split_with_sizes(x, [1, 2, 1])[1],
        lambda x: torch.unsafe_chunk(x, 4)[1],
    ],
)
@pytest.mark.parametrize("written", ["nothing", "part", "whole"])
def test_what_reaches_out_of_a_part_that_autograd_does_not_know(part: Any, written: str) -> None:
    def program(x: Any) -> Any:
        one = part(x)
        view = one.as_strided((2, 2), (4, 1), one.storage_offset())
        if written != "nothing":
            (x if written == "whole" else one).mul_(2)
        return view * 3, one + 1, x - 1

    x, y = torch.arange(16.0).reshape(4, 4), torch.arange(16.0).reshape(4, 4)
    for ours, theirs in zip((*aot_compile(program)(x), x), (*program(y), y), strict=True):
        assert torch.equal(ours, theirs)
