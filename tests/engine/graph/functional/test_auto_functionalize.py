"""Functional variants of operators of libraries: they compute the same, and write nothing that they are given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from subclass_aot import aot_compile
from subclass_aot.base.operators import effects_of
from subclass_aot.engine.graph.functional.auto_functionalize import (
    auto_functionalized,
    has_no_functional_variant,
    is_whole,
    listed,
)
from subclass_aot.meta import MetaTensor

aten: Any = torch.ops.aten
ops: Any = torch.ops.test_auto_functionalize


@torch.library.custom_op("test_auto_functionalize::double_", mutates_args={"x"})
def double_(x: torch.Tensor, by: float = 2.0) -> None:
    """Writes, and returns nothing."""
    x.mul_(by)


@torch.library.custom_op("test_auto_functionalize::add_into", mutates_args={"out"})
def add_into(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    """Writes one tensor, and returns another one."""
    out.add_(x)
    return x.sum(0)


@add_into.register_fake
def _(x: Any, out: Any) -> Any:
    return x.new_empty(x.shape[1:])


@torch.library.custom_op("test_auto_functionalize::turn", mutates_args={"x", "y"})
def turn(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> None:
    """Writes two tensors."""
    y.copy_(x)
    x.copy_(z)


@torch.library.custom_op("test_auto_functionalize::rotate", mutates_args={"xs"})
def rotate(xs: list[torch.Tensor], by: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Writes a list."""
    for x in xs:
        x.add_(by)
    return xs[0] * 2, xs[1] * 3


@rotate.register_fake
def _(xs: Any, by: Any) -> Any:
    return torch.empty_like(xs[0]), torch.empty_like(xs[1])


@torch.library.custom_op("test_auto_functionalize::compute", mutates_args=())
def compute(x: torch.Tensor) -> torch.Tensor:
    """Writes nothing."""
    return x + 1


class Operators(TorchDispatchMode):
    """Notes what is called."""

    def __init__(self) -> None:
        super().__init__()
        self.called: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.called.append(func)
        return func(*args, **(kwargs or {}))


CALLS: dict[str, tuple[Any, Callable[..., tuple[Any, dict[str, Any]]]]] = {
    "no result": (ops.double_.default, lambda x, y, z: ((x,), {})),
    "by name": (ops.double_.default, lambda x, y, z: ((), {"x": x, "by": 3.0})),
    "a result": (ops.add_into.default, lambda x, y, z: ((x, y), {})),
    "two are written": (ops.turn.default, lambda x, y, z: ((x, y), {"z": z})),
    "what is written is read, too": (ops.add_into.default, lambda x, y, z: ((x, x), {})),
    "views": (ops.add_into.default, lambda x, y, z: ((x[1:], y.t()[:2]), {})),
    "a list": (ops.rotate.default, lambda x, y, z: (([x, y[:2]], z[:1]), {})),
    "of torch": (aten._foreach_addcmul_.Tensor, lambda x, y, z: (([x, y], [z, z], [z, z], torch.ones(2)), {})),
}


def given(name: str) -> tuple[list[torch.Tensor], Any, tuple[Any, dict[str, Any]]]:
    func, arguments = CALLS[name]
    tensors = [torch.arange(9.0).view(3, 3) + i for i in range(3)]
    return tensors, func, arguments(*tensors)


@pytest.mark.parametrize("name", CALLS)
def test_it_writes_and_returns_what_the_operator_does(name: str) -> None:
    tensors, func, (args, kwargs) = given(name)
    result = func(*args, **kwargs)
    others, _, (args, kwargs) = given(name)
    torch.testing.assert_close(auto_functionalized(func, args, kwargs), result)
    assert all(map(torch.equal, others, tensors))


@pytest.mark.parametrize("name", CALLS)
def test_nothing_but_copies_at_the_end_writes(name: str) -> None:
    _, func, (args, kwargs) = given(name)
    with Operators() as operators:
        auto_functionalized(func, args, kwargs)
    variant, *copies = operators.called
    assert variant.namespace == "subclass_aot" and not effects_of(variant).writes
    assert set(copies) == {aten.copy_.default}


@pytest.mark.parametrize("name", CALLS)
def test_the_variant_leaves_what_it_is_given_and_has_a_shape_without_data(name: str) -> None:
    _, func, (args, kwargs) = given(name)
    with Operators() as operators:
        auto_functionalized(func, args, kwargs)
    tensors, _, (args, kwargs) = given(name)
    before = [x.clone() for x in tensors]
    found = listed(operators.called[0](*args, **kwargs))
    assert all(map(torch.equal, tensors, before))
    args, kwargs = torch.utils._pytree.tree_map_only(torch.Tensor, MetaTensor, (args, kwargs))
    without = listed(operators.called[0](*args, **kwargs))
    flat = [[x for part in results for x in listed(part)] for results in (found, without)]
    assert [(x.shape, x.dtype) for x in flat[0]] == [(x.shape, x.dtype) for x in flat[1]]


def test_calls_of_one_kind_have_one_variant() -> None:
    names = ("a result", "what is written is read, too", "a list", "views")
    variants = []
    for name in names:
        _, func, (args, kwargs) = given(name)
        with Operators() as operators:
            auto_functionalized(func, args, kwargs)
        variants.append(operators.called[0])
    assert variants[0] is variants[3] and len(set(variants)) == 3


@pytest.mark.parametrize(
    ("func", "expected"),
    [
        (ops.double_.default, True),
        (ops.compute.default, False),
        (aten._foreach_addcmul_.Tensor, True),
        (aten._fused_sgd_.default, True),
        (aten._foreach_add_.Scalar, False),
        (aten.add_.Tensor, False),
        (aten.add.Tensor, False),
    ],
    ids=str,
)
def test_which_operators_have_no_variant_of_torchs(func: Any, expected: bool) -> None:
    assert has_no_functional_variant(func) is expected


def test_lists_and_single_tensors() -> None:
    x = torch.ones(2)
    assert listed(x)[0] is x and listed([x, x]) == [x, x] and listed((x,)) == (x,) and listed(None) == (None,)
    assert not is_whole(ops.rotate.default, (0, "xs")) and is_whole(ops.rotate.default, (1, "by"))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("operator", ["_foreach_addcdiv_", "_foreach_addcmul_"])
def test_scalars_in_a_tensor_by_inductor(operator: str) -> None:
    """Optimizers have them, whose steps are tensors; torch's own kernel without data reads them."""

    def program(xs: list[torch.Tensor], ys: list[torch.Tensor], scalars: torch.Tensor) -> list[torch.Tensor]:
        made = [x + 1 for x in xs]
        getattr(torch, operator)(made, ys, ys, scalars * 2)
        return made

    args = [torch.randn(2, 3), torch.randn(4)], [torch.rand(2, 3) + 1, torch.rand(4) + 1], torch.tensor([2.0, 3.0])
    torch.testing.assert_close(aot_compile(program, fw_compiler="inductor")(*args), program(*args))
