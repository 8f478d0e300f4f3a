"""What eager mode leaves open is excused, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from subclass_aot.testing.runs import Later
from tests.fuzz.oracle import check_program
from tests.fuzz.programs import Argument, Program
from tests.fuzz.trees import Tree


def doubled(gradient: Callable[[torch.Tensor], torch.Tensor], traced: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Returns a function that doubles its argument, and has one gradient in eager mode and another one when traced."""

    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:  # type: ignore[override, unused-ignore]
            return traced(grad) if torch.compiler.is_compiling() else gradient(grad)

    return Doubled.apply


def test_backward_leaves_out_a_view_that_autograd_gave_up_in_eager_mode() -> None:
    """Only there `chunk` makes views of which autograd says nothing once the memory is written by another name."""
    given = (Argument(Tree("dense"), (2, 3), grad="computed"), Argument(Tree("dense"), (1,), alias="leaf"))
    check_program(Program(given, (("v2, v3 = x0.chunk(2, -1)", False), ("x1.mul_(2)", True)), ("v2",)))


def test_in_inference_mode_a_composite_operator_may_count_no_version() -> None:
    """There `reshape` goes to the class whole, which makes no view of the wrapper; a write counts on it if compiled."""
    two = Argument(Tree("TwoTensor", (Tree("dense"), Tree("dense"))), (2, 3), grad="view")
    statements = (("v2 = x0.reshape(-1)", True), ("v2.mul_(2)", True))
    check_program(Program((two,), statements, ("x0",), "inference"))


def test_formulas_of_autograd_that_mind_a_mode() -> None:
    """The gradient of `masked_select` is of the wrapper's class, but a plain tensor while any dispatch mode is on."""
    wrapper = Argument(Tree("Scaled"), (2, 3), grad="leaf")
    check_program(Program((wrapper,), (("v1 = x0.masked_select(x0 > 1).sum()", False),), ("v1",)))


def test_conjugates_that_a_class_of_torch_forgets() -> None:
    """In its backward, `x.conj() * x` multiplies by `x`, where it should by its conjugate; compiled it does."""
    leaf, dense = Tree("ForeignTwoTensor", (Tree("dense"), Tree("dense"))), Tree("dense")
    statements = (("v1 = x0.conj() * x0", False),)
    check_program(Program((Argument(leaf, (2, 3), torch.complex128, grad="leaf"),), statements, ("v1",)))
    check_program(Program((Argument(dense, (2, 3), torch.complex128, grad="leaf"),), statements, ("v1",)))


def test_an_inner_tensor_that_begins_to_require_grad_is_refused() -> None:
    """In eager mode nothing looks at it again, and its gradient is lost."""
    given = (Argument(Tree("dense"), (2, 3)), Argument(Tree("dense"), (2, 3), grad="leaf"))
    check_program(Program(given, (("v2 = TwoTensor(x0, x0)", True), ("x0.add_(x1)", False)), ("v2",)))


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_a_view_that_out_gives_another_size_is_refused_by_name() -> None:
    """Torch warns of that, and will refuse it, too."""
    statements = (("v1 = x0 * 2", True), ("v3 = x0.t()", True), ("torch.sin(v1, out=v3)", True))
    check_program(Program((Argument(Tree("dense"), (2, 3), grad="leaf"),), statements, ("v3",)))


def test_a_gradient_of_another_class_is_a_difference() -> None:
    """A mode alone does not bring it about, so it is not excused."""

    two = Argument(Tree("TwoTensor", (Tree("dense"), Tree("dense"))), (2, 3), grad="leaf")
    program = Program((two,), (), ("x0",))
    program.__dict__["function"] = doubled(lambda grad: grad * 0, lambda grad: torch.zeros(2, 3, dtype=torch.float64))
    with pytest.raises(AssertionError, match="gradient 0: TwoTensor expected, Tensor got"):
        check_program(program)


def test_what_a_view_of_no_grad_is_a_view_of_may_fail_in_every_backward() -> None:
    """Autograd saves `x0`, which is written then, for the base of the results: nobody can go backward there."""
    statements = (("v1 = x0 * x0", False), ("v2 = v1.t()", True), ("v3 = v1.t()", True), ("x0.mul_(2)", True))
    check_program(Program((Argument(Tree("dense"), (2, 3), grad="leaf"),), statements, ("v2", "v3")))


def test_a_compiled_backward_may_not_need_what_was_saved_and_written() -> None:
    """The gradient of `angle` is zero, whatever comes of `relu`, whose result the user writes."""
    statements = (("v1 = x0.angle()", False), ("v2 = v1.relu()", False))
    given = (Argument(Tree("dense"), (2, 3), grad="leaf"),)
    check_program(Program(given, statements, ("v2",), later=Later(after="grad")))


def test_a_result_that_autograd_has_given_up() -> None:
    given = (Argument(Tree("dense"), (2, 3), grad="leaf"),)
    check_program(Program(given, (("v1 = x0.t()", True), ("x0.mul_(2)", True)), ("v1",)))


def test_a_sum_in_little_precision_is_rounded_otherwise_in_another_order() -> None:
    """Three gradients of `v1` are added up. One comes by way of a view that is written after the call."""
    given = (Argument(Tree("dense"), (2, 3), torch.float64, grad="leaf"),)
    statements = (("v1 = x0.to(torch.bfloat16)", False), ("v2 = v1.t()", False), ("v3 = v1 * 0.3 + v1 * 0.7", False))
    check_program(Program(given, statements, ("v2", "v3"), later=Later(after="grad")), tuple(range(1, 10)))


@pytest.mark.parametrize("error", [1e-4, 0.1])
def test_what_is_more_than_rounding_is_a_difference(error: float) -> None:
    def check(text: str) -> None:
        program = Program((Argument(Tree("dense"), (2, 3), grad="leaf"),), ((text, False),), ("x0",))
        program.__dict__["function"] = doubled(lambda grad: grad * 1, lambda grad: grad * (1 + error))
        check_program(program)

    with pytest.raises(AssertionError, match="gradient 0"):
        check("x0.double()")
    if error < 0.01:
        check("x0.half()")
    else:
        with pytest.raises(AssertionError, match="gradient 0"):
            check("x0.half()")


@pytest.mark.parametrize("layout", ["packed", "transposed"])
def test_in_eager_mode_a_view_of_a_gradient_counts_from_where_the_wrapper_begins(layout: str) -> None:
    """What `unsafe_split` gives is no view, and begins where `x0` does; its diagonal is a view by `as_strided`."""
    two = Argument(Tree("TwoTensor", (Tree("dense"), Tree("dense"))), (2, 3), layout=layout, grad="leaf")
    statements = (("v1 = torch.unsafe_split(x0, 1)[0]", False), ("v1.fill_diagonal_(2)", False))
    check_program(Program((two,), statements, ("v1",)))


def test_a_gradient_that_is_wrong_wherever_the_wrapper_begins_is_a_difference() -> None:
    two = Argument(Tree("TwoTensor", (Tree("dense"), Tree("dense"))), (2, 3), grad="leaf")
    program = Program((two,), (("x0.fill_diagonal_(2)", False),), ("x0",)).moved(3)
    program.__dict__["function"] = doubled(lambda grad: grad * 2, lambda grad: grad * 3)
    with pytest.raises(AssertionError, match="gradient 0"):
        check_program(program)


def test_a_gradient_of_a_dense_tensor_that_is_right_at_the_beginning_alone_is_a_difference() -> None:
    class Placed(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.first = 0 if torch.compiler.is_compiling() else x.storage_offset()
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:  # type: ignore[override, unused-ignore]
            return grad * (2 + ctx.first)

    given = (Argument(Tree("dense"), (2, 3), grad="leaf"),)
    program = Program(given, (("x0.fill_diagonal_(2)", False),), ("x0",)).moved(3)
    program.__dict__["function"] = Placed.apply
    with pytest.raises(AssertionError, match="gradient 0"):
        check_program(program)


def test_in_eager_mode_a_gradient_may_be_added_to_a_view_of_no_grad_that_is_forbidden() -> None:
    """What `chunk` makes under `no_grad` requires grad. When `x0` is written, autograd has given it up."""
    given = (Argument(Tree("dense"), (2, 3), torch.float64, grad="computed"),)
    statements = (("v1, v2 = x0.chunk(2, -1)", True), ("v4 = nn.gelu(v2)", False), ("x0.add_(v4)", False))
    check_program(Program(given, statements, ("x0",)))
