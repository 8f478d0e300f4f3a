"""What a recorder notes of places in memory: who asks where an input begins, and what reaches out of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from subclass_aot import MetaTensor, Spec, TwoTensor, aot_compile
from subclass_aot.engine.graph import REPLACED, Recorder
from subclass_aot.engine.graph.listeners import places
from subclass_aot.errors import TraceError
from subclass_aot.kit.views import regenerated_view
from subclass_aot.meta import Replaced, Storage
from tests.engine.graph.recording import gone_backward, raw, recorded

aten: Any = torch.ops.aten
SLICE = Spec.of(torch.ones(20)[3:15])
SQUARE = Spec.of(torch.ones(20)[3:15].view(3, 4))


def noted(program: Callable[[Any], Any], spec: Spec = SLICE) -> tuple[Recorder, list[str]]:
    """A recorder of a program, with what is called in place of functions, and the inputs that it notes."""
    recorder = Recorder()

    def within(x: Any) -> Any:
        with Replaced(recorder, REPLACED):
            return program(x)

    recorded(within, spec, recorder=recorder)
    return recorder, [node.name for node in recorder.begins_read if node.op == "placeholder"]


@pytest.mark.parametrize(
    ("program", "count"),
    [
        (lambda x: x.storage_offset(), 1),
        (lambda x: x[2:].storage_offset(), 1),
        (lambda x: torch.Tensor.storage_offset(x), 1),
        (lambda x: aten.sym_storage_offset(x), 1),
        (lambda x: aten.sym_storage_offset.default(x), 1),
        (lambda x: x.as_strided((2,), (1,), 4), 1),
        (lambda x: x[1:].as_strided((2,), (1,), storage_offset=4), 1),
        (lambda x: x.as_strided_((2,), (1,), 4), 1),
        (lambda x: torch.as_strided_copy(x, (2,), (1,), 4), 1),
        (lambda x: torch.as_strided_scatter(x, torch.ones(2), (2,), (1,), 4), 1),
        (lambda x: x.as_strided((2,), (1,)), 0),
        (lambda x: x[2:].as_strided((2,), (1,)).unfold(0, 1, 1), 0),
        (lambda x: (x * 1).storage_offset() and (x * 1).as_strided((2,), (1,), 4), 0),
        (lambda x: x.view(3, 4).fill_diagonal_(2), 0),
        (lambda x: x.view(6, 2).fill_diagonal_(2, wrap=True), 0),
        (lambda x: regenerated_view(x, (2,), (5,), 1), 0),
        (lambda x: (x.data, x.clone(), x.is_contiguous(), repr(x)), 0),
    ],
)
def test_who_asks_where_an_input_begins(program: Callable[[Any], Any], count: int) -> None:
    _, names = noted(program)
    assert names == ["primals_1"] * count


def test_it_begins_where_it_began() -> None:
    assert recorded(lambda x: (x.storage_offset(), x[2:].storage_offset()), SLICE)[1] == (3, 5)
    assert MetaTensor(torch.ones(5)[2:]).storage_offset() == 2


def test_a_wrapper_is_noted_itself() -> None:
    recorder, seen = Recorder(), []

    def program(x: Any) -> None:
        wrapper = TwoTensor(x, x)
        seen.append(wrapper)
        with Replaced(recorder, REPLACED):
            wrapper.storage_offset()

    recorded(program, SLICE, recorder=recorder)
    assert [each is seen[0] for each in recorder.begins_read] == [True]
    assert any(held is recorder.begins_read for held in recorder.collections())


@pytest.mark.parametrize(
    ("program", "reaches"),
    [
        (lambda x: x.as_strided((12,), (1,)), False),
        (lambda x: x.as_strided((13,), (1,)), True),
        (lambda x: x[4:].as_strided((2,), (1,), 3), False),
        (lambda x: x[4:].as_strided((2,), (1,), 2), True),
        (lambda x: torch.as_strided_copy(x, (5,), (3,)), True),
        (lambda x: x.as_strided_((5,), (3,)), True),
        (lambda x: x.unfold(0, 3, 1), False),
    ],
)
def test_what_reaches_out_of_an_input(program: Callable[[Any], Any], reaches: bool) -> None:
    recorder, leaves = Recorder(), []
    recorded(lambda x: (leaves.append(x), program(x)), SLICE, recorder=recorder)
    assert recorder.listeners.places.reaching == (set(map(Storage.of, leaves)) if reaches else set())


def test_what_reaches_out_of_a_result_is_refused() -> None:
    with pytest.raises(TraceError, match=r"(?s)as_strided.default reaches out of the memory of a tensor\.\n.*x \* 1"):
        recorded(lambda x: (x * 1).as_strided((12,), (2,)), SLICE)


def test_what_reaches_out_of_the_storage_of_an_input_is_refused() -> None:
    program = lambda x: x.as_strided((2,), (8,)) * 2  # noqa: E731
    assert aot_compile(program)(torch.arange(13.0)[4:8]).tolist() == [8, 24]
    with pytest.raises(TraceError, match=r"(?s)reaches out of the memory of a tensor\..*as_strided\(\(2,\), \(8,\)\)"):
        aot_compile(program)(torch.arange(12.0)[4:8])


def test_what_reaches_out_of_an_input_in_backward_is_refused_unless_forward_did() -> None:
    recorder, (x, y) = recorded(lambda x, y: (x, (y.as_strided((3,), (9,)), y)[1]), SLICE, SLICE)
    gone_backward(recorder, lambda t: t + y.as_strided((3,), (8,)))
    with pytest.raises(TraceError, match="while gradients are computed"):
        gone_backward(recorder, lambda t: t + x.as_strided((3,), (8,)))
    assert recorder.listeners.places.reaching == {Storage.of(y)}


def test_forks_share_what_was_asked_and_not_what_they_made() -> None:
    recorder, x = recorded(lambda x: (x.unfold(0, 2, 2), x)[1], SLICE)
    fork, _ = gone_backward(recorder, lambda t: (x.storage_offset(), x.unfold(0, 3, 3), t)[2])
    assert recorder.begins_read is fork.begins_read
    assert [node.name for node in recorder.listeners.places.views] == ["unfold"]
    assert [node.name for node in fork.listeners.places.views] == ["unfold", "unfold_1"]


@pytest.mark.parametrize(
    "view",
    [
        lambda x: aten._unsafe_view(x, (3, 4)),
        lambda x: torch.unsafe_split(x, 5)[1],
        lambda x: torch.unsafe_split_with_sizes(x, [5, 7])[0],
        lambda x: torch.unsafe_chunk(x[2:], 2)[1],
    ],
)
def test_views_that_no_operator_calls_so(view: Callable[[Any], Any]) -> None:
    recorder, (x, part) = recorded(lambda x: (x, view(x)), SLICE)
    assert Storage.of(part) is Storage.of(part[1:]) is Storage.of(x)
    recorder, (x, part) = recorded(lambda x: (x, view(x).mul_(2)), SLICE)
    assert list(recorder.mutations.written) == [Storage.of(x)]


@pytest.mark.parametrize(
    ("make", "wrap"),
    [
        (lambda: torch.arange(12.0).view(3, 4), False),
        (lambda: torch.arange(24.0).view(4, 6)[:, 1:4].t(), False),
        (lambda: torch.arange(30.0)[3:].view(9, 3), True),
        (lambda: torch.arange(12.0).view(4, 3), True),
        (lambda: torch.arange(12.0).view(6, 2), True),
        (lambda: torch.arange(64.0).view(4, 4, 4), False),
        (lambda: torch.arange(16.0).view(2, 2, 2, 2).transpose(0, 3), False),
        (lambda: torch.arange(3.0).view(3, 1), True),
    ],
)
def test_a_diagonal_is_what_torch_fills(
    make: Callable[[], torch.Tensor], wrap: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule: Any = REPLACED[torch.Tensor.fill_diagonal_]
    expected, got = make(), make()
    expected.fill_diagonal_(-1.0, wrap)
    monkeypatch.setattr(places, "MetaTensor", torch.Tensor)  # tensors with data can be compared
    assert rule(None, got, -1.0, wrap) is got
    assert torch.equal(got, expected)


def test_torch_says_which_diagonals_there_are_not() -> None:
    for shape, message in (((3,), "larger than 1"), ((2, 3, 2), "of equal length")):
        with pytest.raises(RuntimeError, match=message):
            noted(lambda x, shape=shape: x[: torch.Size(shape).numel()].view(shape).fill_diagonal_(1))


def test_a_diagonal_is_recorded_as_one() -> None:
    recorder, _ = noted(lambda x: x.fill_diagonal_(2), SQUARE)
    assert raw(recorder) == ["diagonal", "fill_"]


def _with_the_gradient(x: torch.Tensor, program: Callable[..., Any], w: torch.Tensor) -> list[torch.Tensor]:
    """What a program returns, what is in `x` then, and gradients of a weight: each element counts otherwise."""
    results = program(x, w)
    results = list(results) if isinstance(results, tuple) else [results]
    loss = sum((each * torch.arange(1.0, 1 + each.numel()).view(each.shape)).sum() for each in results)
    loss.backward()  # type: ignore[union-attr]
    assert w.grad is not None
    return [*(each.detach() for each in results), x.detach(), w.grad]


BEGINS: dict[str, Callable[[], torch.Tensor]] = {
    "a slice": lambda: torch.arange(12.0)[2:],
    "columns": lambda: torch.arange(12.0).view(3, 4)[:, 1:],
    "transposed": lambda: torch.arange(12.0).view(3, 4)[1:].t(),
    "whole": lambda: torch.arange(12.0),
}
WRITES: dict[str, Callable[..., Any]] = {
    "a product": lambda x, w: (x.as_strided((2,), (1,), x.storage_offset()).mul_(w), x * 2)[1],
    "of two dims": lambda x, w: (x.as_strided((1, 2), (4, 1), x.storage_offset()).copy_(w), x * 2)[1],
    "behind the beginning": lambda x, w: (x.as_strided((1,), (1,), x.storage_offset() + 2).add_(w[:1]), x * 2)[1],
    "by a function": lambda x, w: (torch.as_strided(x, (2,), (2,), x.storage_offset()).copy_(w * w), x * w[0])[1],
    "of a view": lambda x, w: (x[1:].as_strided((1,), (1,), x[1:].storage_offset()).mul_(w[0]), x * 2)[1],
    "by a part of it": lambda x, w: (x.as_strided((2,), (1,), x.storage_offset())[1:].mul_(w[1]), x * 2)[1],
    "that is read": lambda x, w: ((v := x.as_strided((2,), (1,), x.storage_offset())).mul_(w), v * 3, x * 2)[1:],
    "read alone": lambda x, w: x.as_strided((2,), (1,), x.storage_offset()) * w,
    "twice": lambda x, w: (
        x.as_strided((1,), (1,), x.storage_offset()).mul_(w[0]),
        x.as_strided((2,), (1,), x.storage_offset()).mul_(w[1]),
        x * 2,
    )[2],
    "of the operator": lambda x, w: (aten.as_strided(x, [2], [1], x.storage_offset()).mul_(w), x * 2)[1],
    "of the detached": lambda x, w: ((y := x.detach()).as_strided((2,), (1,), y.storage_offset()).mul_(w), y * 2)[1],
}


@pytest.mark.every_case
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("make", BEGINS.values(), ids=BEGINS)
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_gradients_of_writes_that_count_from_the_beginning_of_the_storage(
    write: Callable[..., Any], make: Callable[[], torch.Tensor], dynamic: bool
) -> None:
    compiled = aot_compile(write, dynamic=dynamic)
    ours = _with_the_gradient(make(), compiled, torch.tensor([3.0, 5.0], requires_grad=True))
    theirs = _with_the_gradient(make(), write, torch.tensor([3.0, 5.0], requires_grad=True))
    for mine, expected in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, expected, rtol=0, atol=0)


@pytest.mark.every_case
@pytest.mark.parametrize(("sizes", "dim"), [([1, 2, 3], 0), ([2, 4], 0), ([3, 3], 0), ([2, 4], 1), ([3, 3], 1)])
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_gradients_of_writes_into_parts_that_autograd_does_not_know(
    write: Callable[..., Any], sizes: list[int], dim: int
) -> None:
    def program(x: torch.Tensor, w: torch.Tensor) -> Any:
        return write(torch.unsafe_split_with_sizes(x * w[1], sizes, dim)[1], w)

    ours, theirs = (
        _with_the_gradient(torch.arange(36.0).view(6, 6), each, torch.tensor([3.0, 5.0], requires_grad=True))
        for each in (aot_compile(program), program)
    )
    for mine, expected in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, expected, rtol=0, atol=0)


def test_a_gradient_of_what_begins_before_the_tensor_is_refused() -> None:
    def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        x.as_strided((2,), (1,), 1).mul_(w)
        return x * 2

    x = torch.arange(6.0)[2:]
    with pytest.raises(TraceError, match=r"(?s)reaches out of .* before its first element.*test_places.py"):
        aot_compile(program)(x, torch.ones(2, requires_grad=True))
    assert torch.equal(aot_compile(program)(x, torch.tensor([3.0, 5.0])), torch.tensor([20.0, 6.0, 8.0, 10.0]))


def test_a_gradient_of_memory_between_the_elements_is_refused() -> None:
    """Eager mode gives what the memory held."""
    with pytest.raises(TraceError, match=r"(?s)reaches out of .* while gradients are computed"):
        aot_compile(WRITES["a product"])(torch.arange(12.0)[1::2], torch.ones(2, requires_grad=True))


READS: dict[str, Callable[[Any], Any]] = {
    "from the beginning": lambda x: x.as_strided((2,), (1,), x.storage_offset()) * 2,
    "from behind it": lambda x: x.as_strided((2,), (2,), x.storage_offset() + 1) * 2,
    "of a view": lambda x: x[1:].as_strided((2,), (1,), x.storage_offset() + 1) * 2,
    "of one another": lambda x: (
        x.as_strided((2,), (1,), x.storage_offset()).as_strided((1,), (1,), x.storage_offset() + 1) * 3
    ),
    "windows": lambda x: x.as_strided((2, 2), (1, 1), x.storage_offset()) * torch.arange(4.0).view(2, 2),
    "a copy": lambda x: torch.as_strided_copy(x, (2,), (1,), x.storage_offset()) * 2,
    "a write elsewhere": lambda x: ((y := x * 1).as_strided((2,), (1,), 1).mul_(x.sum()), y * 2)[1],
}


@pytest.mark.every_case
@pytest.mark.parametrize("make", BEGINS.values(), ids=BEGINS)
@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_gradients_of_reads_that_count_from_the_beginning_of_the_storage(
    read: Callable[[Any], Any], make: Callable[[], torch.Tensor]
) -> None:
    found = []
    for program in (aot_compile(read), read):
        x = make().requires_grad_()
        result = program(x)
        (result * torch.arange(1.0, 1 + result.numel()).view(result.shape)).sum().backward()
        found.append((result.detach(), x.grad))
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=0)


def test_two_tensors_that_begin_elsewhere_and_have_the_same_view_are_refused() -> None:
    def program(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        x.as_strided((2,), (1,), 3).mul_(w)
        y.as_strided((2,), (1,), 3).mul_(w)
        return x.sum() + y.sum()

    arguments = torch.arange(9.0)[2:], torch.arange(9.0)[1:], torch.ones(2, requires_grad=True)
    with pytest.raises(TraceError, match="of another that begins elsewhere"):
        aot_compile(program)(*arguments)
