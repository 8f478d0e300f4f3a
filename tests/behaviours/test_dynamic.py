"""Sizes that change between calls, and sizes that depend on data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor

from subclass_aot import Int8Weight, Outer, WrapperTensor, aot_compile, mark_dynamic
from subclass_aot.errors import DataDependentError, RuntimeAssertError
from subclass_aot.testing import dense_leaves
from tests.behaviours.conftest import compare, observe
from tests.classes import Flat

SIZES = (4, 3, 7, 9)


class Packed(WrapperTensor):
    """A `[M, N]` matrix of four-bit numbers, two to a byte."""

    bytes_: torch.Tensor  # uint8[M, N // 2]
    scale: torch.Tensor  # float[M, 1]

    def outer_metadata(self) -> Outer:
        rows, half = self.bytes_.shape
        return Outer.like(self.scale, size=(rows, 2 * half))

    def to_plain(self) -> torch.Tensor:
        low, high = self.bytes_ & 15, self.bytes_ >> 4
        return torch.stack([low, high], -1).flatten(1).to(self.scale.dtype) * self.scale


def packed(rows: int, columns: int, seed: int = 0) -> Packed:
    generator = torch.Generator().manual_seed(seed)
    codes = torch.randint(0, 256, (rows, columns // 2), dtype=torch.uint8, generator=generator)
    return Packed(codes, torch.rand(rows, 1, generator=generator))


def agree_on(
    program: Callable[..., Any],
    make: Callable[[int], tuple[Any, ...]],
    later: Any = None,
    *,
    sizes: tuple[int, ...] = SIZES,
    traces: int = 2,
    **options: Any,
) -> Any:
    """Compares with eager at several sizes. Returns the compiled program, which was traced `traces` times."""
    compiled = aot_compile(program, **options)
    for size in sizes:
        compare(observe(program, make(size), later), observe(compiled, make(size), later))
    assert len(compiled.recompiles) + 1 == traces, compiled.recompiles
    return compiled


@pytest.mark.parametrize("fw_compiler", ["eager", "inductor"])
@pytest.mark.parametrize(("dynamic", "traces"), [(None, 2), (True, 1), (False, 4)])
@pytest.mark.filterwarnings("ignore")
def test_sizes_change(kind: Any, fw_compiler: str, dynamic: bool | None, traces: int) -> None:
    if fw_compiler == "inductor" and (kind.name != "two" or dynamic is False):
        fw_compiler = "eager"  # a compilation takes long

    def program(x: Any, y: Any) -> Any:
        z = x * 2
        return z.sum(0), z.unsqueeze(1)[1:], x + y, x.shape, x.shape[0] * 3

    def make(n: int) -> Any:
        return kind(n, 4, grad=True), kind(n, 4, seed=1)

    def later(args: Any, out: Any) -> Any:
        return torch.autograd.grad(out[0].to(torch.float64).sum(), args[0])

    agree_on(program, make, later, traces=traces, dynamic=dynamic, fw_compiler=fw_compiler)


def test_writes_with_sizes_that_change(kind: Any) -> None:
    def program(x: Any, y: Any) -> Any:
        with torch.no_grad():
            x[1:].mul_(y.shape[0])
        y.mul_(2)
        return x + y, y

    agree_on(program, lambda n: (kind(n, 4), kind(n, 4, seed=1)))


def test_views_of_inputs_with_sizes_that_change(kind: Any) -> None:
    def program(x: Any) -> Any:
        return x[1:], x.transpose(0, 1)[:, : x.shape[0] // 2], x.unsqueeze(0)

    agree_on(program, lambda n: (kind(n, 4, grad=True),))


def test_inner_sizes_that_differ_from_the_outer() -> None:
    def program(x: Any, w: Any) -> Any:
        return x * w, w.shape

    def make(n: int) -> Any:
        return torch.ones(5, 2 * n, requires_grad=True), packed(5, 2 * n)

    compiled = agree_on(program, make, lambda args, out: torch.autograd.grad(out[0].sum(), args[0]))
    symbolic = [line.strip() for line in compiled.explain().splitlines() if " is s" in line or "guard" in line]
    assert symbolic == ["args[1].bytes_.size(1) is s2", "guard: s2 >= 2"], "the sizes of both follow from one"


def test_outer_sizes_of_a_class_without_rule() -> None:
    agree_on(
        lambda x: (x * 2, x.detach().sum()),
        lambda n: (Flat(torch.arange(float(6 * n)), (n, 6)).requires_grad_(),),
        lambda args, out: torch.autograd.grad(out[0], args[0], Flat(torch.ones(args[0].numel()), args[0].shape)),
    )


def test_undefined_gradients_have_the_size_of_the_call() -> None:
    def program(x: Any) -> Any:
        return x * 2, x.sin().sum(1)

    def make(n: int) -> Any:
        return (TwoTensor(torch.rand(n, 3), torch.rand(n, 3)).requires_grad_(),)

    def later(args: Any, out: Any) -> Any:
        return torch.autograd.grad(out[1].sum(), args[0])

    def seeded(n: int) -> Any:
        torch.manual_seed(n)
        return make(n)

    agree_on(program, seeded, later)


@dataclass(frozen=True)
class Note:
    """A context that another library may have."""

    size: Any
    more: tuple[Any, ...] = ()


class Noted(WrapperTensor):
    """Knows a number, or several, besides its only field."""

    codes: torch.Tensor
    note: Any

    def to_plain(self) -> torch.Tensor:
        return self.codes * number_in(self.note)


def number_in(note: Any) -> Any:
    """The last number of what is noted."""
    while not isinstance(note, int | torch.SymInt):
        note = note.more if isinstance(note, Note) else note[-1]
    return note


@pytest.mark.parametrize(
    ("note", "compilations"),
    [
        (lambda x: x.shape[1], 1),
        (lambda x: x.shape, 1),
        (lambda x: ("n", x.shape[0], (x.shape[1] * 2,)), 2),
        (lambda x: Note(x.shape, (x.shape[1] + 1,)), 2),
    ],
    ids=["number", "size", "tuples", "dataclass"],
)
@pytest.mark.parametrize("trained", [False, True])
def test_a_result_that_notes_a_size_notes_that_of_the_call(note: Any, compilations: int, trained: bool) -> None:
    def program(x: torch.Tensor) -> Any:
        return Noted(x * 2, note(x))

    compiled = aot_compile(program, dynamic=True)
    for columns in (3, 5, 3):
        x = torch.rand(2, columns, requires_grad=trained)
        expected, got = program(x), compiled(x)
        assert type(got.note) is type(expected.note) and got.note == expected.note
        assert got.__tensor_flatten__() == expected.__tensor_flatten__()
        torch.testing.assert_close(got.to_plain(), expected.to_plain())
    assert len(compiled.recompiles) == compilations - 1, "a context that repeats the size of its wrapper is one for all"


def test_a_view_by_a_computed_size_is_of_the_size_of_the_call() -> None:
    """`reshape` of what does not lie in order is a view of a copy, and the copy's view knows its size."""
    compiled = aot_compile(lambda w: w.reshape(-1), dynamic=True)
    for columns in (3, 5):
        w = Int8Weight(torch.ones(columns, 2, dtype=torch.int8).t(), torch.rand(2, 1))
        torch.testing.assert_close(compiled(w).to_plain(), w.reshape(-1).to_plain())
    compiled = aot_compile(lambda w: w.reshape(-1), dynamic=True)
    for columns in (3, 5):
        noted = Noted(torch.rand(columns, 2).t(), 2)
        torch.testing.assert_close(compiled(noted).to_plain(), noted.reshape(-1).to_plain())


def test_a_branch_on_a_size_is_a_guard() -> None:
    compiled = agree_on(
        lambda x: x * 2 if x.shape[0] % 2 == 0 else x * 3,
        lambda n: (torch.ones(n, 3),),
        sizes=(4, 6, 5, 9, 8),
        dynamic=True,
    )
    assert compiled.recompiles == ["(s0 % 2) == 0 before, not so now, where s0 = 5, s1 = 3"]


def test_sizes_that_must_be_equal_are_a_guard() -> None:
    def make(n: int) -> Any:
        return torch.ones(n, 3), torch.ones(n, 3)

    compiled = agree_on(lambda x, y: x + y, make, dynamic=True, traces=1)
    broadcast = torch.ones(4, 3), torch.ones(1, 3)
    assert compiled(*broadcast).shape == (4, 3)
    assert len(compiled.recompiles) == 1


def test_sizes_of_zero_and_one() -> None:
    agree_on(lambda x: x.sum(0) + x, lambda n: (torch.rand(n, 3) * 0 + n,), sizes=(4, 5, 1, 0, 6, 1, 0), traces=4)


def test_sizes_in_the_order_of_flat_tensors() -> None:
    """Leaves, then the symbolic sizes and strides of their wrapper."""
    seen: list[Any] = []

    def compiler(graph: Any, inputs: Any) -> Any:
        seen.append(inputs)
        return graph.forward

    compiled = aot_compile(lambda x: x * 2, fw_compiler=compiler, dynamic=True)
    compiled(TwoTensor(torch.rand(5, 3), torch.rand(5, 3)).requires_grad_())
    forward, backward = seen
    assert [type(x).__name__ for x in forward] == ["FakeTensor", "FakeTensor", "SymInt", "SymInt", "SymInt"]
    rows, columns, stride = forward[2:]
    assert (forward[0].shape[0] == rows, forward[1].shape[1] == columns, stride == columns) == (True, True, True)
    assert all(isinstance(n, torch.SymInt) for n in backward[:2]), "saved numbers come first"


def test_sizes_that_are_marked() -> None:
    def make(n: int) -> Any:
        x = TwoTensor(torch.rand(n, 3), torch.rand(n, 3))
        mark_dynamic(x, 0, min=2, max=8)
        return (x,)

    compiled = aot_compile(lambda x: x * x.shape[0])
    for n in (4, 2, 8):
        (x,) = make(n)
        torch.testing.assert_close(compiled(x).b, x.b * n)
    assert compiled.recompiles == []
    assert "guard: s0 <= 8" in compiled.explain()
    compiled(TwoTensor(torch.rand(9, 3), torch.rand(9, 3)))
    assert compiled.recompiles == ["s0 <= 8 before, not so now, where s0 = 9"]


@pytest.mark.parametrize("fw_compiler", ["eager", "inductor"])
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "program",
    [
        lambda x: (torch.nonzero(x).sum(0), x * 2),
        lambda x: x[x > 0] * 2,
        lambda x: torch.masked_select(x, x > 0).sum(),
        lambda x: torch.unique(x.round()).sum(),
        lambda x: x * x.sum().item(),
        lambda x: x * x.argmax().item(),
        lambda x: (x.mul_(2), x[x > 0]),
    ],
    ids=["nonzero", "mask", "masked_select", "unique", "item", "int_item", "after_a_write"],
)
def test_sizes_that_depend_on_data(program: Any, fw_compiler: str) -> None:
    def make(n: int) -> Any:
        return (torch.randn(n, 4, generator=torch.Generator().manual_seed(n)),)

    agree_on(program, make, dynamic=True, traces=1, fw_compiler=fw_compiler)


def test_sizes_that_depend_on_data_inside_wrappers() -> None:
    def program(x: Any) -> Any:
        return x.a[x.a > 0] * 2, x * x.b.sum().item()

    def make(n: int) -> Any:
        generator = torch.Generator().manual_seed(n)
        return (TwoTensor(torch.randn(n, 3, generator=generator), torch.randn(n, 3, generator=generator)),)

    agree_on(program, make, dynamic=True, traces=1)


def test_gradients_with_sizes_that_depend_on_data() -> None:
    agree_on(
        lambda x: (x[x > 0] ** 2).sum(),
        lambda n: (torch.randn(n, 4, generator=torch.Generator().manual_seed(n)).requires_grad_(),),
        lambda args, out: torch.autograd.grad(out, args[0]),
        dynamic=True,
        traces=1,
    )


def test_a_branch_on_data_is_refused() -> None:
    def program(x: Any) -> Any:
        return x if x.sum().item() > 0 else -x

    with pytest.raises(DataDependentError, match="branches on a number that depends on data") as error:
        aot_compile(program, dynamic=True, values="refuse")(torch.ones(3))
    assert "return x if x.sum().item() > 0 else -x" in str(error.value)


def test_vision_transformer_with_quantized_weights_is_traced_twice() -> None:
    from benchmarks.demo.vit import ViT
    from subclass_aot import Int8Weight

    torch.manual_seed(0)
    vit = ViT(image=8, patch=4, channels=1, layers=12, width=8, heads=2, hidden=16, classes=10)
    for block in vit.layers:
        block.grow.weight = torch.nn.Parameter(Int8Weight.from_float(block.grow.weight.detach()), requires_grad=False)
    compiled = aot_compile(vit)
    for batch in (2, 3, 5, 8):
        images = torch.randn(batch, 1, 8, 8)
        gradients = []
        for function in (vit, compiled):
            scores = function(images)
            gradients.append((scores, *torch.autograd.grad(scores.sum(), vit.head.weight)))
        for expected, got in zip(*gradients, strict=True):
            torch.testing.assert_close(got, expected)
    assert len(compiled.recompiles) == 1


def test_what_does_not_go_with_symbols_is_compiled_for_each_size() -> None:
    def compiler(graph: Any, inputs: Any) -> Any:
        if any(isinstance(n, torch.SymInt) for x in inputs for n in x.shape):
            raise ValueError("this compiler knows numbers only")
        return graph.forward

    compiled = agree_on(lambda x: x * 2, lambda n: (torch.ones(n, 3),), traces=4, fw_compiler=compiler)
    assert "its sizes stay numbers, since with symbols it fails: ValueError: this compiler" in compiled.explain()


def test_an_error_of_the_program_is_its_own() -> None:
    def program(x: Any) -> Any:
        if x.shape[0] > 4:
            raise KeyError("too many rows")
        return x * 2

    compiled = aot_compile(program)
    compiled(torch.ones(3, 2))
    with pytest.raises(KeyError, match="too many rows"):
        compiled(torch.ones(5, 2))
    assert compiled(torch.ones(4, 2)).shape == (4, 2)


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32])
def test_what_the_program_says_of_a_number_is_checked(dtype: torch.dtype) -> None:
    def program(x: Any) -> Any:
        n = x.sum().item()
        torch._check(n == 3)
        return x * n

    compiled = aot_compile(program, dynamic=True)
    assert compiled(torch.tensor([1, 2], dtype=dtype)).tolist() == [3, 6]
    with pytest.raises(RuntimeAssertError) as error:
        compiled(torch.tensor([2, 2], dtype=dtype))
    assert "torch._check(n == 3)" in str(error.value) and "n0 = 4" in str(error.value)
    assert compiled(torch.tensor([0, 3], dtype=dtype)).tolist() == [0, 9]
    assert not compiled.recompiles


@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: TwoTensor(x, x + 1)], ids=["dense", "wrapped"])
def test_gradients_from_earlier_steps_leave_sizes_symbolic(wrap: Any) -> None:
    compiled = aot_compile(lambda x: (x * 2).sin(), dynamic=True)
    for size in ((5, 8), (6, 9), (7, 4)):
        x = wrap(torch.rand(size)).requires_grad_()
        x.grad = torch.ones_like(x)
        (expected,) = torch.autograd.grad((x * 2).sin().sum(), x)
        compiled(x).sum().backward()
        for ours, theirs in zip(dense_leaves(x.grad), dense_leaves(expected), strict=True):
            torch.testing.assert_close(ours, theirs + 1)
    assert not compiled.recompiles


def test_sizes_that_turn_out_to_be_numbers_are_explained() -> None:
    compiled = aot_compile(lambda x: x * 2 if x.shape[1] == 6 else x, dynamic=True)
    compiled(torch.rand(5, 6))
    assert "compiled for this size alone: args[0].size(1) == 6" in compiled.explain()
    assert "args[0].size(0) ==" not in compiled.explain()
