"""`resize_` of inputs, of their views and of intermediate tensors, against eager mode."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

from subclass_aot import TwoTensor, aot_compile
from subclass_aot.errors import MutationError
from subclass_aot.testing import check_compiled
from tests.constants import out_of_sight

Program = Callable[..., Any]


def _written(*lines: str) -> Program:
    scope: dict[str, Any] = {"torch": torch}
    exec("def program(a, b):\n" + "".join(f"    {line}\n" for line in lines), scope)
    program: Program = scope["program"]
    return program


SMALLER = [
    ("a.resize_(2, 2)", "return a * 2"),
    ("a.mul_(2)", "a.resize_(2, 2)", "a.add_(1)", "return a.sin(), a[0], a.t()"),
    ("v = a[1]", "a.resize_(2)", "a.add_(1)", "return v * 1, v, a[:1]"),
    ("v = a[1]", "a.resize_(2)", "v.add_(1)", "return v * 1, a * 1"),
    ("a.resize_(2)", "a.resize_(3, 3)", "return a.sum(0)"),
    ("a.resize_(2, 2)", "a.t_()", "a.unsqueeze_(0)", "a.mul_(2)", "return a + 1, a[0]"),
    ("a.t_()", "a.resize_(4, 3)", "a.mul_(2)", "return a"),
    ("a.t_()", "a.resize_(2, 5)", "a.mul_(2)", "return a"),
    ("a.resize_as_(b[0])", "return a * b"),
    ("a.resize_(1, 2, 2, 2, memory_format=torch.channels_last)", "return a * 2"),
    ("a.resize_(0)", "return a, a.sum()"),
    ("v = a[1:]", "v.resize_(2)", "v.add_(1)", "return v, a * 1"),
    ("x = b * 2", "v = x[1]", "x.resize_(2, 2)", "x.add_(1)", "v.mul_(2)", "return x, v * 1, x[0] * a[0, 0]"),
    ("x = (b * 2).t()", "x.resize_(2, 2)", "x.add_(1)", "return x * 1, x.t()"),
    ("x = b * 2", "v = x[1:]", "v.resize_(2)", "v.add_(1)", "return v * 1, x * 1"),
    ("x = b * 2", "x.resize_as_(a[0])", "return x + 1"),
]
LARGER = [
    ("a.resize_(5, 6)", "a.fill_(2)", "return a * 2"),
    ("a.mul_(2)", "a.resize_(20)", "a[12:].fill_(1)", "return a * 2, a[1:14]"),
    ("v = a[1]", "a.resize_(5, 4)", "a[3:] = 1", "v.add_(1)", "return a * 2, v * 1, v, a[1]"),
    ("a.resize_(20)", "a.resize_(3)", "a.add_(1)", "return a + 1"),
    ("a.resize_(2)", "a.resize_(5, 4)", "a[3:] = 1", "return a + 1"),
    ("a.resize_(5, 4)", "a[3:] = 1", "a.t_()", "a.resize_(2, 10)", "return a + 1, a[0]"),
    ("v = a[2:]", "v.resize_(3, 4)", "v[1:] = 2", "return v * 1, a * 1, v"),
    ("a.resize_(5, 4)", "a.zero_()", "b.resize_(30)", "b.fill_(1)", "return a.sum() + b[:3]"),
    ("x = b * 2", "x.resize_(5, 4)", "x[3:] = 1", "return x, x[0], x * 2"),
    ("x = b * 2", "v = x[1]", "x.resize_(5, 4)", "x[3:] = 1", "v.add_(1)", "return x * 2, v * 1"),
    ("x = b * 2", "v = x[2:]", "v.resize_(2, 4)", "v[1:] = 1", "x.add_(1)", "return x * 2, v * 1"),
    ("x = (b * 2).t()", "x.resize_(4, 5)", "x.fill_(1)", "x.mul_(b.sum())", "return x"),
    ("x = torch.empty(0)", "x.resize_(3).copy_(b[0, :3])", "return x * 2"),
    ("x = torch.empty(0)", "torch.add(a, b, out=x)", "x.resize_(2, 2)", "return x * 2"),
]
GIVEN: dict[str, Callable[[], tuple[torch.Tensor, torch.Tensor]]] = {
    "dense": lambda: (torch.rand(3, 4), torch.rand(3, 4)),
    "transposed": lambda: (torch.rand(4, 3).t(), torch.rand(3, 4)),
    "views of one base": lambda: (lambda x: (x[:3], x[2:]))(torch.rand(5, 4)),
    "apart in one storage": lambda: (lambda x: (x[:3], x[3:]))(torch.rand(6, 4)),
    "a part of a storage": lambda: (torch.rand(9, 4)[2:5], torch.rand(3, 4)),
}


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("lines", SMALLER + LARGER, ids="; ".join)
@pytest.mark.parametrize(
    ("given", "mode"), [*((name, torch.enable_grad) for name in GIVEN), ("views of one base", torch.inference_mode)]
)
def test_as_in_eager_mode(lines: tuple[str, ...], given: str, mode: Any) -> None:
    with mode():
        check_compiled(_written(*lines), GIVEN[given](), tries=0)


@pytest.mark.parametrize("lines", SMALLER + LARGER, ids="; ".join)
def test_beside_what_is_trained(lines: tuple[str, ...]) -> None:
    """Gradients of another tensor: what is saved for backward is as it was."""

    def program(a: Any, b: Any, w: Any) -> Any:
        before = w * a.sum()
        results = _written(*lines)(a, b)
        return before, results, w * a.reshape(-1)[:1], w * b

    check_compiled(program, (*GIVEN["dense"](), torch.rand((), requires_grad=True)), tries=0)


@pytest.mark.parametrize("change", ["a.resize_(2, 2)", "a.resize_(5, 4).fill_(1)", "a.resize_as_(b[0])"])
def test_wrappers(change: str) -> None:
    given = TwoTensor(torch.rand(3, 4), torch.rand(3, 4)), torch.rand(3, 4)
    check_compiled(_written("a.mul_(2)", change, "a.add_(1)", "return a * 2"), given, tries=0)
    check_compiled(_written("x = a * 2", change.replace("a.", "x."), "return x + 1"), given, tries=0)


def test_another_call() -> None:
    """Where the tensor lies in its storage, and what else is there, is another matter at each call."""
    compiled = aot_compile(program := _written("a.mul_(2)", "a.resize_(3, 2)", "a.mul_(3)", "return a + b"))
    for begin, rows in (0, 2), (0, 9), (4, 9), (7, 9):
        whole, b = torch.rand(rows, 2), torch.zeros(3, 2)
        given = [x[begin : begin + 2] for x in (whole.clone(), whole.clone())]
        left = [f(x, b) for f, x in zip((compiled, program), given, strict=True)]
        sizes = [x.untyped_storage().nbytes() for x in given]
        assert sizes[0] == sizes[1] and given[0].shape == given[1].shape
        defined = min(6, 2 * (rows - begin))
        assert left[0].view(-1)[:defined].equal(left[1].view(-1)[:defined])


def test_a_workspace() -> None:
    """It is as large as it has been once, and begins empty."""
    compiled = aot_compile(_written("a.resize_(b.shape).copy_(b)", "return a.sum()"))
    work = torch.empty(0)
    for n in (3, 5, 2, 5, 3, 0, 5):
        b = torch.rand(n)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert compiled(work, b).equal(b.sum()) and work.equal(b)


def test_two_empty_workspaces() -> None:
    compiled = aot_compile(_written("a.resize_(2).fill_(1)", "b.resize_(3).fill_(2)"))
    for _ in range(3):
        a, b = torch.empty(0), torch.empty(0)
        compiled(a, b)
        assert a.tolist() == [1, 1] and b.tolist() == [2, 2, 2]
    assert not compiled.recompiles


@pytest.mark.parametrize("lines", [("a.resize_(2)", "return a * b"), ("x = a * 2", "x.resize_(2)", "return x")])
def test_what_requires_grad_is_refused_as_in_eager_mode(lines: tuple[str, ...]) -> None:
    given = torch.rand(3, requires_grad=True), torch.rand(2)
    for function in (_written(*lines), aot_compile(_written(*lines))):
        with pytest.raises(RuntimeError, match="cannot resize variables that require grad"):
            function(*given)


def test_with_symbolic_sizes() -> None:
    compiled = aot_compile(_written("x = b * 2", "x.resize_(2)", "a.resize_(4)", "a.fill_(1)", "return x + a[:2]"))
    for n in (3, 5, 6):
        a, b = torch.rand(n), torch.rand(n)
        assert compiled(a, b).equal(b[:2] * 2 + 1) and a.tolist() == [1] * 4


def test_looks_at_values() -> None:
    program = _written("a.resize_(5, 4)", "a[3:] = 1", "return a * 2 if a.sum() > 0 else a * 3")
    check_compiled(program, GIVEN["dense"](), tries=0)
    compiled = aot_compile(program)
    for sign in (1, -9, 1):
        a = torch.full((3, 4), float(sign))
        assert compiled(a, None).equal(program(torch.full((3, 4), float(sign)), None))
        assert a.shape == (5, 4)


def test_a_view_of_another_type_is_refused() -> None:
    with pytest.raises(MutationError, match="of another type"):
        aot_compile(_written("a.view(torch.int32).resize_(2)"))(torch.rand(3), None)


def test_what_is_no_argument_is_refused() -> None:
    constant = torch.rand(3)

    place = out_of_sight(constant)

    def program() -> Any:
        return place.kept.resize_(2)

    with pytest.raises(MutationError, match="not an argument"):
        aot_compile(program)()
    assert constant.shape == (3,)
