"""Where tensors lie in memory: views of any kind that are written, and programs that read where an input begins.

Each program is called with slices that begin elsewhere, and the whole storage behind them is compared with eager mode.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from subclass_aot import TwoTensor, aot_compile
from subclass_aot.errors import MutationError, TraceError
from subclass_aot.testing import difference

BEGINS = (0, 1, 3, 1)
aten: Any = torch.ops.aten


def flat(begins: int, n: int = 12) -> torch.Tensor:
    return torch.arange(2.0 * n + 6)[begins : begins + n]


def square(begins: int, rows: int = 3, columns: int = 4) -> torch.Tensor:
    return flat(begins, rows * columns).view(rows, columns)


def everything(tensors: Sequence[Any]) -> list[torch.Tensor]:
    """The storages of tensors and of what is in them, as flat tensors."""
    found: list[torch.Tensor] = []
    for x in tensors:
        if hasattr(x, "__tensor_flatten__"):
            found += everything([getattr(x, name) for name in x.__tensor_flatten__()[0]])
        elif isinstance(x, torch.Tensor):
            storage = x.detach().untyped_storage()
            count = storage.nbytes() // x.element_size()
            found.append(torch.empty(0, dtype=x.dtype).set_(storage, 0, (count,), (1,)).clone())
    return found


def outcomes(function: Callable[..., Any], make: Callable[[int], Any], begins: Sequence[int]) -> list[Any]:
    """What each call gives, and leaves in memory."""
    found: list[Any] = []
    for begin in begins:
        given = make(begin)
        given = given if isinstance(given, tuple) else (given,)
        result = function(*given)
        result = result if isinstance(result, tuple) else (result,)
        found.append((result, [x.storage_offset() for x in result if isinstance(x, torch.Tensor)], everything(given)))
    return found


def agrees(
    program: Callable[..., Any], make: Callable[[int], Any], begins: Sequence[int] = BEGINS, **options: Any
) -> Any:
    """Compares calls with eager mode; returns the compiled function."""
    compiled = aot_compile(program, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of operators with `out=`
        compare(outcomes(program, make, begins), outcomes(compiled, make, begins))
    return compiled


def compare(expected: list[Any], got: list[Any]) -> None:
    for (results, offsets, memory), (others, other_offsets, other_memory) in zip(expected, got, strict=True):
        assert offsets == other_offsets
        for x, y in zip((*results, *memory), (*others, *other_memory), strict=True):
            assert not difference(x, y) if isinstance(x, torch.Tensor) else x == y


def _returning(write: Callable[..., Any]) -> Callable[..., Any]:
    """Writes into an argument, and into a tensor that is computed."""

    def program(x: Any) -> Any:
        before = x * 1
        write(x)
        y = before + 1
        write(y)
        return before, x * 1, y

    return program


FLAT: dict[str, Callable[[Any], Any]] = {
    "windows side by side": lambda x: x.unfold(0, 5, 5).mul_(3),
    "windows apart": lambda x: x.unfold(0, 2, 5).mul_(3),
    "windows apart, the last at the end": lambda x: x.unfold(0, 2, 10).add_(1),
    "windows that overlap, filled": lambda x: x.unfold(0, 3, 1).fill_(3),
    "windows that overlap, set to zero": lambda x: x.unfold(0, 4, 3).zero_(),
    "windows that overlap, masked": lambda x: x.unfold(0, 4, 2).masked_fill_(x.unfold(0, 4, 2) % 3 == 0, -1.0),
    "windows that overlap, one value": lambda x: x.unfold(0, 3, 2)[1:3].copy_(x[0] + 4),
    "windows that overlap, every third": lambda x: x.unfold(0, 3, 1)[::3].mul_(2),
    "windows of windows": lambda x: x.view(3, 4).unfold(0, 1, 2).unfold(1, 2, 2).mul_(7),
    "windows of columns": lambda x: x.view(3, 4)[:, 1:].unfold(1, 2, 1)[:, 0].mul_(2),
    "as_strided": lambda x: x.as_strided((3,), (2,)).mul_(3),
    "as_strided of a slice": lambda x: x[2:].as_strided((3,), (3,)).mul_(3),
    "as_strided of as_strided": lambda x: x[1:].as_strided((4,), (2,)).as_strided((2, 2), (4, 1)).mul_(2),
    "as_strided, in place": lambda x: x[2:].as_strided_((2, 2), (4, 1)).mul_(2),
    "as_strided_scatter": lambda x: x.copy_(x.as_strided_scatter(torch.ones(3), (3,), (2,))),
    "as_strided_copy": lambda x: x[:3].copy_(torch.as_strided_copy(x, (3,), (4,))),
    "a diagonal": lambda x: x.view(3, 4).fill_diagonal_(7),
    "a diagonal of a slice": lambda x: x.view(4, 3)[1:].t().fill_diagonal_(7),
    "a diagonal that wraps": lambda x: x.view(6, 2).fill_diagonal_(7, wrap=True),
    "a diagonal of three dims": lambda x: x[:8].view(2, 2, 2).fill_diagonal_(7),
    "a diagonal after a write": lambda x: x.mul_(2).view(3, 4).fill_diagonal_(7),
    "unsafe_split": lambda x: torch.unsafe_split(x, 5)[1].mul_(3),
    "unsafe_chunk": lambda x: torch.unsafe_chunk(x, 3)[1].mul_(3),
    "unsafe_split_with_sizes": lambda x: torch.unsafe_split_with_sizes(x, [5, 7])[1].mul_(3),
    "_unsafe_view": lambda x: aten._unsafe_view(x, (3, 4))[1].mul_(3),
    "_unsafe_view of unsafe_chunk": lambda x: aten._unsafe_view(torch.unsafe_chunk(x, 3)[1], (2, 2))[0].mul_(4),
    "kron": lambda x: torch.kron(x[:3].clone(), x[:4].clone(), out=x),
    "one after the other": lambda x: (
        x.mul_(2), x[2:8].view(2, 3).unfold(1, 2, 2).add_(1), x[::3].mul_(2), x.unfold(0, 2, 5).sub_(1)
    ),
}  # fmt: skip


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", FLAT)
def test_a_write_that_does_not_ask_where_the_tensor_begins(name: str, dynamic: bool) -> None:
    compiled = agrees(_returning(FLAT[name]), flat, dynamic=dynamic)
    assert not compiled.recompiles, "slices that begin elsewhere are served by one graph"


READING: dict[str, Callable[..., Any]] = {
    "storage_offset": lambda x: (x + x.storage_offset(),),
    "storage_offset of a view": lambda x: (x + x[2:].storage_offset(),),
    "storage_offset by its class": lambda x: (x + torch.Tensor.storage_offset(x),),
    "sym_storage_offset": lambda x: (x + aten.sym_storage_offset(x),),
    "as_strided": lambda x: (x.as_strided((3,), (2,), 4) * 1,),
    "as_strided, written": lambda x: (x.as_strided((3,), (2,), 4).mul_(3), x * 1)[1:],
    "as_strided, of a slice": lambda x: (x[2:].as_strided((3,), (2,), 4).mul_(3), x * 1)[1:],
    "as_strided, from where it begins": lambda x: (x.as_strided((3,), (2,), x.storage_offset()).mul_(3), x * 1)[1:],
    "as_strided, windows": lambda x: (x.as_strided((3, 3), (2, 1), 4) * 1,),
    "as_strided after a write": lambda x: (x.add_(1).as_strided((3,), (2,), 4) * 1,),
    "as_strided in place": lambda x: (x.as_strided_((3,), (2,), 4).mul_(2), x * 1)[1:],
    "as_strided in place, of a slice": lambda x: (
        (v := x[2:]).as_strided_((3,), (2,), 4)[1:].mul_(2), x.add_(1) * 1, v * 1
    )[1:],
    "as_strided_scatter": lambda x: (x.as_strided_scatter(torch.ones(3), (3,), (2,), 4),),
    "as_strided_scatter after a write": lambda x: (x.add_(1).as_strided_scatter(torch.ones(3), (3,), (2,), 4),),
    "as_strided_copy": lambda x: (torch.as_strided_copy(x, (3,), (2,), 4),),
    "a result": lambda x: (x.as_strided((3,), (2,), 4), x.as_strided((3,), (2,))),
    "a result after a write": lambda x: (x.mul_(2), x.as_strided((3,), (2,), 4))[1:],
}  # fmt: skip


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", READING)
def test_a_program_that_reads_where_the_tensor_begins(name: str, dynamic: bool) -> None:
    compiled = agrees(READING[name], flat, dynamic=dynamic)
    assert compiled.recompiles == [
        "storage offset of args[0]: 0 before, 1 now",
        "storage offset of args[0]: 1 before, 3 now",
    ]


REACHING: dict[str, tuple[Callable[..., Any], Callable[[int], Any]]] = {
    "read": (lambda x: x.as_strided((8,), (2,)) * 2, flat),
    "written": (lambda x: (x.as_strided((8,), (2,)).mul_(2), x * 1)[1], flat),
    "before it": (lambda x: (x.as_strided((3,), (2,), 0).mul_(2), x * 1)[1], lambda begins: flat(begins + 4)),
    "into another argument": (
        lambda x, y: (x.as_strided((8,), (2,)).mul_(2), x * 1, y + 1)[1:],
        lambda begins: (lambda x: (x[:12], x[12:18]))(flat(begins, 20)),
    ),
    "between its elements": (lambda x: (x.mul_(3), x.as_strided((3,), (1,)) * 1)[1], lambda begins: flat(begins)[::2]),
    "between its columns": (
        lambda x: (x.add_(1), x.as_strided((12,), (1,)).mul_(2), x * 1)[2],
        lambda begins: square(begins, 3, 6)[:, 1:4],
    ),
}


@pytest.mark.parametrize("name", REACHING)
def test_a_view_that_reaches_memory_around_a_tensor(name: str) -> None:
    agrees(*REACHING[name])


STRIDES: dict[str, Callable[[int], torch.Tensor]] = {
    "every second": lambda begins: flat(begins, 24)[::2],
    "columns": lambda begins: square(begins, 4, 6)[:, 1:4],
    "turned": lambda begins: square(begins, 3, 4).t(),
}


@pytest.mark.parametrize("name", STRIDES)
def test_a_tensor_keeps_its_strides_when_it_is_written(name: str) -> None:
    def program(x: torch.Tensor) -> Any:
        x.add_(1)
        part = x.as_strided((3,), (2 * max(x.stride()),)) if x.dim() == 1 else x.as_strided((2,), (x.stride(0),))
        part.mul_(2)
        x.unfold(0, 2, 2).sub_(1)
        return x * 1, part * 1

    agrees(program, STRIDES[name])
    agrees(lambda x: program(x.clone() if x.dim() == 2 else x * 1), STRIDES[name])


@pytest.mark.parametrize("write", ["x.unfold(0, 2, 5)", "x[2:].as_strided((3,), (2,))", "x.as_strided((3,), (2,), 1)"])
def test_a_tensor_that_is_seen_as_another_type(write: str) -> None:
    for view in ("torch.view_as_real(x)[..., 1]", "torch.view_as_real(x).view(-1)", "x.view(torch.int64)"):
        scope: dict[str, Any] = {"torch": torch}
        exec(f"def program(x):\n y = x\n x = {view}\n {write}.mul_(2)\n return y * 1", scope)
        agrees(scope["program"], lambda begins: flat(begins).to(torch.complex64))


def test_several_types_at_once_are_refused() -> None:
    def program(x: torch.Tensor) -> Any:
        torch.view_as_real(x)[..., 1].unfold(0, 2, 5).mul_(2)
        x.unfold(0, 2, 5).mul_(2)
        return x * 1

    with pytest.raises(MutationError, match=r"(?s)seen as several types.*aten.unfold.*write a copy"):
        aot_compile(program)(flat(0).to(torch.complex64))


@pytest.mark.parametrize("write", [lambda x: x.unfold(0, 3, 1).mul_(3), lambda x: x.as_strided((4, 3), (2, 1)).add_(1)])
def test_other_writes_into_windows_that_overlap_are_refused(write: Callable[..., Any]) -> None:
    with pytest.raises(MutationError, match=r"(?s)several elements are one place.*windows that overlap \(unfold"):
        aot_compile(write)(flat(0))


def test_out_of_the_memory_of_a_tensor_that_is_computed() -> None:
    with pytest.raises(TraceError, match=r"(?s)aten.as_strided.default reaches out of the memory.*x \* 1"):
        aot_compile(lambda x: (x * 1).as_strided((12,), (2,)))(flat(0))


def test_out_of_the_memory_of_an_input_in_backward() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        z = x * 2
        z.register_hook(lambda gradient: gradient + y.as_strided((12,), (2,)))
        return z

    with pytest.raises(TraceError, match="out of the memory of a tensor, while gradients are computed"):
        aot_compile(program)(torch.ones(12, requires_grad=True), flat(0))


def leaf(begins: int) -> torch.Tensor:
    return flat(begins).requires_grad_()


def _of_computed(write: Callable[..., Any]) -> Callable[..., Any]:
    def program(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        write(y)
        return y.sin()

    return program


WITH_GRADIENT: dict[str, Callable[..., Any]] = {
    **{name: _of_computed(FLAT[name]) for name in FLAT if "mask" not in name and "copy" not in name and name != "kron"},
    "windows that overlap, read": lambda x: x.unfold(0, 3, 1).sin(),
    "as_strided, read": lambda x: x.as_strided((3, 3), (2, 1), 4).sin(),
    "as_strided, by what is read": _of_computed(lambda y: y[2:].as_strided((3,), (2,), 1).mul_(y[:3].clone())),
    "under no_grad": lambda x: (_without_grad(lambda: x.unfold(0, 2, 5).mul_(2)), (x * x).sum())[1],
    "in a hook": lambda x: _hooked(x * 2, lambda g: g.clone().unfold(0, 2, 5).mul_(3).sum() + g).sin(),
}


def _without_grad(write: Callable[[], Any]) -> None:
    with torch.no_grad():
        write()


def _hooked(x: torch.Tensor, hook: Callable[..., Any]) -> torch.Tensor:
    x.register_hook(hook)
    return x


@pytest.mark.parametrize("name", WITH_GRADIENT)
def test_gradients(name: str) -> None:
    def step(function: Callable[..., Any]) -> Callable[..., Any]:
        def run(x: torch.Tensor) -> Any:
            out = function(x)
            out.backward(torch.arange(1.0, out.numel() + 1).view(out.shape))
            return out, x.grad

        return run

    compiled = aot_compile(WITH_GRADIENT[name])
    compare(outcomes(step(WITH_GRADIENT[name]), leaf, BEGINS), outcomes(step(compiled), leaf, BEGINS))


@pytest.mark.parametrize(
    "program",
    [
        lambda x: (x[2:].as_strided((3,), (2,), 1), x.mul_(2))[0],
        lambda x: ((v := x[2:].as_strided((3,), (2,), 1)).mul_(2), v, x)[1:],
        lambda x: (x[2:].as_strided((3,), (2,), 1), x),
        lambda x: ((v := (y := x * 2)[2:].as_strided((3,), (2,), 1)).mul_(2), v, y)[1:],
    ],
)
def test_gradients_of_results_that_reach_out_of_a_view(program: Callable[..., Any]) -> None:
    found = []
    for function in (program, aot_compile(program)):
        root = torch.arange(12.0).requires_grad_()
        results = function(root * 1)
        results = results if isinstance(results, tuple) else (results,)
        torch.autograd.backward(results, [torch.arange(1.0, 1.0 + x.numel()) for x in results])
        found.append(root.grad)
    assert not difference(*found)


def pair(begins: int) -> TwoTensor:
    return TwoTensor(flat(begins), flat(begins) * 2)


WRAPPED: dict[str, tuple[Callable[..., Any], bool]] = {
    "windows": (lambda w: (w.unfold(0, 2, 5).mul_(3), w * 1)[1], False),
    "unsafe_split": (lambda w: (torch.unsafe_split(w, 5)[1].mul_(3), w * 1)[1], False),
    "as_strided": (lambda w: (w.as_strided((3,), (2,)).mul_(3), w * 1)[1], False),
    "as_strided of a leaf": (lambda w: (w.a.as_strided((3,), (2,), 4).mul_(3), w * 1)[1], True),
    "where a leaf begins": (lambda w: w + w.a.storage_offset(), True),
    "where the wrapper begins": (lambda w: w + w.storage_offset(), True),
    "where a view of the wrapper begins": (lambda w: w + w[2:].storage_offset(), True),
}


@pytest.mark.parametrize("name", WRAPPED)
def test_wrappers(name: str) -> None:
    program, reads = WRAPPED[name]
    compiled = agrees(program, pair)
    assert len(compiled.recompiles) == (2 if reads else 0)


def test_sizes_that_change_with_the_beginning() -> None:
    def program(x: torch.Tensor) -> Any:
        x.unfold(0, 2, 3).mul_(3)
        x.as_strided((x.shape[0] // 2,), (2,)).add_(1)
        torch.unsafe_chunk(x, 3)[1].mul_(2)
        return x.unfold(0, 3, 1).fill_(1), x * 1

    compiled = agrees(program, lambda begins: flat(begins, 12 + 5 * begins), dynamic=True)
    assert not compiled.recompiles


@pytest.mark.parametrize("name", ["windows apart", "a diagonal of a slice", "unsafe_chunk", "one after the other"])
def test_within_torch_compile(name: str, fresh_dynamo: None) -> None:
    program = _returning(FLAT[name])
    compiled = torch.compile(program, backend="subclass_aot")
    compare(outcomes(program, flat, BEGINS), outcomes(compiled, flat, BEGINS))


def test_a_beginning_that_dynamo_does_not_see(fresh_dynamo: None) -> None:
    program = READING["as_strided after a write"]
    compiled = torch.compile(program, backend="subclass_aot")
    compare(outcomes(program, flat, BEGINS), outcomes(compiled, flat, BEGINS))


@pytest.mark.parametrize("name", ["as_strided", "as_strided after a write", "as_strided_scatter"])
def test_another_compiler_counts_as_eager_does(name: str) -> None:
    """It does not know where its inputs begin."""
    agrees(READING[name], flat, (1, 3), fw_compiler="inductor")
