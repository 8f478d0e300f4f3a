"""Backwards for gradients of another kind: when they are made, what they read, how many are kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from functorch.compile import min_cut_rematerialization_partition
from torch.testing._internal.two_tensor import TwoTensor as ForeignTwoTensor

from subclass_aot import MetaTensor, TwoTensor, WrapperTensor, aot_compile
from subclass_aot.errors import TangentError
from subclass_aot.meta.symbols import SizesMustBeKnown
from subclass_aot.tensors import Jagged, MaskedTensor
from subclass_aot.testing import difference

aten: Any = torch.ops.aten


def pair(seed: int = 0) -> Any:
    generator = torch.Generator().manual_seed(seed)
    return TwoTensor(torch.rand(2, 3, generator=generator), torch.rand(2, 3, generator=generator))


def counting() -> tuple[list[str], Any]:
    compiled: list[str] = []

    def compiler(graph: Any, inputs: Any) -> Any:
        compiled.append(graph.print_readable(print_output=False))
        return graph.forward

    return compiled, compiler


def test_each_kind_is_compiled_once() -> None:
    graphs, compiler = counting()
    compiled = aot_compile(lambda x: (x * x).sin(), bw_compiler=compiler)
    nested = TwoTensor(pair(1), pair(2))
    for gradient in (pair(3), torch.ones(2, 3), nested, torch.rand(2, 3), nested * 2, torch.ones(3, 2).t(), pair(4)):
        x, y = pair().requires_grad_(), pair().requires_grad_()
        (y * y).sin().backward(gradient)
        compiled(x).backward(gradient)
        assert not difference(y.grad, x.grad, strides=False)
    assert len(graphs) == 3


def test_a_backward_that_takes_no_symbolic_sizes_has_no_other_kind() -> None:
    class Needs(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:  # type: ignore[override]
            if type(gradient) is TwoTensor:
                raise SizesMustBeKnown
            return gradient * 2

    x = torch.ones(4, requires_grad=True)
    with pytest.raises(TangentError):
        aot_compile(Needs.apply, dynamic=True)(x).backward(TwoTensor(x.detach(), x.detach()))


def test_only_the_latest_kinds_are_kept() -> None:
    graphs, compiler = counting()
    compiled = aot_compile(lambda x: x * 2, bw_compiler=compiler, lazy_backward=False)
    x = torch.ones(2, 3, requires_grad=True)
    out = compiled(x)
    kinds = [pair()]
    for _ in range(4):
        kinds.append(TwoTensor(kinds[-1], kinds[-1]))
    for gradient in (*kinds, *reversed(kinds)):
        torch.autograd.grad(out, x, gradient, retain_graph=True)
    assert len(graphs) == 1 + 5 + 1


def test_inner_tensors_of_other_sizes_are_another_kind() -> None:
    graphs, compiler = counting()
    compiled = aot_compile(lambda x: x * 2, bw_compiler=compiler, lazy_backward=False)
    x = torch.ones(2, 3, requires_grad=True)
    out = compiled(x)
    for columns in (1, 3, 1):
        gradient = Rows(torch.ones(2, 3), torch.rand(2, columns))
        (found,) = torch.autograd.grad(out, x, gradient, retain_graph=True)
        assert not difference(gradient * 2, found)
    assert len(graphs) == 3


@pytest.mark.parametrize("partition_fn", [None, min_cut_rematerialization_partition])
def test_it_reads_what_forward_saved(partition_fn: Any) -> None:
    def program(x: Any, y: Any) -> Any:
        return (x.sin() * y).exp().cos()

    x, y = pair().requires_grad_(), pair(1).requires_grad_()
    compiled = aot_compile(program, partition_fn=partition_fn)
    for gradient in (torch.ones(2, 3), pair(2)):
        found = torch.autograd.grad(compiled(x, y), (x, y), gradient)
        for a, b in zip(torch.autograd.grad(program(x, y), (x, y), gradient), found, strict=True):
            assert not difference(a, b, strides=False)


class Lazy(WrapperTensor, fallback="each"):
    """Multiplies a dense tensor by both of its parts, one of its own by one."""

    left: torch.Tensor
    right: torch.Tensor


@Lazy.implements(aten.mul.Tensor)
def _(x: Any, y: Any) -> Any:
    if isinstance(x, Lazy) and isinstance(y, Lazy):
        return Lazy(x.left * y.left, x.right * y.left)
    dense, lazy = (y, x) if isinstance(x, Lazy) else (x, y)
    return Lazy(lazy.left * dense, lazy.right * dense) if isinstance(dense, torch.Tensor) else NotImplemented


def test_what_forward_did_not_keep() -> None:
    x, y = Lazy(torch.rand(3), torch.rand(3)).requires_grad_(), Lazy(torch.rand(3), torch.rand(3))
    out = aot_compile(lambda x, y: x * y)(x, y)
    with pytest.raises(TangentError, match=r"it would need args\[1\]\.right, which forward did not keep"):
        torch.autograd.grad(out, x, torch.ones(3))


class DrawsTwice(torch.autograd.Function):
    """Backward of a dense gradient wants a draw that forward made and nobody else reads."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.mask = torch.rand(3)
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient * ctx.mask if type(gradient) is not TwoTensor else gradient * 2


def test_draws_are_not_made_again() -> None:
    x = TwoTensor(torch.rand(3), torch.rand(3)).requires_grad_()
    out = aot_compile(DrawsTwice.apply)(x)
    with pytest.raises(TangentError, match=r"the result of aten\.rand"):
        torch.autograd.grad(out, x, torch.ones(3))


def test_what_only_the_other_backward_reads_is_computed_again() -> None:
    """It was dead code when the graph was first made."""

    class Remembers(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.mask = x.sin().detach()
            return x * 2

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return gradient * ctx.mask if type(gradient) is not TwoTensor else gradient * ctx.mask.cos()

    x = TwoTensor(torch.rand(3), torch.rand(3)).requires_grad_()
    compiled = aot_compile(lambda x: Remembers.apply(x) * x)
    for gradient in (torch.rand(3), TwoTensor(torch.rand(3), torch.rand(3))):
        (expected,) = torch.autograd.grad(Remembers.apply(x) * x, x, gradient)
        (found,) = torch.autograd.grad(compiled(x), x, gradient)
        assert not difference(expected, found)


def test_retained_graph_and_second_time() -> None:
    x = pair().requires_grad_()
    out = aot_compile(lambda x: (x * x).sin())(x)
    first = torch.autograd.grad(out, x, torch.ones(2, 3), retain_graph=True)[0]
    again = torch.autograd.grad(out, x, torch.ones(2, 3))[0]
    assert not difference(first, again)
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(out, x, torch.ones(2, 3))


def test_with_second_derivatives() -> None:
    x = pair().requires_grad_()
    compiled = aot_compile(lambda x: (x * x).sin(), double_backward=True)
    for create_graph in (False, True):
        gradients = []
        for function in (compiled.fn, compiled):
            (first,) = torch.autograd.grad(function(x), x, torch.ones(2, 3), create_graph=create_graph)
            gradients.append(torch.autograd.grad(first.sum(), x)[0] if create_graph else first)
        assert not difference(*gradients)


class Rows(WrapperTensor, fallback="each"):
    """Its inner tensors may have several sizes and dtypes beside one outer size."""

    value: torch.Tensor
    scale: torch.Tensor
    note: str = ""


@pytest.mark.parametrize("note", ["", "with a context"])
@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: TwoTensor(x, x * 1)])
@pytest.mark.parametrize("scale", [torch.rand(2, 3), torch.rand(2, 1, dtype=torch.float64)])
def test_inner_tensors_that_differ_from_those_expected(note: str, wrap: Any, scale: torch.Tensor) -> None:
    x = wrap(Rows(torch.rand(2, 3), torch.rand(2, 1), note)).requires_grad_()
    out = aot_compile(lambda x: (x * x).sin())(x)
    for given in (scale, torch.rand(2, 1), scale):
        gradient = wrap(Rows(torch.rand(2, 3), given, note))
        (expected,) = torch.autograd.grad((x * x).sin(), x, gradient)
        (found,) = torch.autograd.grad(out, x, gradient, retain_graph=True)
        assert not difference(expected, found, strides=False)


class Joins(torch.autograd.Function):
    """A copy. Results that are made of it go backward together: it may have saved something."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient


@pytest.mark.parametrize("used", [(0,), (1,), (0, 1)])
def test_a_result_without_a_gradient_does_not_change_the_class_of_others(used: tuple[int, ...]) -> None:
    """Zeros of its class would: what a dense tensor gets of its product with a wrapper is a wrapper."""
    graphs, compiler = counting()
    program = lambda x, w: ((x := Joins.apply(x)) * w, x.sin())  # noqa: E731
    compiled = aot_compile(program, bw_compiler=compiler, lazy_backward=False)
    for _ in range(2):
        gradients = []
        for function in (program, compiled):
            x, w = torch.full((2, 3), 0.5, requires_grad=True), pair().requires_grad_()
            results = function(x, w)
            results = [results[i] for i in used]
            torch.autograd.backward(results, [torch.ones_like(r) for r in results])
            gradients.append((x.grad, w.grad))
        for expected, got in zip(*gradients, strict=True):
            assert not difference(expected, got)
    assert len(graphs) == (2 if used == (1,) else 1)


@pytest.mark.parametrize("used", [(0,), (1,), (0, 1)])
def test_a_result_without_a_gradient_does_not_change_the_class_of_a_wrappers_gradient(used: tuple[int, ...]) -> None:
    """What a wrapper gets of the sum of itself and a dense tensor, in the memory of the latter, is dense."""
    graphs, compiler = counting()
    program = lambda x, w: ((w := Joins.apply(w)) * 2, x.clone().add_(w))  # noqa: E731
    compiled = aot_compile(program, bw_compiler=compiler, lazy_backward=False)
    for _ in range(2):
        gradients = []
        for function in (program, compiled):
            w = ForeignTwoTensor(torch.rand(2, 3), torch.rand(2, 3)).requires_grad_()
            results = function(torch.ones(2, 3), w)
            results = [results[i] for i in used]
            torch.autograd.backward(results, [torch.ones_like(r) for r in results])
            gradients.append(w.grad)
        assert not difference(*gradients)
    assert len(graphs) == (2 if used == (1,) else 1)


def test_a_gradient_of_the_class_of_its_input_takes_zeros_for_what_is_undefined() -> None:
    graphs, compiler = counting()
    w = pair().requires_grad_()
    aot_compile(lambda w: ((w := Joins.apply(w)) * 2, w.sin()), bw_compiler=compiler)(w)[0].sum().backward()
    assert len(graphs) == 1 and not difference(w.grad, torch.full_like(w.detach(), 2.0))


def test_where_an_undefined_gradient_cannot_have_a_backward_of_its_own() -> None:
    """Zeros would make a wrapper of a gradient that is dense in eager mode."""
    graphs, compiler = counting()

    def broken_later(graph: Any, inputs: Any) -> Any:
        if graphs:
            raise RuntimeError("no more")
        return compiler(graph, inputs)

    x, w = torch.full((2, 3), 0.5, requires_grad=True), pair().requires_grad_()
    compiled = aot_compile(
        lambda x, w: ((x := Joins.apply(x)) * w, x * 3), bw_compiler=broken_later, lazy_backward=False
    )
    results = compiled(x, w)
    with pytest.raises(TangentError, match=r"output\[0\] has no gradient, .*: RuntimeError: no more"):
        torch.autograd.grad(results[1], x, torch.ones(2, 3), retain_graph=True)
    zeros = torch.zeros_like(results[0])
    (gradient,) = torch.autograd.grad(results, x, [zeros, torch.ones(2, 3)])  # as the message says
    assert type(gradient) is TwoTensor and gradient.a.eq(3).all()


def test_a_compiler_that_assumes_more_once_the_guard_is_made() -> None:
    """Inductor does, of a graph that is in its cache with the guards of another program."""
    graphs, compiler = counting()

    def insists(graph: Any, inputs: Any) -> Any:
        if not graphs:
            return compiler(graph, inputs)
        try:
            assert inputs[0] > 3  # which no guard checks
        except NotImplementedError as refused:  # as compilers do
            raise RuntimeError("while compiling") from refused
        raise AssertionError("it was assumed")

    program = lambda x, w: ((x := Joins.apply(x)) * w, x.sin())  # noqa: E731
    compiled = aot_compile(program, dynamic=True, bw_compiler=insists)
    for rows in (5, 3, 2, 7):
        gradients = []
        for function in (program, compiled):
            x, w = torch.full((rows, 3), 0.5, requires_grad=True), TwoTensor(torch.ones(rows, 3), torch.ones(rows, 3))
            gradients += torch.autograd.grad(function(x, w)[1].sum(), x)
        assert not difference(*gradients)
    assert not compiled.recompiles and len(graphs) == 1


def test_a_gradient_without_data_of_other_strides() -> None:
    """What brings it into the expected order has no data either: nobody has memory for that."""
    x = MetaTensor(torch.empty(10**9, 1000, device="meta"), device="cpu").requires_grad_()
    given = MetaTensor(torch.empty(1000, 10**9, device="meta"), device="cpu").t()
    (gradient,) = torch.autograd.grad(aot_compile(lambda x: x * 2)(x), x, given)
    assert type(gradient) is MetaTensor and gradient.stride() == (1000, 1)


@pytest.mark.parametrize("kind", ["dense", "two"])
def test_undefined_gradients_beside_ones_without_data(kind: str) -> None:
    """Zeros of this size would take 4 TB."""
    x = MetaTensor(torch.empty(10**9, 1000, device="meta"), device="cpu")
    given: Any = (x if kind == "dense" else TwoTensor(x, x)).requires_grad_()
    a, b = aot_compile(lambda x: (x * 2, x.sin() * 3))(given)
    gradient = torch.autograd.grad(b, given, x if kind == "dense" else TwoTensor(x, x))[0]
    assert type(gradient) is type(given) and gradient.shape == x.shape


def _masked() -> Any:
    return MaskedTensor(torch.arange(6.0).view(2, 3) + 1, torch.tensor([[True, False, True], [True, True, False]]))


def _rows() -> Any:
    return Jagged(torch.arange(12.0).view(6, 2) + 1, torch.tensor([0, 2, 5, 6]), 3)


PARTS: dict[str, Any] = {
    "two results": lambda x: (x * 2, x * 3),
    "three": lambda x: (x * 2, x.sin(), x * x),
    "what both use": lambda x: (x.exp() * 2, x.exp() * x),
    "one depends on both": lambda x: (x * 2, (x * 2).cos() * x),
    "a dense one": lambda x: (x * 2, (x * x).sum()),
}


@pytest.mark.every_case
@pytest.mark.parametrize(
    ("make", "dynamic"), [(_masked, None), (_masked, True), (_rows, None)], ids=["masked", "masked, symbols", "jagged"]
)
@pytest.mark.parametrize("name", PARTS)
def test_zeros_of_a_mask_or_of_places_are_no_zeros(name: str, dynamic: bool | None, make: Any) -> None:
    program = PARTS[name]
    compiled = aot_compile(program, dynamic=dynamic)
    for _ in range(2):
        for number, _ in enumerate(program(make())):
            gradients = []
            for function in (program, compiled):
                x = make().requires_grad_()
                result = function(x)[number]
                torch.autograd.backward([result], [torch.ones_like(result)])
                gradients.append(x.grad)
            assert not difference(*gradients)


class _Shifted(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 1

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0] + 1


def _hooked(x: Any) -> Any:
    y = x * 1
    y.register_hook(lambda gradient: gradient + 1)
    return y


def _hooked_node(x: Any) -> Any:
    y = x * 1
    y.grad_fn.register_prehook(lambda gradients: (gradients[0] + 1,))
    return y


def _normalized(x: Any) -> Any:
    y = x * 1
    y.register_hook(lambda gradient: gradient / gradient.norm())
    return y


_CODE: dict[str, Callable[[Any], Any]] = {
    "a function": _Shifted.apply,
    "a hook": _hooked,
    "a hook of a node": _hooked_node,
    "a hook that divides": _normalized,
    "a function further on": lambda x: (_Shifted.apply(x * 3) * 2).sin(),
}


@pytest.mark.every_case
@pytest.mark.parametrize("name", _CODE)
@pytest.mark.parametrize("used", [(0,), (1,), (0, 1), (2,), (0, 2)])
def test_zeros_run_no_code_that_eager_mode_leaves_alone(name: str, used: tuple[int, ...]) -> None:
    def program(x: Any) -> Any:
        h = x * x  # saves `x`, so that all results are one part of backward
        return _CODE[name](h), h * 2, _CODE[name](h) * h

    found = []
    for function in (program, aot_compile(program)):
        x = torch.tensor([0.5, 1.0], requires_grad=True)
        results = function(x)
        torch.autograd.backward([results[i].sum() for i in used])
        found.append(x.grad)
    torch.testing.assert_close(*found)
