"""What a call does around its graph: what it writes back, in which order, and what its results are."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from subclass_aot import TwoTensor, aot_compile
from subclass_aot.testing import check_compiled, dense_leaves

pytestmark = pytest.mark.usefixtures("either_way")


def leaf() -> torch.Tensor:
    return torch.rand(2, 2, requires_grad=True)


def two(grad: bool = False) -> TwoTensor:
    return TwoTensor(torch.rand(2, 2), torch.rand(2, 2)).requires_grad_(grad)


CONSTANT = torch.ones(2)


def every_kind(x: Any, y: Any) -> Any:
    made = x * y
    return made, made, x, x[0], made.t(), made[0], "text", CONSTANT, (x.shape, None)


@pytest.mark.parametrize("make", [leaf, lambda: two(True), two, lambda: torch.rand(2, 2)])
def test_each_result_is_what_it_is_in_eager_mode(make: Any) -> None:
    x, y = make(), torch.rand(2, 2)
    compiled = aot_compile(every_kind)
    made, again, given, view, transposed, part, text, constant, (shape, nothing) = compiled(x, y)
    assert made is again and given is x and constant is CONSTANT and text == "text"
    assert shape == x.shape and type(shape) is torch.Size and nothing is None
    assert view._base is x
    base = made if made._base is None else made._base
    assert transposed._base is base and part._base is base
    check_compiled(every_kind, [x, y])


def test_a_view_that_autograd_must_not_see_has_no_history() -> None:
    def program(x: Any) -> Any:
        with torch.no_grad():
            return x[0], x * 2

    x = leaf()
    view, made = aot_compile(program)(x)
    assert view._base is x and view.grad_fn is None and not made.requires_grad
    check_compiled(program, [x])


def test_inputs_are_written_before_views_of_them_are_made() -> None:
    def program(x: Any, w: Any) -> Any:
        x.mul_(w)
        return x[0], w * 2

    x, w = torch.ones(2, 2), leaf()
    view, _ = aot_compile(program)(x, w)
    assert x.requires_grad and view.requires_grad and torch.equal(view, x[0])
    assert view.grad_fn is not None and x.grad_fn is not None
    check_compiled(program, [torch.ones(2, 2), leaf()])


def turned_and_written(x: Any, w: Any) -> Any:
    x.t_()
    x.mul_(w)
    return x.sum()


@pytest.mark.parametrize("make", [lambda: torch.rand(3, 2), lambda: torch.rand(3, 2)[:2]])
@pytest.mark.parametrize("grad", [True, False])
def test_an_input_is_turned_before_it_is_written(make: Any, grad: bool) -> None:
    x = make()
    check_compiled(turned_and_written, [x, torch.rand(x.t().shape, requires_grad=grad)])
    source = aot_compile(turned_and_written)
    source(x, torch.rand(x.t().shape, requires_grad=True))
    text = source.source.partition("def forward")[0]
    assert text.index("reshape(") < text.index(".copy_("), text


OTHER_SIZES = {
    "t_": lambda x: x.t_(),
    "transpose_": lambda x: x.transpose_(0, 1),
    "unsqueeze_": lambda x: x.unsqueeze_(1),
    "squeeze_": lambda x: x[None].squeeze_(0),
    "as_strided_": lambda x: x.as_strided_((2,), (1,)),
    "several": lambda x: x.t_().unsqueeze_(0).transpose_(0, 2),
    "written, too": lambda x: x.t_().mul_(2),
}
NO_VIEW = ("as_strided_", True)
"""A wrapper has no such view."""


@pytest.mark.every_case
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    ("change", "is_wrapper"),
    [(change, wrapped) for change in OTHER_SIZES for wrapped in (False, True) if (change, wrapped) != NO_VIEW],
)
def test_a_leaf_of_another_size_under_no_grad_has_a_gradient_of_that_size(
    change: str, is_wrapper: bool, dynamic: bool
) -> None:
    def program(x: Any) -> Any:
        with torch.no_grad():
            OTHER_SIZES[change](x)
        return x * x

    compiled = aot_compile(program, dynamic=dynamic)
    found = []
    for function in (program, compiled, compiled):
        values = torch.arange(6.0).view(2, 3)
        x = (TwoTensor(values, values + 1) if is_wrapper else values.clone()).requires_grad_()
        result = function(x)
        tangent = torch.ones_like(result)
        (asked,) = torch.autograd.grad(result, x, tangent, retain_graph=True)
        result.backward(tangent)
        assert asked.shape == x.grad.shape == x.shape
        version = x._version if change != "written, too" else "moved"  # by one where eager moves it by two
        found.append([x.shape, x.stride(), version, *dense_leaves(asked), *dense_leaves(x.grad)])
    for ours in found[1:]:
        assert ours[:3] == found[0][:3]
        torch.testing.assert_close(ours[3:], found[0][3:], rtol=0, atol=0)


def test_an_input_that_begins_to_require_grad_does_so_before_the_graph_runs() -> None:
    def program(x: Any) -> Any:
        x.requires_grad_()
        return (x * 2).sum()

    x = torch.rand(2)
    result = aot_compile(program)(x)
    assert x.requires_grad and result.requires_grad
    result.backward()
    assert x.grad is not None and x.grad.tolist() == [2, 2]


def test_a_leaf_that_the_function_makes_is_one() -> None:
    def program(x: Any) -> Any:
        return (x * 2).detach().requires_grad_()

    x = torch.rand(2)
    result = aot_compile(program)(x)
    assert result.is_leaf and result.requires_grad
    check_compiled(program, [x])


def test_results_under_no_grad_have_no_history_though_inputs_do() -> None:
    x = leaf() * 1
    compiled = aot_compile(lambda x: (x * 2, x.t()))
    with torch.no_grad():
        made, view = compiled(x)
    assert not made.requires_grad and view.grad_fn is None and view._base is x


@pytest.mark.parametrize("grad", [True, False])
def test_numbers_that_forward_computes_are_results(grad: bool) -> None:
    compiled = aot_compile(lambda x: (x * 2, x.shape[0] * 3, x.shape), dynamic=True)
    for size in (4, 5):
        made, number, shape = compiled(torch.ones(size, 2, requires_grad=grad))
        assert number == 3 * size and type(number) is int and shape == (size, 2) and made.shape == (size, 2)
    assert not compiled.recompiles
