"""Views of dense tensors that are turned in place: a gradient through a later write is eager's, or refused by name."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from subclass_aot import TwoTensor, aot_compile
from subclass_aot.errors import MutationError
from subclass_aot.testing import check_compiled


def program_of(*lines: str) -> Any:
    scope: dict[str, Any] = {"torch": torch}
    exec("def program(x, w):\n" + "".join(f"    {line}\n" for line in lines), scope)
    return scope["program"]


REFUSED = {
    "as_strided_ moves it": (
        "y = x * w[0]",
        "v = y[2:]",
        "v.as_strided_((2, 2), (2, 1), 0)",
        "y.mul_(2)",
        "return v * w",
    ),
    "resize_": ("y = x * 1", "v = y[:2]", "v.resize_(1, 2)", "v.mul_(w[0])", "return y"),
}
RIGHT = {
    "as_strided_ turns it": ("y = x * 1", "v = y[:2]", "v.as_strided_((2, 2), (1, 2))", "v.mul_(w)", "return y"),
    "as_strided_ moves it inside": (
        "y = x * w[0]",
        "v = y[1:]",
        "v.as_strided_((2, 2), (2, 1), 3)",
        "y.mul_(2)",
        "return v * w",
    ),
    "as_strided reaches out, and is written": (
        "y = x * 1",
        "v = y[2:].as_strided((2, 2), (2, 1), 1)",
        "v.mul_(w)",
        "return y",
    ),
    "as_strided reaches out, nobody writes": (
        "y = x * w[0]",
        "v = y[2:].as_strided((2, 2), (2, 1), 1)",
        "return v * w, y",
    ),
    "the view is written": ("y = x * 1", "v = y[:2]", "v.t_()", "v.mul_(w)", "return y"),
    "a view of an input is written": ("v = x[:2]", "v.t_()", "v.mul_(w)", "return x * 2"),
    "what it is a view of is written": ("y = x * w[0]", "v = y[:2]", "v.t_()", "y.mul_(2)", "return v * w"),
    "another view is written": ("y = x * 1", "v = y[:2]", "v.t_()", "y[1:].mul_(w[0])", "return v * 2"),
    "a view of the view is written": ("y = x * 1", "u = y[:2].t_()[0]", "u.mul_(w[0])", "return y"),
    "it is a result": ("y = x * w[0]", "v = y[:2]", "v.t_()", "y.mul_(2)", "return v"),
    "under no_grad": ("y = x * w[0]", "v = y[:2]", "v.t_()", "with torch.no_grad(): y.mul_(2)", "return v * w"),
    "a dim of one behind": ("y = x * 1", "v = y[0]", "v.unsqueeze_(1)", "v.mul_(w[:, :1])", "return y"),
    "nobody writes": ("y = x * w[0]", "v = y[:2]", "v.t_()", "return v * w, y"),
    "written before": ("y = x * 1", "v = y[:2]", "v.mul_(w)", "v.t_()", "return v * w, y"),
    "read before": ("y = x * 1", "v = y[:2]", "v.t_()", "z = v * w", "y = y * 2", "return y, z"),
    "no gradient goes through": ("y = x * 1", "v = y[:2]", "v.t_()", "y.mul_(2)", "return v * w"),
    "the view is not used any more": ("y = x * w[0]", "v = y[:2]", "v.t_()", "y.mul_(2)", "return y * w[0]"),
    "a dim of one in front": ("y = x * 1", "v = y[:2]", "v.unsqueeze_(0)", "v.mul_(w)", "return y, v * w"),
    "it is a result beside its base": ("y = x * w[0]", "v = y[:2]", "v.t_()", "y.mul_(2)", "return v, y"),
    "turned back": ("y = x * 1", "v = y[:2]", "v.t_()", "v.t_()", "v.mul_(w)", "return y"),
    "a view of an input, as a result": ("v = x[:2]", "v.t_()", "x.mul_(2)", "return x * w[0], v"),
}


@pytest.mark.parametrize("lines", REFUSED.values(), ids=REFUSED)
def test_a_gradient_through_a_write_after_the_change_is_refused(lines: tuple[str, ...]) -> None:
    with pytest.raises(MutationError, match="changes the size or strides of a view in place, and a gradient goes"):
        aot_compile(program_of(*lines))(torch.rand(4, 2), torch.rand(2, 2, requires_grad=True))


@pytest.mark.parametrize("write", ["y.mul_(2)", "v.mul_(2)", "y[1:].mul_(2)"])
def test_a_gradient_that_would_miss_what_lies_outside_of_a_view_is_refused(write: str) -> None:
    program = program_of("y = x * w[0]", "v = y[2:].as_strided((2, 2), (2, 1), 1)", write, "return v * w")
    with pytest.raises(
        MutationError, match=r"(?s)`as_strided` of a view reaches out.*test_mutated_views.*that it is a view"
    ):
        aot_compile(program)(torch.rand(4, 2), torch.rand(2, 2, requires_grad=True))


@pytest.mark.parametrize("lines", RIGHT.values(), ids=RIGHT)
def test_others_are_as_in_eager_mode(lines: tuple[str, ...]) -> None:
    check_compiled(program_of(*lines), (torch.rand(4, 2), torch.rand(2, 2, requires_grad=True)), tries=0)


@pytest.mark.parametrize("lines", (REFUSED | RIGHT).values(), ids=REFUSED | RIGHT)
def test_nothing_is_refused_without_gradients(lines: tuple[str, ...]) -> None:
    check_compiled(program_of(*lines), (torch.rand(4, 2), torch.rand(2, 2)), tries=0)


def test_a_view_with_a_hook() -> None:
    """The hook is for the gradient of what the view was, which is on the way until the view is made again."""
    turned = "y = x * w[0]", "v = y[:2]", "v.register_hook(lambda gradient: gradient * 2)", "v.t_()"
    given = torch.rand(4, 2), torch.rand(2, 2, requires_grad=True)
    check_compiled(program_of(*turned, "return v * w, y"), given, tries=0)
    with pytest.raises(MutationError, match="and a gradient goes"):
        aot_compile(program_of(*turned, "y.mul_(2)", "return v * w"))(*given)


def test_a_function_that_a_reentrant_checkpoint_runs_again() -> None:
    """Modes that replace functions are off in backward."""

    def function(x: Any, w: Any) -> Any:
        y = x * w[0]
        y[:2].t_().mul_(w)
        return y

    def program(x: Any, w: Any) -> Any:
        return checkpoint(function, x, w, use_reentrant=True)

    with pytest.raises(MutationError, match="and a gradient goes"):
        aot_compile(program)(torch.rand(4, 2), torch.rand(2, 2, requires_grad=True)).sum().backward()


def test_a_leaf_that_changes_without_autograd() -> None:
    """Nobody makes it again."""
    lines = "v = (x * 1)[:2].requires_grad_()", "with torch.no_grad(): v.t_()", "return v * w"
    check_compiled(program_of(*lines), (torch.rand(4, 2), torch.rand(2, 2, requires_grad=True)), tries=0)


@pytest.mark.parametrize("name", ["the view is written", "what it is a view of is written", "under no_grad"])
def test_of_a_wrapper_eager_forgets_the_change_too(name: str) -> None:
    x, w = (TwoTensor(torch.rand(size), torch.rand(size)) for size in ((4, 2), (2, 2)))
    check_compiled(program_of(*RIGHT[name]), (x, w.requires_grad_()), tries=0)
