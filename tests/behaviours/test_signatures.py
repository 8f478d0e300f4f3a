"""What a compiled program is specialized to."""

from __future__ import annotations

import dataclasses
import enum
from typing import Any

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor

from subclass_aot import WrapperTensor
from subclass_aot.testing import difference

ALWAYS_THERE = "both of its inner tensors are always there"
NO_CONTEXT = "its context is always None"
INSIDE = "that is what `inside_another` makes of the kind affine"
NO_CONVERSION = "no field has the outer dtype, so eager refuses a conversion to another one"


def alone(x: Any) -> Any:
    return x


def inside_another(x: Any) -> Any:
    return TwoTensor(x, x.clone())


def follows_eager(program: Any, *calls: Any, reason: str, build: Any) -> Any:
    """Each call gives what eager gives; all but the first are another signature, for a reason that names `reason`."""
    compiled = build(program)
    for arguments in (*calls, *calls):
        found = difference(program(*arguments), compiled(*arguments))
        assert not found, found
    assert len(compiled.recompiles) == len(calls) - 1
    assert all(reason in text for text in compiled.recompiles), compiled.recompiles
    return compiled


@pytest.mark.inductor("affine")
@pytest.mark.parametrize("wrap", [alone, inside_another])
@pytest.mark.unfit(two=NO_CONTEXT, nested=NO_CONTEXT, pair=INSIDE)
def test_context_value_changed(kind: Any, wrap: Any, build: Any) -> None:
    def program(x: Any) -> Any:
        return x + 1

    once, twice = kind(3, 4), kind(3, 4)
    twice = type(twice)(twice.codes, twice.scale, twice.shift, 2)
    follows_eager(program, (wrap(once),), (wrap(twice),), reason="context", build=build)


@pytest.mark.inductor("affine")
@pytest.mark.parametrize("wrap", [alone, inside_another])
@pytest.mark.unfit(two=ALWAYS_THERE, nested=ALWAYS_THERE, pair=INSIDE)
def test_optional_inner_tensor_appears(kind: Any, wrap: Any, build: Any) -> None:
    full = kind(3, 4)
    bare = type(full)(full.codes, full.scale)
    for calls in ([wrap(bare)], [wrap(full)]), ([wrap(full)], [wrap(bare)]):
        follows_eager(lambda x: x + 1, *calls, reason="shift", build=build)


@pytest.mark.inductor("two")
def test_outer_size_changed(kind: Any, build: Any) -> None:
    follows_eager(lambda x: x * 2, (kind(3, 4),), (kind(5, 4),), reason="[5, 4]", build=build)


def outside(cls: Any, like: torch.Tensor) -> Any:
    """A wrapper written by hand, without its inner tensors yet."""
    return torch.Tensor._make_wrapper_subclass(cls, like.shape, dtype=like.dtype, device=like.device)


class WithNone(torch.Tensor):
    """Written by hand; `__tensor_flatten__` names an attribute that may be None."""

    def __new__(cls, data: torch.Tensor, extra: torch.Tensor | None) -> Any:
        self = outside(cls, data)
        self.data_, self.extra = data, extra
        return self

    def __tensor_flatten__(self) -> Any:
        return ["data_", "extra"], None

    @staticmethod
    def __tensor_unflatten__(inner: Any, context: Any, size: Any, stride: Any) -> Any:
        return WithNone(inner["data_"], inner["extra"])

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.detach.default:
            return WithNone(args[0].data_, args[0].extra)
        plain = [x.data_ if x.extra is None else x.data_ + x.extra for x in args if isinstance(x, WithNone)]
        return func(*plain, *args[len(plain) :], **(kwargs or {}))


@pytest.mark.inductor
@pytest.mark.parametrize("wrap", [alone, inside_another])
def test_inner_attribute_is_none(wrap: Any, build: Any) -> None:
    x, extra = torch.rand(3), torch.rand(3)
    calls = ((wrap(WithNone(x, None)),), (wrap(WithNone(x, extra)),))
    follows_eager(lambda s: s * 2, *calls, reason="extra", build=build)


@pytest.mark.parametrize("wrap", [alone, inside_another])
@pytest.mark.unfit(two=ALWAYS_THERE, nested=ALWAYS_THERE, pair=INSIDE)
def test_absent_field_with_gradients(agree: Any, kind: Any, wrap: Any) -> None:
    def program(x: Any, y: Any) -> Any:
        x.mul_(2)
        return x * y

    def make() -> Any:
        full = kind(3, 4)
        return wrap(type(full)(full.codes, full.scale)), wrap(kind(3, 4, seed=1)).requires_grad_()

    agree(program, make, lambda args, out: torch.autograd.grad(out.sum(), args[1]))


class Bag(WrapperTensor, fallback="each"):
    """Several tensors of one shape, some of them in a list and a dict."""

    first: torch.Tensor
    more: list[torch.Tensor]
    named: dict[str, torch.Tensor]


class HandBag(torch.Tensor):
    """Written by hand; `__tensor_flatten__` names attributes that are a list and a dict."""

    def __new__(cls, more: list[torch.Tensor], named: dict[str, torch.Tensor]) -> Any:
        self = outside(cls, more[0])
        self.more, self.named = more, named
        return self

    def __tensor_flatten__(self) -> Any:
        return ["more", "named"], None

    @staticmethod
    def __tensor_unflatten__(inner: Any, context: Any, size: Any, stride: Any) -> Any:
        return HandBag(inner["more"], inner["named"])

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        bag = next(x for x in args if isinstance(x, HandBag))

        def run(argument_at: Any) -> Any:
            return func(*[argument_at(x) if isinstance(x, HandBag) else x for x in args], **(kwargs or {}))

        def parts() -> Any:
            more = [run(lambda x, i=i: x.more[i]) for i in range(len(bag.more))]
            return HandBag(more, {k: run(lambda x, k=k: x.named[k]) for k in bag.named})

        written = func._schema.arguments[0].alias_info
        result = parts()
        return args[0] if written is not None and written.is_write else result


def bag(grad: bool) -> Any:
    x = [torch.arange(3.0) + i for i in range(4)]
    return Bag(x[0], [x[1], x[2]], {"k": x[3]}).requires_grad_(grad)


def hand_bag(grad: bool) -> Any:
    x = [torch.arange(3.0) + i for i in range(3)]
    return HandBag([x[0], x[1]], {"k": x[2]}).requires_grad_(grad)


def _inner(x: Any) -> list[torch.Tensor]:
    return [*x.more, *x.named.values()]


@pytest.mark.inductor
@pytest.mark.parametrize("make", [bag, hand_bag, lambda grad: TwoTensor(bag(False), bag(False)).requires_grad_(grad)])
def test_inner_attribute_is_a_list_or_dict(make: Any, build: Any) -> None:
    def program(x: Any, w: Any) -> Any:
        w.mul_(2)
        return x * w

    runs = []
    for function in (program, build(program)):
        x, w = make(True), make(False)
        out = function(x, w)
        (gradient,) = torch.autograd.grad(out.sum(), x)
        inner = [t.a if isinstance(t, TwoTensor) else t for t in (out, w, gradient)]
        assert all(type(t) is type(inner[0]) for t in inner)
        runs.append([leaf for t in inner for leaf in _inner(t)])
    for expected, got in zip(*runs, strict=True):
        torch.testing.assert_close(expected, got)


class Color(enum.Enum):
    RED = 2
    BLUE = 3


@dataclasses.dataclass(frozen=True)
class Options:
    times: int = 3


def test_python_values_are_constants_of_the_signature(agree: Any, kind: Any) -> None:
    def program(x: Any, factor: float, nothing: None, color: Color, nested: Any, options: Options, act: Any) -> Any:
        assert nothing is None
        return act(x * factor * options.times) * color.value, nested["a"][0], color

    constants = (2.5, None, Color.RED, {"a": [1]}, Options(), torch.sin)
    compiled = agree(program, lambda: (kind(3, 4), *constants))
    x = kind(3, 4)
    for i, other in ((0, 3.5), (2, Color.BLUE), (3, {"a": [2]}), (4, Options(4)), (5, torch.cos)):
        changed = [other if k == i else c for k, c in enumerate(constants)]
        for expected, got in zip(program(x, *changed), compiled(x, *changed), strict=True):
            assert not difference(expected, got)
    assert len(compiled.recompiles) == 5


@pytest.mark.inductor("two")
@pytest.mark.unfit(affine=NO_CONVERSION, pair=NO_CONVERSION)
def test_dtype_argument(agree: Any, kind: Any) -> None:
    compiled = agree(lambda x, dtype: x.to(dtype) * 2, lambda: (kind(3, 4), torch.float64))
    assert kind.inner(compiled(kind(3, 4), torch.bfloat16)).dtype is torch.bfloat16
