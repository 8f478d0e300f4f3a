"""Subclasses of `Tensor` without the flatten protocol: a program that is compiled sees its own classes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import optree
import pytest
import torch
from torch import nn

from subclass_aot import Int8Weight, TwoTensor, aot_compile, load
from subclass_aot.errors import SubclassAotError
from subclass_aot.testing import difference
from tests.plain_subclasses import CLASSES, BlockParameter, Image, Quantity, Quiet, ScaledParameter, Tag, of_class

pytestmark = pytest.mark.filterwarnings("ignore")  # of Dynamo

Program = Callable[..., Any]


def by_trace(fn: Program) -> Program:
    return aot_compile(fn, fw_compiler="eager")


def by_trace_with_symbols(fn: Program) -> Program:
    return aot_compile(fn, fw_compiler="eager", dynamic=True)


def by_dynamo(fn: Program) -> Program:
    torch.compiler.reset()
    return torch.compile(fn, backend="subclass_aot")


DOORS = by_trace, by_trace_with_symbols, by_dynamo


def a_class(x: Any, cls: Any) -> Any:
    return isinstance(x, cls), type(x) is cls, isinstance(x, nn.Parameter), x.kind, torch.ones(2)


def methods(x: Any, cls: Any) -> Any:
    return x.area(), x.half, x.half.sum()


def branches(x: Any, cls: Any) -> Any:
    return x.sin() if isinstance(x.sin(), cls) else x.cos()


def results(x: Any, cls: Any) -> Any:
    return {"a": x + 1, "b": [x, x.clone(), x.to(torch.float64)], "c": x.max(1), "d": x.new_zeros(2), "e": x.detach()}


def dense(x: Any, cls: Any) -> Any:
    return x.as_subclass(torch.Tensor) * 2, torch.nn.functional.linear(torch.ones(2, 4), x)


def converted(x: Any, cls: Any) -> Any:
    made = (x.as_subclass(torch.Tensor) * 2).as_subclass(cls)
    return made.as_subclass(torch.Tensor) + 1, type(made) is cls


def views(x: Any, cls: Any) -> Any:
    y = x * 2
    return x[1:], x.t(), x.split(2), y, y[0], y.view(-1)


def written(x: Any, cls: Any) -> Any:
    y = x * 1
    y.add_(1)
    y[0] = 3
    return y


def input_written(x: Any, cls: Any) -> Any:
    with torch.no_grad():
        x.mul_(2)
    return x + 1


def with_attributes(x: Any, cls: Any) -> Any:
    y = x * 2
    y.note, y.other = 5, torch.ones(2)
    return y, getattr(x, "unit", "none"), getattr(x, "scale", 1) * x


PROGRAMS = a_class, methods, branches, results, dense, converted, views, written, input_written, with_attributes


def ran(fn: Program, cls: Any, requires_grad: bool) -> Any:
    """What a program gives, the argument afterwards, and its gradient."""
    x = of_class(cls, requires_grad)
    out = fn(x, cls)
    with torch._C.DisableTorchFunctionSubclass():
        leaves = [y for y in optree.tree_leaves(out) if isinstance(y, torch.Tensor) and y.requires_grad]
        if leaves:
            sum(y.sum() * 1.5 for y in leaves).backward()  # type: ignore[union-attr]
        return out, x, x.grad


def same(expected: Any, got: Any) -> bool:
    """Whether all of it is the same: structure, classes, values, and what autograd knows."""
    with torch._C.DisableTorchFunctionSubclass():
        left, spec = optree.tree_flatten(expected, none_is_leaf=True)
        right, other = optree.tree_flatten(got, none_is_leaf=True)
        assert spec == other
        for a, b in zip(left, right, strict=True):
            assert not difference(a, b) if isinstance(a, torch.Tensor) else a == b
            if isinstance(a, torch.Tensor):
                assert (a.requires_grad, a.is_leaf) == (b.requires_grad, b.is_leaf)
    return True


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("cls", CLASSES)
def test_a_program_sees_its_class(cls: Any, program: Program, requires_grad: bool) -> None:
    for door in DOORS[:2]:
        assert same(ran(program, cls, requires_grad), ran(door(program), cls, requires_grad))


@pytest.mark.parametrize(
    "program",
    [a_class, methods, results, *(pytest.param(program, marks=pytest.mark.long) for program in (converted, views))],
)
@pytest.mark.parametrize("cls", CLASSES)
def test_so_it_is_behind_dynamo(cls: Any, program: Program) -> None:
    for requires_grad in (False, True):
        assert same(ran(program, cls, requires_grad), ran(by_dynamo(program), cls, requires_grad))


class Linear(nn.Module):
    """Reads its weight as its class says."""

    def __init__(self, cls: Any, requires_grad: bool) -> None:
        super().__init__()
        self.weight = of_class(cls, requires_grad)
        self.bias = nn.Parameter(torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight = self.weight.dequantize() if isinstance(self.weight, ScaledParameter) else self.weight.as_tensor()
        return nn.functional.linear(x, weight, self.bias)


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("cls", [ScaledParameter, BlockParameter])
def test_parameters_of_modules(cls: Any, requires_grad: bool) -> None:
    for door in DOORS:
        found = []
        for compiler in (lambda fn: fn, door):
            module = Linear(cls, requires_grad)
            run = compiler(module)
            for rows in (2, 5):
                run(torch.full((rows, 4), float(rows))).sum().backward()
            found.append([module.weight, module.weight.grad, module.bias.grad])
        assert same(*found)


class WithBuffer(nn.Module):
    """Writes into a buffer of a class, whose class decides what is computed."""

    def __init__(self, cls: Any) -> None:
        super().__init__()
        self.register_buffer("mask", of_class(cls, False))
        self.cls = cls

    def forward(self, x: torch.Tensor) -> Any:
        self.mask.add_(1)
        return x * self.mask if type(self.mask) is self.cls else x


@pytest.mark.parametrize("cls", [Tag, Quiet, Quantity, Image])
def test_buffers_closures_and_containers(cls: Any) -> None:
    for door in DOORS:
        modules = WithBuffer(cls), WithBuffer(cls)
        run = door(modules[1])
        x = torch.ones(3, 4, requires_grad=True)
        for _ in range(2):
            assert same(modules[0](x), run(x))
        assert same(modules[0].mask, modules[1].mask)
        kept = of_class(cls, True)

        def closure(d: Any, kept: Any = kept) -> Any:
            return kept.half * d["x"][0].area(), isinstance(d["x"][0], cls)

        given = {"x": [of_class(cls, True)]}
        assert same(closure(given), door(closure)(given))


@pytest.mark.parametrize("door", DOORS)
def test_the_class_is_compared_at_each_call(door: Any) -> None:
    data = torch.ones(2)

    def which(x: Any) -> Any:
        return torch.ones(2) * (1 if isinstance(x, Tag) else 2 if isinstance(x, Quiet) else 3)

    run = door(which)
    for x in (data, data.as_subclass(Tag), data, data.as_subclass(Quiet), nn.Parameter(data), data.as_subclass(Tag)):
        assert same(which(x), run(x))


@pytest.mark.parametrize(
    "wrapper",
    [TwoTensor(torch.ones(3, 4), torch.ones(3, 4)), Int8Weight(torch.ones(3, 4, dtype=torch.int8), torch.ones(3, 1))],
)
def test_beside_wrappers(wrapper: Any) -> None:
    def program(w: Any, x: Any) -> Any:
        return torch.nn.functional.linear(torch.ones(2, 4), w), x.area(), isinstance(x, Tag)

    for door in DOORS:
        assert same(program(wrapper, of_class(Tag, False)), door(program)(wrapper, of_class(Tag, False)))


def test_inductor_compiles_them() -> None:
    assert same(ran(methods, Tag, True), ran(aot_compile(methods, fw_compiler="inductor"), Tag, True))


def test_a_view_of_the_class_and_its_base() -> None:
    def program(x: Any, base: torch.Tensor) -> Any:
        x.mul_(2)
        return base + 1, x, x.area(), type(x) is Tag

    def given() -> Any:
        base = torch.ones(6, 4)
        return base[1:4].as_subclass(Tag), base

    for door in DOORS[:2]:
        assert same(program(*given()), door(program)(*given()))


@pytest.mark.parametrize("requires_grad", [False, True])
def test_views_of_one_tensor_that_are_written(requires_grad: bool) -> None:
    def program(x: Any, y: Any) -> Any:
        x.mul_(2)
        return y + 1, x.area(), type(y) is Tag

    def given() -> Any:
        base = torch.ones(6, 4, requires_grad=requires_grad) * 1
        return base[1:4].as_subclass(Tag), base[2:5].as_subclass(Tag)

    for door in DOORS[:2]:
        assert same(program(*given()), door(program)(*given()))


def test_a_gradient_asked_for_inside_has_the_class_of_eager_mode() -> None:
    def program(x: Any, cls: Any) -> Any:
        (grad,) = torch.autograd.grad((x * x).as_subclass(torch.Tensor).sum(), x, create_graph=True)
        return grad, isinstance(grad, cls)

    for cls in CLASSES[:4]:
        assert same(ran(program, cls, True), ran(by_trace(program), cls, True))


class Tenfold(torch.Tensor):
    """Computes other sines."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = super().__torch_function__(func, types, args, kwargs or {})
        return result.as_subclass(torch.Tensor) * 10 if func in (torch.Tensor.sin, torch.sin) else result


@pytest.mark.parametrize("door", DOORS)
def test_what_functions_of_torch_do_for_the_class_is_done_once(door: Any) -> None:
    def program(x: Any, cls: Any) -> Any:
        return x.sin(), torch.sin(x * 2), x.cos()

    for requires_grad in (False, True):
        assert same(ran(program, Tenfold, requires_grad), ran(door(program), Tenfold, requires_grad))


class Slotted(torch.Tensor):
    """Has another layout in memory than `Tensor`."""

    __slots__ = ("unit",)


def test_classes_with_slots_are_refused_by_name() -> None:
    x = torch.ones(2).as_subclass(Slotted)
    with pytest.raises(SubclassAotError, match="cannot be of the class Slotted") as caught:
        by_trace(lambda x: x + 1)(x)
    assert "without slots" in str(caught.value)
    with pytest.raises(SubclassAotError, match="cannot be of the class Slotted"):
        by_trace(lambda x: x.as_subclass(Slotted))(torch.ones(2))


def test_saved_and_loaded(tmp_path: Any) -> None:
    compiled = aot_compile(of_tag, fw_compiler="eager")
    x = of_class(Tag, False)
    compiled(x)
    compiled.save(tmp_path / "f")
    assert same(of_tag(x), load(tmp_path / "f", of_tag, trust=True)(x))


def of_tag(x: Any) -> Any:
    return x.area(), x + 1, x.as_subclass(torch.Tensor)
