"""Programs that write into their inputs."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch

from subclass_aot import TwoTensor, aot_compile
from subclass_aot.errors import MutationError


@pytest.mark.inductor("two")
def test_assigned_attribute(kind: Any, build: Any) -> None:
    *holder, name = kind.paths[kind.main].split(".")

    def program(x: Any) -> Any:
        owner = operator.attrgetter(".".join(holder))(x) if holder else x
        setattr(owner, name, getattr(owner, name) * 2)
        return x + 1

    x = kind(3, 4)
    inner, before = kind.inner(x), kind.inner(x).clone()
    path = rf"args\[0\]\.{kind.paths[kind.main]}"
    with pytest.raises(MutationError, match=f"{path}: the function put another tensor"):
        build(program)(x)
    assert kind.inner(x) is inner and inner.equal(before)


@pytest.mark.inductor("two")
@pytest.mark.parametrize("exchange", [lambda x, y: x.set_(y), lambda x, y: setattr(x, "data", y)], ids=["set_", "data"])
def test_exchanged_memory(kind: Any, exchange: Any, build: Any) -> None:
    def program(x: Any) -> Any:
        inner = kind.inner(x)
        exchange(inner, torch.zeros_like(inner))
        return x + 1

    x = kind(3, 4)
    before = kind.inner(x).clone()
    with pytest.raises(MutationError, match="other memory") as info:
        build(program, values="refuse")(x)
    assert "test_mutation.py" in str(info.value) and kind.inner(x).equal(before)


@pytest.mark.inductor("two")
@pytest.mark.parametrize("reads_input", [False, True])
def test_non_leaf_that_requires_grad_is_written(agree: Any, kind: Any, reads_input: bool) -> None:
    def program(x: Any) -> Any:
        x.mul_(2)
        return x.sin()

    def later(args: Any, out: Any) -> Any:
        loss = (args[0] * out).sum() if reads_input else out.sum()
        return torch.autograd.grad(loss, args[0].root)

    agree(program, lambda: (kind.non_leaf(3, 4),), later)


def test_written_with_what_requires_grad(agree: Any, kind: Any) -> None:
    def program(x: Any, w: Any) -> Any:
        x.mul_(w)
        return x * 2

    def later(args: Any, out: Any) -> Any:
        return torch.autograd.grad((out + args[0]).sum(), args[1])

    agree(program, lambda: (kind(3, 4), kind(3, 4, grad=True, seed=1)), later)


def test_leaf_written_under_no_grad(agree: Any, kind: Any) -> None:
    def program(x: Any) -> Any:
        with torch.no_grad():
            x.mul_(2)
        return x * x

    agree(program, lambda: (kind(3, 4, grad=True),), lambda args, out: torch.autograd.grad(out.sum(), args[0]))


def test_leaf_that_requires_grad_is_refused_as_in_eager(kind: Any) -> None:
    def program(x: Any) -> Any:
        return x.mul_(2)

    x = kind(3, 4, grad=True)
    before = [leaf.clone() for leaf in kind.leaves(x)]
    for function in (program, aot_compile(program)):
        with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
            function(x)
        assert all(a.equal(b) for a, b in zip(kind.leaves(x), before, strict=True))


@pytest.mark.parametrize("change", [lambda x: x.t_(), lambda x: x.unsqueeze_(0), lambda x: x.t_().unsqueeze_(1)])
def test_metadata_is_written(agree: Any, kind: Any, change: Any) -> None:
    def program(x: Any) -> Any:
        change(x)
        return x * 2

    agree(program, lambda: (kind(3, 4),))


@pytest.mark.unfit(dense="it has no inner tensors")
def test_another_size_for_an_inner_tensor(kind: Any) -> None:
    x = kind(3, 4)
    with pytest.raises(MutationError, match="another size"):
        aot_compile(lambda x: kind.inner(x).resize_(2, 1))(x)


@pytest.mark.inductor("two")
def test_data_and_metadata_are_written(agree: Any, kind: Any) -> None:
    def program(x: Any) -> Any:
        x.t_()
        x.mul_(2)
        return x.sin()

    def later(args: Any, out: Any) -> Any:
        return torch.autograd.grad((args[0] * out).sum(), args[0].root)

    agree(program, lambda: (kind(3, 4),))
    agree(program, lambda: (kind.non_leaf(3, 4),), later)


@pytest.mark.inductor("two")
def test_one_inner_tensor_is_written(agree: Any, kind: Any) -> None:
    path = kind.paths[kind.main]

    def program(x: Any) -> Any:
        operator.attrgetter(path)(x).mul_(2)
        return x + 1

    agree(program, lambda: (kind(3, 4),))


def copies_in(program: Any, *args: Any) -> int:
    """How many writes into inputs the forward graph has."""
    copies = []

    def count(graph: Any, inputs: Any) -> Any:
        copies.extend(n for n in graph.graph.nodes if n.target is torch.ops.aten.copy_.default)
        return graph

    aot_compile(program, fw_compiler=count)(*args)
    return len(copies)


def test_the_graph_writes_that_leaf_only(kind: Any) -> None:
    path = kind.paths[kind.main]
    assert copies_in(lambda x: operator.attrgetter(path)(x).mul_(2), kind(3, 4)) == 1


@pytest.mark.unfit(two="mul_ writes both of its leaves", nested="mul_ writes all of its leaves")
def test_a_rule_that_writes_some_leaves(agree: Any, kind: Any) -> None:
    agree(lambda x: x.mul_(2), lambda: (kind(3, 4),))
    scales_and_shifts = kind.dtypes.count(torch.float64)  # and not the codes
    assert copies_in(lambda x: x.mul_(2), kind(3, 4)) == scales_and_shifts


class WritesInBackward(torch.autograd.Function):
    """Counts its calls in a buffer, forward and backward."""

    @staticmethod
    def forward(ctx: Any, x: Any, count: Any) -> Any:
        ctx.count = count
        count.add_(1)
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        ctx.count.mul_(3)
        return gradient * 2, None


@pytest.mark.inductor("two")
def test_buffer_is_written_forward_and_backward(agree: Any, kind: Any) -> None:
    def later(args: Any, out: Any) -> Any:
        between = args[1].clone()
        return between, torch.autograd.grad(out.sum(), args[0]), args[1].clone()

    agree(lambda x, b: WritesInBackward.apply(x, b), lambda: (kind(3, 4, grad=True), torch.arange(3.0)), later)


def test_buffer_is_a_wrapper(agree: Any, kind: Any) -> None:
    def later(args: Any, out: Any) -> Any:
        between = args[1].clone()
        return between, torch.autograd.grad(out.sum(), args[0]), args[1].clone()

    x = torch.rand(3, 4)
    agree(lambda x, b: WritesInBackward.apply(x, b), lambda: (x.clone().requires_grad_(), kind(3, 4)), later)


def square_of_what_is_written(x: Any, w: Any) -> Any:
    y = x * w
    z = y * y
    y.mul_(2)
    return z, w * 3, x * 2


def a_part_is_written_and_another_read(x: Any, w: Any) -> Any:
    a, b = x[2:], x[:2]
    b.mul_(w)
    b.mul_(a)
    return a * b, w * 3


@pytest.mark.parametrize("lazy_backward", [True, False])
def test_where_eager_fails_in_backward_so_does_the_compiled_one_and_not_before(kind: Any, lazy_backward: bool) -> None:
    for function in (square_of_what_is_written, aot_compile(square_of_what_is_written, lazy_backward=lazy_backward)):
        x, w = kind(3, 4, grad=True), torch.full((), 2.0, requires_grad=True)
        square, triple, double = function(x, w)
        triple.backward(retain_graph=True)
        assert w.grad == 3 and x.grad is None
        double.sum().backward(retain_graph=True)
        assert x.grad is not None
        for ends in ([square.sum()], [square.sum(), double.sum()]):
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                torch.autograd.backward(ends)


@pytest.mark.filterwarnings("ignore")  # of torch's own deprecated parts
@pytest.mark.parametrize(
    "options", [{}, {"double_backward": True}, {"fw_compiler": "inductor", "lazy_backward": False}]
)
def test_from_no_result_can_anybody_go_back(options: dict[str, Any]) -> None:
    def program(x: Any, w: Any) -> Any:
        return square_of_what_is_written(x, w)[0]

    for function in (program, aot_compile(program, **options)):
        square = function(torch.ones(3), torch.full((), 2.0, requires_grad=True))
        assert square.requires_grad and torch.equal(square, torch.full((3,), 4.0))
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            square.sum().backward()


@pytest.mark.parametrize("wraps", [False, True])
def test_an_input_that_nobody_can_go_back_from(wraps: bool) -> None:
    for function in (a_part_is_written_and_another_read, aot_compile(a_part_is_written_and_another_read)):
        x, w = torch.full((4, 2), 2.0), torch.full((2,), 3.0)
        if wraps:
            x, w = TwoTensor(x, x.clone()), TwoTensor(w, w.clone())
        w.requires_grad_()
        product, triple = function(x, w)
        triple.sum().backward(retain_graph=True)
        assert w.grad is not None and x.requires_grad
        for end in (product, x):
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                end.sum().backward()


def test_a_backward_that_fails_has_symbolic_sizes_or_is_traced_without_them(kind: Any) -> None:
    def program(x: Any) -> Any:
        square = x * x
        with torch.no_grad():
            x.mul_(2)
        return square, x * 3

    compiled = aot_compile(program, dynamic=True)
    for size in (2, 5):
        x = kind(size, 3, grad=True)
        square, triple = compiled(x)
        triple.sum().backward()
        assert x.grad is not None
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            square.sum().backward()
    assert "with symbols it fails" not in compiled.explain()


@pytest.mark.filterwarnings("ignore")  # torch says that it should not be done
def test_a_result_that_is_given_another_size_fails_in_backward_and_not_before() -> None:
    def program(x: Any, w: Any) -> Any:
        result = x * w
        with torch.no_grad():
            torch.sin(x[:1], out=result)
        return result, w * 3

    for function in (program, aot_compile(program)):
        w = torch.full((), 2.0, requires_grad=True)
        result, triple = function(torch.ones(2, 3), w)
        triple.backward()
        assert result.shape == (1, 3) and result.requires_grad and w.grad == 3
        with pytest.raises(RuntimeError, match="invalid gradient at index"):
            result.sum().backward()
