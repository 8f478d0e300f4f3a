"""Gradients that come in, and what is kept for them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor

from subclass_aot import WrapperTensor, aot_compile
from subclass_aot.errors import TangentError
from subclass_aot.kit.wrapper import plain_tangent
from subclass_aot.testing import dense_leaves, difference, rebuilt

NO_CONVERSION = "it declares no conversion: see the test above"


def gradient_for(tensor: Any) -> Any:
    """A gradient of the class that eager has for `tensor`, the same each time."""
    return rebuilt(plain_tangent(tensor), lambda x: torch.linspace(0, 1, x.numel(), dtype=x.dtype).view(x.shape))


@pytest.mark.inductor("two")
def test_input_written_between_forward_and_backward(agree: Any, kind: Any) -> None:
    def later(args: Any, out: Any) -> Any:
        with torch.no_grad():
            args[0].mul_(2)
        return torch.autograd.grad(out.sum(), args[1])

    agree(lambda p, q: p * q, lambda: (kind(3, 4), kind(3, 4, grad=True, seed=1)), later)


def test_output_written_between_forward_and_backward(agree: Any, kind: Any) -> None:
    def later(args: Any, out: Any) -> Any:
        with torch.no_grad():
            out.mul_(2)
        return torch.autograd.grad(out.sum(), args[0])

    agree(lambda p: p.exp(), lambda: (kind(3, 4, grad=True),), later)


@pytest.mark.inductor("two")
def test_gradient_object_is_never_touched(kind: Any, build: Any) -> None:
    """Each leaf of the gradient is transposed in memory; the gradient itself says that it is contiguous."""
    x = kind(3, 4, grad=True)
    compiled = build(lambda x: x * 2)
    out = compiled(x)
    gradient = rebuilt(gradient_for(out), lambda leaf: leaf.t().contiguous().t())
    if isinstance(gradient, TwoTensor):
        gradient = TwoTensor(gradient.a, gradient.b, gradient.size(), (4, 1))
    leaves = dense_leaves(gradient)
    before = [(leaf, leaf.clone(), leaf.stride(), leaf._version) for leaf in leaves]
    out.backward(gradient)
    assert all(a is b for a, b in zip(dense_leaves(gradient), leaves, strict=True))
    for leaf, value, stride, version in before:
        assert leaf.equal(value) and (leaf.stride(), leaf._version) == (stride, version)
    expected = kind(3, 4, grad=True)
    (expected * 2).backward(gradient)
    assert not difference(expected.grad, x.grad, strides=False)


@pytest.mark.inductor("two")
def test_backward_through_one_of_several_outputs(agree: Any, kind: Any) -> None:
    def program(x: Any) -> Any:
        return x.sin(), x * 3, x.exp()

    for used in range(3):
        agree(
            program,
            lambda: (kind(3, 4, grad=True),),
            lambda args, out, used=used: torch.autograd.grad(out[used].sum(), args[0]),
        )


@pytest.mark.inductor("two")
@pytest.mark.parametrize("used", [(0,), (1,), (0, 1)])
def test_an_input_that_nothing_reaches_has_no_gradient(agree: Any, kind: Any, used: tuple[int, ...]) -> None:
    def program(x: Any, y: Any, z: Any) -> Any:
        return x * 2 + z, y * 3 + z

    agree(program, lambda: three(kind), gradients_through(*used))
    agree(program, lambda: tuple(numbers(x).requires_grad_() for x in three(kind)), gradients_through(*used))


@pytest.mark.parametrize("used", [(0,), (1,)])
def test_a_written_input_is_a_result_like_others(agree: Any, kind: Any, used: tuple[int, ...]) -> None:
    """Through what is written into `w`, and through another result."""

    def program(w: Any, x: Any, y: Any) -> Any:
        w.mul_(x)
        return y * 3

    def later(args: Any, out: Any) -> Any:
        ends = [(args[0], out)[i] for i in used]
        return torch.autograd.grad(ends, [*roots, *args[1:]], [torch.ones_like(e) for e in ends], allow_unused=True)

    roots: list[Any] = []

    def make() -> Any:
        w, x, y = kind.non_leaf(3, 4), kind(3, 4, grad=True, seed=1), kind(3, 4, grad=True, seed=2)
        roots[:] = [w.root]
        return w, x, y

    agree(program, make, later)


@pytest.mark.parametrize("used", [0, 1, 2])
def test_backward_through_some_views_of_something_computed(agree: Any, kind: Any, used: int) -> None:
    """Two results are views of one tensor that is no result."""

    def program(x: Any, y: Any, z: Any) -> Any:
        both = (x * 2).sin()
        return both[0], both[1], y * z

    agree(program, lambda: three(kind), gradients_through(used))


def test_a_function_that_gives_no_gradient(agree: Any, kind: Any) -> None:
    class First(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:  # type: ignore[override]
            return gradient * 2, None

    def program(x: Any, y: Any, z: Any) -> Any:
        return First.apply(x, y), y * z  # type: ignore[no-untyped-call]

    for used in range(2):
        agree(program, lambda: three(kind), gradients_through(used))


@pytest.mark.parametrize("use_reentrant", [True, False])
@pytest.mark.parametrize("used", [0, 1])
def test_backward_through_some_results_with_a_checkpoint_inside(
    agree: Any, kind: Any, used: int, use_reentrant: bool
) -> None:
    def program(x: Any, y: Any, z: Any) -> Any:
        inner = lambda v: v * y  # noqa: E731
        return torch.utils.checkpoint.checkpoint(inner, x, use_reentrant=use_reentrant), z * y

    def later(args: Any, out: Any) -> Any:
        torch.autograd.backward(out[used], torch.ones_like(out[used]))
        unknown = used and use_reentrant  # autograd does not tell what such a checkpoint reaches: zeros are allowed
        return [x.grad for x in (args[1:] if unknown else args) if used or x is not args[2]]

    agree(program, lambda: three(kind), later)


@pytest.mark.parametrize("used", [(0,), (1,), (0, 1)])
@pytest.mark.parametrize("create_graph", [False, True])
def test_backward_through_some_results_and_second_derivatives(
    agree: Any, kind: Any, used: tuple[int, ...], create_graph: bool
) -> None:
    def program(x: Any, y: Any, z: Any) -> Any:
        return x.sin() * z, y.sin() * z

    agree(program, lambda: three(kind), gradients_through(*used, create_graph=create_graph), double_backward=True)


def test_backward_through_some_results_of_one_compiled_function_after_another(
    agree: Any, kind: Any, build: Any
) -> None:
    """The first one is on autograd's way, and nothing arrives there."""
    first = build(lambda y: (y * 3, y.sin()))

    def later(args: Any, out: Any) -> Any:
        second = build(lambda x, y: (x * 2, y * 2))
        result = second(args[0], first(args[1])[0])
        return torch.autograd.grad(result[0].sum(), args, allow_unused=True)

    agree(lambda x, y, z: x * 1, lambda: three(kind), later)


def three(kind: Any) -> tuple[Any, Any, Any]:
    return tuple(kind(3, 4, grad=True, seed=i) for i in range(3))  # type: ignore[return-value]


def gradients_through(*used: int, create_graph: bool = False) -> Any:
    """Goes backward through some of the results."""

    def later(args: Any, out: Any) -> Any:
        ends = [out[i] for i in used]
        tangents = [torch.ones_like(e) for e in ends]
        return torch.autograd.grad(ends, args, tangents, allow_unused=True, create_graph=create_graph)

    return later


def numbers(like: Any) -> torch.Tensor:
    """A dense gradient."""
    return torch.linspace(-1, 2, like.numel(), dtype=like.dtype).view(like.shape)


def with_gradient(make: Any) -> Any:
    """Goes backward with `make(result)`; it must come out of it as it went in."""

    def later(args: Any, out: Any) -> Any:
        gradient = make(out)
        before = [(leaf, leaf.clone(), leaf.stride(), leaf._version) for leaf in dense_leaves(gradient)]
        found = torch.autograd.grad(out, [x for x in args if x.requires_grad], gradient)
        for leaf, value, stride, version in before:
            assert leaf.equal(value) and (leaf.stride(), leaf._version) == (stride, version)
        return found

    return later


@pytest.mark.inductor("two")
@pytest.mark.parametrize("strided", [lambda x: x, lambda x: x.t().contiguous().t()])
def test_dense_gradient_for_a_wrapper(agree: Any, kind: Any, strided: Any) -> None:
    def make() -> tuple[Any, ...]:
        return kind(3, 4, grad=True), kind(3, 4, grad=True, seed=1)

    agree(lambda x, y: (x * y).sin() * x, make, with_gradient(lambda out: strided(numbers(out))))


@pytest.mark.inductor("affine")
@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.unfit(two=NO_CONVERSION, nested=NO_CONVERSION, pair=NO_CONVERSION)
def test_gradient_with_a_declared_conversion(kind: Any, dense: bool, build: Any) -> None:
    """A wrapper that says `to_plain` is a gradient for what has dense gradients."""
    x, y = kind(3, 4, grad=True), kind(3, 4, grad=True)
    gradient = kind(3, 4, seed=1)
    build(lambda x: x * 2)(x).backward(gradient.to_plain() if dense else gradient)
    (y * 2).backward(gradient.to_plain())
    assert not difference(y.grad, x.grad, strides=False)


@pytest.mark.unfit(affine="it is converted: see the test above")
def test_wrapper_gradient_for_a_dense_tensor(agree: Any, kind: Any) -> None:
    def make() -> tuple[Any, ...]:
        return torch.linspace(0, 1, 12, dtype=kind(3, 4).dtype).view(3, 4).requires_grad_(), kind(3, 4)

    agree(lambda x, _: (x * x).sin(), make, lambda args, out: torch.autograd.grad(out, args[0], args[1]))


def test_nested_gradient_for_a_flat_wrapper_and_flat_for_nested(agree: Any) -> None:
    def flat() -> Any:
        return TwoTensor(torch.arange(3.0), torch.arange(3.0) + 1)

    def nested() -> Any:
        return TwoTensor(flat(), flat() * 2)

    for given, arrives in ((flat, nested), (nested, flat)):
        agree(
            lambda x: (x * x).sin(),
            lambda given=given: (given().requires_grad_(),),
            with_gradient(lambda out, arrives=arrives: arrives()),
        )


def test_gradients_of_another_class_for_several_results(agree: Any, kind: Any) -> None:
    """One gradient of another kind, one that is undefined, and one as expected."""

    def later(args: Any, out: Any) -> Any:
        used = (out[0], out[2])
        return torch.autograd.grad(used, args, (numbers(out[0]), gradient_for(out[2])))

    agree(lambda x: (x * x, x.exp(), x.sin()), lambda: (kind(3, 4, grad=True),), later)


def test_gradient_of_another_class_after_a_write(agree: Any, kind: Any) -> None:
    """The graph is made without writes once more, and the forward that ran is the same."""

    def program(x: Any, y: Any) -> Any:
        y.mul_(2)
        middle = x * y
        middle.add_(1)
        return middle.sin() * y

    agree(program, lambda: (kind(3, 4, grad=True), kind(3, 4, seed=1)), with_gradient(numbers))


def test_gradient_that_nothing_can_take(kind: Any) -> None:
    x = kind(3, 4, grad=True)
    out = aot_compile(lambda x: (x * x).sin())(x)
    with pytest.raises(TangentError) as info:
        out.backward(Alone(torch.ones(3, 4, dtype=out.dtype)))
    expected = "Tensor (dense)" if kind.name == "affine" else "TwoTensor with inner tensors ['a', 'b']"
    got = "Got:      Alone with inner tensors ['value']"
    hook = ("give Alone the hook", "def __coerce_same_metadata_as_tangent__")
    for text in ("output[0]", f"Expected: {expected}", got, "OperatorRuleError", *hook):
        assert text in str(info.value)
    torch.autograd.grad(out, x, gradient_for(out))


class Alone(WrapperTensor, fallback="error"):
    """Has no operators."""

    value: torch.Tensor


def test_dense_gradient_for_a_class_without_operators() -> None:
    class Closed(WrapperTensor, fallback="error"):
        value: torch.Tensor

    @Closed.implements(torch.ops.aten.mul.Tensor)
    def _(x: Any, y: Any) -> Any:
        if not (isinstance(x, Closed) and isinstance(y, Closed)):
            raise TypeError("only with its like")
        return Closed(x.value * y.value)

    out = aot_compile(lambda x, y: x * y)(Closed(torch.ones(3)).requires_grad_(), Closed(torch.ones(3)))
    with pytest.raises(TangentError, match=r"(?s)TypeError: only with its like.*give Closed the hook.*from_tangent"):
        out.backward(torch.ones(3))


@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: TwoTensor(x, x.clone())])
def test_conversion_that_the_expected_class_declares(wrap: Any) -> None:
    """`from_tangent` says how a dense gradient becomes one of the class, inside another wrapper, too."""

    class Halved(WrapperTensor, fallback="each"):
        value: torch.Tensor
        mark: int = 0

        @classmethod
        def from_tangent(cls, tangent: Any, context: Any) -> Any:
            if type(tangent) is not torch.Tensor:
                return None
            return Halved.__tensor_unflatten__({"value": tangent / 2}, context, tangent.size(), tangent.stride())

    x = wrap(Halved(torch.ones(3, 4), 7)).requires_grad_()
    gradient = wrap(torch.arange(12.0).view(3, 4))
    compiled = aot_compile(lambda x: x * 3)
    compiled(x).backward(gradient)
    assert not difference(wrap(Halved(torch.arange(12.0).view(3, 4) * 1.5, 7)), x.grad)


class Marked(WrapperTensor, fallback="each"):
    """A tensor with a mark, and gradients that can be given another."""

    value: torch.Tensor
    mark: int = 0

    def __coerce_same_metadata_as_tangent__(self, context: Any, expected_type: type | None = None) -> Any:
        if expected_type in (None, Marked):
            return Marked.__tensor_unflatten__({"value": self.value}, context, self.size(), self.stride())
        return self.value if expected_type is torch.Tensor else None


@pytest.mark.inductor
@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: TwoTensor(x, x.clone())])
def test_gradient_with_another_context(wrap: Any, build: Any) -> None:
    x = wrap(Marked(torch.ones(3, 4), 1)).requires_grad_()
    gradient = wrap(Marked(torch.arange(12.0).view(3, 4), 2))
    build(lambda x: x * 3)(x).backward(gradient)
    assert not difference(wrap(Marked(torch.arange(12.0).view(3, 4) * 3, 1)), x.grad)


def test_gradient_of_another_class_through_the_hook() -> None:
    x = torch.ones(3, requires_grad=True)
    aot_compile(lambda x: x * 3)(x).backward(Marked(torch.arange(3.0), 2))
    torch.testing.assert_close(x.grad, torch.arange(3.0) * 3)


class Labelled(WrapperTensor, fallback="each"):
    """Has a context, and no hook for another one."""

    value: torch.Tensor
    label: int = 0


def test_gradient_with_another_context_and_no_hook(agree: Any) -> None:
    agree(
        lambda x: x * 2,
        lambda: (Labelled(torch.arange(4.0), 1).requires_grad_(),),
        with_gradient(lambda out: Labelled(torch.arange(4.0) + 1, 2)),
    )


def test_form_of_gradients_that_the_class_says() -> None:
    """`__coerce_tangent_metadata__` says what is expected; such a gradient needs no conversion."""

    class Canonical(Labelled):
        def __coerce_tangent_metadata__(self) -> Any:
            return Canonical(self.value, 9)

        def __coerce_same_metadata_as_tangent__(self, context: Any, expected_type: type | None = None) -> Any:
            raise AssertionError("nothing to convert")

    x = Canonical(torch.ones(3), 1).requires_grad_()
    compiled = aot_compile(lambda x: x * 3)
    compiled(x).backward(Canonical(torch.arange(3.0), 9))
    assert not difference(Canonical(torch.arange(3.0) * 3, 9), x.grad)


@pytest.mark.inductor("two")
@pytest.mark.parametrize("strided", [lambda x: x.t().contiguous().t(), lambda x: x[:1, :1].clone().expand(3, 4)])
def test_gradient_with_other_strides(agree: Any, kind: Any, strided: Any) -> None:
    def later(args: Any, out: Any) -> Any:
        return torch.autograd.grad(out, args[0], rebuilt(gradient_for(out), strided))

    agree(lambda x: x * x, lambda: (kind(3, 4, grad=True),), later)


@pytest.mark.inductor("two")
def test_what_is_saved_is_dense(kind: Any, build: Any) -> None:
    """The backward graph is given dense tensors."""
    given: list[type] = []

    def spy(graph: Any, inputs: Any) -> Any:
        def run(*values: Any) -> Any:
            given.extend(map(type, values))
            return graph.forward(*values)

        return run

    x, y = kind(3, 4, grad=True), kind(3, 4, grad=True, seed=1)
    (build(lambda x, y: (x * y).sin() * y, bw_compiler=spy)(x, y)).sum().backward()
    assert len(given) > 2 and set(given) == {torch.Tensor}


class BranchesInBackward(torch.autograd.Function):
    """Looks at the size of a dense gradient, and not at that of a wrapper."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return gradient * 2 if type(gradient) is TwoTensor or gradient.shape[0] % 2 == 0 else gradient * 3


def test_a_backward_that_assumes_more_of_symbolic_sizes_than_the_call_has_checked() -> None:
    compiled = aot_compile(BranchesInBackward.apply, dynamic=True)
    x = TwoTensor(torch.ones(4, 3), torch.ones(4, 3)).requires_grad_()
    with pytest.raises(TangentError, match="assume more of symbolic sizes"):
        compiled(x).backward(torch.ones(4, 3))
