"""Results that are views of inputs whose sizes and strides the function changes in place, against eager mode."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

from subclass_aot import TwoTensor, aot_compile
from subclass_aot.errors import MutationError
from subclass_aot.testing import check_compiled

Program = Callable[..., Any]


def _written(*lines: str) -> Program:
    scope: dict[str, Any] = {"torch": torch}
    exec("def program(a, b):\n" + "".join(f"    {line}\n" for line in lines), scope)
    program: Program = scope["program"]
    return program


PROGRAMS = [
    ("a.t_()", "return a.reshape(-1), a[0]"),
    ("v = a[0]", "a.t_()", "return v"),
    ("v = a[0]", "a.t_()", "w = a[0]", "a.unsqueeze_(1)", "return v, w, a[1]"),
    ("a.mul_(2)", "a.t_()", "return a[0], a.unsqueeze(0)"),
    ("a.t_()", "a.mul_(2)", "return a[0], a.unsqueeze(0)"),
    ("a.unsqueeze_(0)", "b.mul_(2)", "return a[0], b[0], a * 2"),
    ("a.t_()", "return a.detach(), a.view_as(a)"),
    ("a.transpose_(0, 1)", "a.squeeze_()", "return a[1:], a"),
    ("with torch.no_grad(): a.t_()", "return a[0] * 1"),
]
INPUTS: dict[str, Callable[[], tuple[torch.Tensor, torch.Tensor]]] = {
    "dense": lambda: (torch.rand(3, 4), torch.rand(3, 4)),
    "views of one base": lambda: (lambda x: (x[:2], x[1:]))(torch.rand(3, 4)),
    "apart in one storage": lambda: (lambda x: (x[:2], x[2:]))(torch.rand(4, 4)),
    "one and its transpose": lambda: (lambda x: (x, x.t()))(torch.rand(3, 4)),
}


@pytest.mark.parametrize("lines", PROGRAMS, ids="; ".join)
@pytest.mark.parametrize("given", INPUTS)
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_results_that_are_views(lines: tuple[str, ...], given: str, mode: Any) -> None:
    with mode():
        check_compiled(_written(*lines), INPUTS[given](), tries=0)


@pytest.mark.parametrize("lines", [lines for lines in PROGRAMS if lines[0].startswith("a.")], ids="; ".join)
def test_results_that_are_views_of_what_requires_grad(lines: tuple[str, ...]) -> None:
    check_compiled(_written(*lines), (torch.rand(3, 4, requires_grad=True) * 1, torch.rand(3, 4)), tries=0)


def test_a_view_of_what_requires_grad_that_is_used_after_a_change() -> None:
    """Autograd makes it again, in a trace of the tensor as it looks now."""
    program = _written("v = a[0]", "a.t_()", "return v * 2")
    with pytest.raises(MutationError, match="a view of it is used that was made before"):
        aot_compile(program)(torch.rand(3, 4, requires_grad=True) * 1, torch.rand(3))


@pytest.mark.parametrize("first", ["a.t_()", "b.mul_(2)"])
def test_one_view_is_written_and_another_turned(first: str) -> None:
    """Of one base, without gradients; both are used in a product."""
    lines = [first, *{"a.t_()", "b.mul_(2)"} - {first}, "return a.t() * b, a[0]"]
    check_compiled(_written(*lines), INPUTS["views of one base"](), tries=0)


def test_out_of_another_size_that_is_a_view_of_an_input() -> None:
    def program(x: Any) -> Any:
        view = x.t()
        torch.sin(x * 2, out=view)
        return view

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_compiled(program, [torch.rand(2, 3)], tries=0)


def test_a_view_that_is_made_between_two_changes() -> None:
    """The write makes autograd look for its way from the base."""
    program = _written("a.unsqueeze_(0)", "v = a.permute(2, 1, 0)", "a.swapaxes_(0, 1)", "a.mul_(2)", "return v")
    base = torch.rand(3, 4, requires_grad=True) * 1
    check_compiled(program, (base[:2], base[1:]), tries=0)


@pytest.mark.parametrize("dynamic", [None, True])
def test_a_result_that_was_made_before_a_change_of_what_it_is_a_view_of(dynamic: bool | None) -> None:
    """With symbolic sizes, torch says so with an error of another class."""
    program = _written("x = a * 2", "v = x.movedim(0, -1)", "x.unsqueeze_(0)", "return v")
    with pytest.raises(MutationError, match="made before"):
        aot_compile(program, dynamic=dynamic)(torch.rand(2, 3, requires_grad=True), torch.rand(3))


def test_an_input_that_is_turned_by_its_own_size() -> None:
    compiled = aot_compile(
        program := _written("a.as_strided_((2, a.shape[0]), (a.shape[0], 1))", "return a * b"), dynamic=True
    )
    for rows in (4, 5, 4):
        a, b = torch.rand(rows, 3), torch.rand(rows)
        expected, got = (x := a.clone(), program(x, b)), (y := a.clone(), compiled(y, b))
        assert all(map(torch.equal, expected, got)) and x.stride() == y.stride() == (rows, 1)


WRAPPERS: dict[str, Callable[[], Any]] = {
    "wrapper": lambda: TwoTensor(torch.rand(3, 3), torch.rand(3, 3)),
    "nested": lambda: TwoTensor(TwoTensor(torch.rand(3, 3), torch.rand(3, 3)), torch.rand(3, 3)),
    "view": lambda: TwoTensor(torch.rand(4, 3), torch.rand(4, 3))[1:],
}


OF_WRAPPERS = [lines for lines in PROGRAMS if lines[0].startswith("a.") and "detach" not in lines[-1]]


@pytest.mark.parametrize("lines", OF_WRAPPERS, ids="; ".join)
@pytest.mark.parametrize("make", WRAPPERS.values(), ids=WRAPPERS)
@pytest.mark.parametrize("requires_grad", [False, True])
def test_results_that_are_views_of_a_wrapper(lines: tuple[str, ...], make: Any, requires_grad: bool) -> None:
    a = make()
    if requires_grad:
        a = a * torch.ones((), requires_grad=True)
    check_compiled(_written(*lines), (a, make()), tries=0)


def test_a_view_of_a_wrapper_beside_another_that_is_turned() -> None:
    compiled = aot_compile(
        _written("v = a.t()", "w = v[..., 1:]", "with torch.no_grad(): w.t_()", "return v"), dynamic=True
    )
    for rows in (2, 4, 2):
        a = TwoTensor(torch.rand(rows, 3), torch.rand(rows, 3))
        v = compiled(a, torch.rand(3))
        assert v._base is a and torch.equal(v.a, a.a.t()) and torch.equal(v.b, a.b.t())
    assert "with symbols it fails" not in compiled.explain()


@pytest.mark.parametrize("size", [(3, 3), (3, 4)])
def test_a_view_of_a_wrapper_that_was_made_before_a_change_is_refused(size: tuple[int, int]) -> None:
    """Made again of the wrapper as it looks after the call, it would be another, and of a square one with its sizes."""
    for program in (
        _written("v = a.unbind(1)[2]", "a.unsqueeze_(0)", "return v"),
        _written("v = a.split(1)[-1][0]", "a.unsqueeze_(0)", "return v"),
        _written("with torch.no_grad(): v = a.unbind(1)[2]", "a.unsqueeze_(0)", "return v"),
        _written("v = a[0]", "a.t_()", "return v"),
        _written("v = a[:, :2]", "a.t_()", "return v, a"),
    ):
        with pytest.raises(MutationError, match="changes the size or strides of its base"):
            aot_compile(program)(TwoTensor(torch.rand(size), torch.rand(size)), torch.rand(3))


def test_a_wrapper_with_the_inner_tensors_of_one_that_is_mutated_is_refused() -> None:
    with pytest.raises(MutationError, match=r"A result is a view of args\[0\]"):
        aot_compile(_written("a.t_()", "return a.detach()"))(WRAPPERS["wrapper"](), torch.rand(3))


def test_a_view_of_a_wrapper_that_autograd_makes_again_is_refused() -> None:
    base = TwoTensor(torch.rand(4, 2), torch.rand(4, 2)).requires_grad_() * 1
    with pytest.raises(MutationError, match=r"A result is a view of args\[0\]"):
        aot_compile(_written("a.t_()", "b.add_(1)", "return a[0]"))(base[:2], base[2:])


AFTER_AS_STRIDED_ = {
    "the view is written": ("x = a * 1", "v = x[2:]", "v.as_strided_((2, 2), (2, 1), 0)", "v.mul_(b)", "return x"),
    "it is one of an input": ("v = a[2:]", "v.as_strided_((2, 2), (2, 1), 0)", "v.mul_(b)", "return a * 1"),
}


@pytest.mark.parametrize("lines", AFTER_AS_STRIDED_.values(), ids=AFTER_AS_STRIDED_)
def test_a_write_after_as_strided_where_the_offset_counts_from_elsewhere(lines: tuple[str, ...]) -> None:
    check_compiled(_written(*lines), (torch.rand(4, 2), torch.rand(2, 2)), tries=0)


def test_a_write_after_as_strided_of_the_tensor_itself_or_without_an_offset() -> None:
    of_itself = _written("x = a * 1", "x.as_strided_((2, 2), (2, 1), 2)", "x.mul_(b)", "return x")
    of_the_view = _written("x = a * 1", "v = x[2:]", "v.as_strided_((2, 2), (2, 1))", "v.mul_(b)", "return x")
    only_read = _written("x = a * 1", "v = x[2:]", "v.as_strided_((2, 2), (2, 1), 0)", "return v * b")
    for program in (of_itself, of_the_view, only_read):
        check_compiled(program, (torch.rand(4, 2), torch.rand(2, 2)), tries=0)


@pytest.mark.parametrize(
    "program",
    [
        lambda x: (x.t_(), TwoTensor(x, x))[1],
        lambda x: (x.unsqueeze_(0), TwoTensor(x, x * 2))[1],
        lambda x: (x.t_(), TwoTensor(TwoTensor(x, x), TwoTensor(x + 1, x)), x)[1:],
        lambda x: (TwoTensor(x, x), x.t_())[0],
        lambda x: (x.t_(), x.mul_(2), TwoTensor(x, x))[2],
    ],
)
@pytest.mark.parametrize("grad", [False, True])
def test_an_input_that_is_turned_and_put_into_a_wrapper(agree: Any, program: Any, grad: bool) -> None:
    def make() -> tuple[torch.Tensor]:
        return (torch.arange(6.0).view(2, 3).requires_grad_(grad) * 1,)

    agree(program, make)
