"""For which outer rules metadata may be cached, and that what is cached is what Python says."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch

import subclass_aot as sa
from subclass_aot import Int8Weight
from subclass_aot.kit.wrapper import Outer, WrapperTensor
from subclass_aot.kit.wrapper.declare.outer import outer_rule
from subclass_aot.kit.wrapper.declare.outer_cache import follows_from_metadata, reads_only_metadata
from subclass_aot.kit.wrapper.serve import kernels
from tests.native.both_ways import served

aten: Any = torch.ops.aten

times = 1


def with_rule(rule: Any) -> Any:
    """A class of two fields and a number whose wrappers have the metadata that the rule says."""

    class Ruled(WrapperTensor, fallback="each"):
        left: torch.Tensor
        right: torch.Tensor
        number: int = 1

        outer_metadata = rule

    return Ruled


def caught(self: Any) -> Outer:
    try:
        return Outer.like(self.left, size=(int(self.right.size(0)), int(self.left)))
    except TypeError:
        return Outer.like(self.left)


def comprehended(self: Any) -> Outer:
    return Outer.like(self.left, size=[n * times for n in self.left.shape])


def assigned(self: Any) -> Outer:
    self.number = 2
    return Outer.like(self.left)


def closed_over() -> Any:
    factor = 1
    return lambda self: Outer.like(self.left, size=(self.left.shape[0] * factor,))


ALONE: dict[str, Any] = {
    "another dtype": lambda self: Outer.like(self.left, dtype=self.right.dtype),
    "a dtype of torch": lambda self: Outer.like(self.left, dtype=torch.float64),
    "sizes and context": lambda self: Outer.like(
        self.left, size=(self.left.shape[0] * self.number, *self.right.size())
    ),
    "strides": lambda self: Outer(self.left.shape, self.left.stride(), torch.float16, self.left.device),
    "a choice": lambda self: Outer.like(self.left if self.right is None or self.left.dim() > 1 else self.right),
}
MORE: dict[str, Any] = {
    "a global": lambda self: Outer.like(self.left, size=(self.left.shape[0] * times,)),
    "the default dtype": lambda self: Outer.like(self.left, dtype=torch.get_default_dtype()),
    "the values": lambda self: Outer.like(self.left, size=(self.right.sum().item(),)),
    "whether two are one": lambda self: Outer.like(self.left if self.left is self.right else self.right),
    "a method of its own": lambda self: Outer.like(self.left, size=self.rows()),
    "a default": lambda self, n=[3]: Outer.like(self.left, size=n),  # noqa: B006
    "a closure": closed_over(),
    "an error that it catches": caught,
    "code inside": comprehended,
    "what it changes": assigned,
}


@pytest.mark.parametrize("which", ALONE)
def test_rules_that_read_metadata_alone(which: str) -> None:
    cls = with_rule(ALONE[which])
    assert reads_only_metadata(cls)
    for left, right in ((torch.ones(3), torch.ones(3)), (torch.ones(2, 3), torch.ones(4, 2).half().t())):
        assert follows_from_metadata(cls(left, right, 2))


@pytest.mark.parametrize("which", MORE)
def test_rules_that_read_more(which: str) -> None:
    assert not reads_only_metadata(with_rule(MORE[which]))


def test_rules_that_are_no_functions() -> None:
    class Ruled(WrapperTensor, fallback="each"):
        left: torch.Tensor

    Ruled.outer_metadata = functools.partial(ALONE["a dtype of torch"])
    assert not reads_only_metadata(Ruled)


def test_a_name_of_a_tensor_that_the_class_defines() -> None:
    class Sized(with_rule(lambda self: Outer.like(self.left, size=self.size()))):  # type: ignore[misc]
        def size(self, *dim: int) -> Any:
            return (times,) if not hasattr(self, "_version") else torch.Tensor.size(self, *dim)

    assert not reads_only_metadata(Sized)


def test_classes_of_the_library() -> None:
    for cls in vars(sa.tensors).values():
        if isinstance(cls, type) and issubclass(cls, WrapperTensor) and outer_rule(cls) is not None:
            assert reads_only_metadata(cls), cls


VALUES: dict[str, Any] = {
    "a number": lambda self: Outer.like(self.left, size=(int(self.right),)),
    "a size that is a tensor": lambda self: Outer.like(self.left, size=(self.right,)),
    "a truth": lambda self: Outer.like(self.left, size=(4,) if self.right else (3,)),
    "a comparison": lambda self: Outer.like(self.left, size=(4,) if self.right == 3 else (3,)),
    "a text": lambda self: Outer.like(self.left, size=(len(f"{self.right}"),)),
    "an element": lambda self: Outer.like(self.left, size=(max(self.left),)),
}


@pytest.mark.parametrize("which", VALUES)
def test_values_are_no_metadata(which: str) -> None:
    """Such a rule is asked each time."""
    cls = with_rule(VALUES[which])
    made = cls(torch.ones(3, dtype=torch.int64), torch.tensor(3))
    assert not follows_from_metadata(made)
    program: Callable[[], Any] = lambda: [cls(made.left, made.right + i) * 1 for i in range(3)]  # noqa: E731
    if kernels.INSTALLED:
        served(program)


needs_kernels = pytest.mark.skipif(not kernels.INSTALLED, reason="without the accelerator there is only Python")


@needs_kernels
def test_what_is_cached_is_what_python_says() -> None:
    """By sizes, strides, offsets, dtypes, devices, and context."""
    cls = with_rule(lambda self: Outer.like(self.left, size=(*self.left.shape, self.number), dtype=self.right.dtype))
    big = torch.arange(64.0)
    kinds = [
        (left, right, number)
        for left in (big[:4], big[1:5], big[:8:2], big[:4].view(2, 2), big[:4].view(2, 2).t(), big[:4].to("meta"))
        for right in (left_like(left, torch.float64), left_like(left, torch.float16))
        for number in (1, 2, True, 1)
    ]

    def program() -> Any:
        made = [cls(*kind) for kind in kinds]
        return [(x.neg(), x * 2, x.detach(), x.unsqueeze(0)) for x in made + made]

    assert served(program, values=False)["aten::neg"] == 2 * len(kinds)


def left_like(left: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return torch.ones(left.shape, dtype=dtype, device=left.device)


@needs_kernels
def test_more_answers_than_are_cached() -> None:
    cls = with_rule(ALONE["another dtype"])
    program = lambda: [cls(torch.ones(n), torch.ones(n).double()).neg() for n in (*range(500), *range(40))]  # noqa: E731
    assert served(program)["aten::neg"] == 540
    assert served(program)


def times_asked(program: Callable[[], Any]) -> int:
    """How often a program asks rules that use `Outer.like`."""
    asked, like = [], Outer.like
    try:
        Outer.like = lambda *args, **kwargs: asked.append(args) or like(*args, **kwargs)  # type: ignore
        program()
    finally:
        Outer.like = like  # type: ignore[method-assign]
    return len(asked)


@needs_kernels
def test_the_rule_is_not_asked_again_and_again() -> None:
    class Fresh(Int8Weight):
        pass

    weight = Fresh.from_float(torch.randn(4, 8))
    weight.t(), weight.t()  # found in Python, and then cached
    assert weight.t().shape == (8, 4)
    assert not times_asked(weight.t)
    Fresh.note = "new"  # type: ignore[attr-defined]
    assert times_asked(weight.t) == 2  # by the library, and of what has no values
    assert not times_asked(weight.t)


@needs_kernels
def test_a_class_that_changed_often_is_cached_again() -> None:
    """Each trace changes `Tensor`, whose classes all have another version then."""

    class Fresh(Int8Weight):
        pass

    weight = Fresh.from_float(torch.randn(4, 8))
    for n in range(400):
        Fresh.note = n  # type: ignore[attr-defined]
        weight.t()
    for _ in range(5000):
        weight.t()
    assert not times_asked(weight.t)


@needs_kernels
def test_a_rule_that_comes_to_read_more() -> None:
    global times
    cls = with_rule(ALONE["another dtype"])
    x = cls(torch.ones(3), torch.ones(3))
    x.neg(), x.neg()
    cls.outer_metadata = MORE["a global"]
    for times in (1, 2, 3, 1):
        assert x.neg().shape == (3 * times,)
    times = 1


@needs_kernels
def test_another_rule_is_heeded_at_once() -> None:
    base = with_rule(ALONE["another dtype"])

    class Derived(base):  # type: ignore[misc, valid-type]
        pass

    for cls in (base, Derived):
        x = cls(torch.ones(3), torch.ones(3).double())
        assert (x.neg().dtype, x.neg().dtype) == (torch.float64, torch.float64)
    base.outer_metadata = lambda self: Outer.like(self.left)
    for cls in (base, Derived):
        x = cls(torch.ones(3), torch.ones(3).double())
        assert (x.neg().dtype, x.neg().dtype) == (torch.float32, torch.float32)
        served(lambda x=x: (x.neg(), x + x))


@needs_kernels
def test_what_a_rule_reads_elsewhere_is_heeded() -> None:
    global times
    cls = with_rule(MORE["a global"])
    x = cls(torch.ones(3), torch.ones(3))
    for times in (1, 2, 3, 1):
        assert x.neg().shape == (3 * times,)
    times = 1
