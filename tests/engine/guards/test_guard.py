"""Signatures: what is part of one compiles again when it changes, once, and the reason names it."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import optree
import pytest
import torch
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor as TorchTwoTensor

from subclass_aot import FlattenPlan, TwoTensor, WrapperTensor, aot_compile

pytestmark = pytest.mark.usefixtures("either_way")


class Tagged(WrapperTensor, fallback="each"):
    value: torch.Tensor
    extra: torch.Tensor | None = None
    tag: Any = 0


class Parts(WrapperTensor, fallback="each"):
    parts: list[torch.Tensor]


class Color(enum.Enum):
    RED = 1
    BLUE = 2


@dataclass(frozen=True)
class Config:
    scale: float
    name: str = ""


def dense(*size: int, **options: Any) -> torch.Tensor:
    return torch.ones(*size, **options)


def tied(same: bool) -> tuple[torch.Tensor, torch.Tensor]:
    x = dense(3)
    return x, x if same else dense(3)


def non_leaf(x: Any) -> Any:
    return x.requires_grad_().clone()


def linear(bias: bool = True) -> torch.nn.Linear:
    return torch.nn.Linear(3, 3, bias=bias)


# Each: two makers of arguments that differ in one fact, and a word of the reason.
FACTS: dict[str, tuple[Callable[[], tuple[Any, ...]], Callable[[], tuple[Any, ...]], str]] = {
    "class": (lambda: (dense(3),), lambda: (TwoTensor(dense(3), dense(3)),), "TwoTensor"),
    "wrapper class": (
        lambda: (TwoTensor(dense(3), dense(3)),),
        lambda: (TorchTwoTensor(dense(3), dense(3)),),
        r"subclass_aot\.tensors\.two_tensor\.TwoTensor .* before, torch\.testing",
    ),
    "context": (lambda: (Tagged(dense(3), None, 1),), lambda: (Tagged(dense(3), None, 2),), "context"),
    "context inside a tuple": (
        lambda: (Tagged(dense(3), None, (1, 2)),),
        lambda: (Tagged(dense(3), None, (1, 2.0)),),
        r"\(1, 2\.0\)",
    ),
    "context of another type": (
        lambda: (Tagged(dense(3), None, 1),),
        lambda: (Tagged(dense(3), None, True),),
        "context",
    ),
    "optional": (lambda: (Tagged(dense(3)),), lambda: (Tagged(dense(3), dense(3)),), "extra"),
    "number of parts": (lambda: (Parts([dense(3)]),), lambda: (Parts([dense(3), dense(3)]),), "parts_1"),
    "inner class": (
        lambda: (Tagged(dense(3)),),
        lambda: (Tagged(TwoTensor(dense(3), dense(3))),),
        r"value: subclass_aot\.tensors\.two_tensor\.TwoTensor",
    ),
    "size": (lambda: (dense(3),), lambda: (dense(5),), r"float32\[3\].*float32\[5\]"),
    "rank": (lambda: (dense(3),), lambda: (dense(3, 1),), r"\[3, 1\]"),
    "stride": (lambda: (dense(3, 3),), lambda: (dense(3, 3).t(),), "stride"),
    "inner stride": (
        lambda: (TwoTensor(dense(3, 3), dense(3, 3)),),
        lambda: (TwoTensor(dense(3, 3), dense(3, 3).t()),),
        "stride",
    ),
    "dtype": (lambda: (dense(3),), lambda: (dense(3, dtype=torch.float64),), "float64"),
    "inner dtype": (
        lambda: (TwoTensor(dense(3), dense(3)),),
        lambda: (TwoTensor(dense(3), dense(3).int()),),
        "int32",
    ),
    "requires_grad": (lambda: (dense(3),), lambda: (dense(3).requires_grad_(),), "requires_grad"),
    "leaf": (lambda: (dense(3).requires_grad_(),), lambda: (non_leaf(dense(3)),), "is_leaf: True before"),
    "one tensor twice": (lambda: tied(True), lambda: tied(False), r"the same tensor as args\[0\]"),
    "structure": (lambda: ([dense(3)],), lambda: ((dense(3),),), "structure"),
    "keys": (lambda: ({"a": dense(3)},), lambda: ({"b": dense(3)},), "structure"),
    "number of arguments": (lambda: (dense(3),), lambda: (dense(3), dense(3)), "structure|args"),
    "int": (lambda: (2,), lambda: (3,), r"args\[0\]: 2 before, 3 now"),
    "number of another type": (lambda: (1,), lambda: (1.0,), "int 1 before, float 1.0 now"),
    "bool": (lambda: (1,), lambda: (True,), "bool True"),
    "float": (lambda: (0.5,), lambda: (float("nan"),), "nan"),
    "signed zero": (lambda: (0.0,), lambda: (-0.0,), "-0.0"),
    "none": (lambda: (None,), lambda: (0,), "None"),
    "string": (lambda: ("sum",), lambda: ("mean",), "mean"),
    "dtype argument": (lambda: (torch.float32,), lambda: (torch.float64,), "torch.float64"),
    "device argument": (lambda: (torch.device("cpu"),), lambda: (torch.device("meta"),), "meta"),
    "enum": (lambda: (Color.RED,), lambda: (Color.BLUE,), "BLUE"),
    "dataclass": (lambda: (Config(1.0),), lambda: (Config(2.0),), r"args\[0\]\.scale: 1\.0 before, 2\.0 now"),
    "slice": (lambda: (slice(0, 2),), lambda: (slice(0, 3),), "slice"),
    "set": (lambda: (frozenset({1}),), lambda: (frozenset({2}),), "frozenset"),
    "function": (lambda: (torch.sin,), lambda: (torch.cos,), "cos"),
    "type": (lambda: (int,), lambda: (float,), "float"),
    "tensor or number": (lambda: (2,), lambda: (dense(()),), r"args\[0\]"),
}  # fmt: skip


def counter() -> Any:
    """Counts traces: what a class of a library holds is no part of a call, so writes into it are not done again."""
    return type("Counter", (), {"count": 0, "__module__": "logging"})


@pytest.mark.parametrize("fact", FACTS)
def test_every_fact_compiles_once(fact: str) -> None:
    before, after, reason = FACTS[fact]
    x = dense(3)
    traces = counter()

    def program(*args: Any) -> torch.Tensor:
        traces.count += 1
        list(args)  # all are read
        return x * 2

    compiled = aot_compile(program)
    for make in (before, before, after, after, before, after):
        compiled(*make())
    assert traces.count == 2
    assert len(compiled.recompiles) == 1
    assert re.search(reason, compiled.recompiles[0]), compiled.recompiles


MODES: dict[str, tuple[Callable[[], Any], str]] = {
    "no_grad": (torch.no_grad, "grad mode: True before, False now"),
    "inference": (torch.inference_mode, "inference mode"),
    "autocast": (lambda: torch.autocast("cpu", torch.bfloat16), "autocast"),
    "default dtype": (lambda: default_dtype(torch.float64), "default dtype"),
    "deterministic": (lambda: deterministic(), "deterministic"),
}


@contextlib.contextmanager
def default_dtype(dtype: torch.dtype) -> Any:
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@contextlib.contextmanager
def deterministic() -> Any:
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_compiles_once(mode: str) -> None:
    enter, reason = MODES[mode]
    runs = counter()

    def program(x: Any, w: Any) -> Any:
        runs.count += 1
        return x @ w + torch.ones(3)

    x, w = dense(2, 3), dense(3, 3).requires_grad_()
    compiled = aot_compile(program)
    for manager in (contextlib.nullcontext, enter, contextlib.nullcontext, enter):
        with manager():
            got, expected = compiled(x, w), program(x, w)
        assert (got.dtype, got.requires_grad, got.is_inference()) == (
            expected.dtype, expected.requires_grad, expected.is_inference()
        )  # fmt: skip
    assert runs.count == 2 + 4  # two traces, and in eager mode each time
    assert reason in compiled.recompiles[0] and len(compiled.recompiles) == 1


def test_autocast_dtype() -> None:
    compiled = aot_compile(lambda x: x @ x)
    x = dense(2, 2)
    with torch.autocast("cpu", torch.bfloat16):
        assert compiled(x).dtype == torch.bfloat16
    with torch.autocast("cpu", torch.float16):
        assert compiled(x).dtype == torch.float16
    assert compiled(x).dtype == torch.float32


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = linear(), linear()
        self.register_buffer("offset", torch.zeros(3))
        self.dropout = torch.nn.Dropout(0.5)

    def forward(self, x: Any) -> Any:
        return self.dropout(self.second(self.first(x))) + self.offset


def weights(module: torch.nn.Module, **new: Any) -> None:
    for name, value in new.items():
        setattr(module, name, value)


MODULE_CHANGES: dict[str, tuple[Callable[[Net], Any], str]] = {
    "training": (lambda m: m.eval(), "training: True before, False now"),
    "training of a child": (lambda m: m.dropout.eval(), r"self.dropout.training"),
    "frozen": (lambda m: m.first.weight.requires_grad_(False), "self.first.weight"),
    "tied": (lambda m: weights(m.second, weight=m.first.weight), "the same tensor as self.first.weight"),
    "other size": (lambda m: weights(m, offset=torch.zeros(1)), "self.offset"),
    "wrapper": (
        lambda m: weights(m.first, weight=torch.nn.Parameter(TwoTensor(dense(3, 3), dense(3, 3)))),
        "self.first.weight",
    ),
    "no bias": (lambda m: weights(m.second, bias=None), "self.second.bias"),
    "other child": (lambda m: weights(m, second=torch.nn.Identity()), "self.second"),
    "another child": (lambda m: m.add_module("third", linear()), "self.third"),
    "another buffer": (lambda m: m.register_buffer("more", torch.zeros(1)), "self.more"),
}


@pytest.mark.parametrize("change", MODULE_CHANGES)
def test_changes_of_a_module(change: str) -> None:
    apply, reason = MODULE_CHANGES[change]
    module = Net()
    compiled = aot_compile(module)
    compiled(dense(2, 3))
    compiled(dense(2, 3))
    assert not compiled.recompiles
    apply(module)
    torch.manual_seed(1)
    got = compiled(dense(2, 3))
    torch.manual_seed(1)
    expected = module(dense(2, 3))
    torch.testing.assert_close(getattr(got, "a", got), getattr(expected, "a", expected))
    compiled(dense(2, 3))
    assert len(compiled.recompiles) == 1 and reason in compiled.recompiles[0], compiled.recompiles


def test_a_replaced_parameter_needs_no_compile() -> None:
    """The tensors of a module are read at each call."""
    module = linear()
    compiled = aot_compile(module)
    compiled(dense(2, 3))
    module.weight = torch.nn.Parameter(torch.zeros(3, 3))
    module.bias.data.zero_()
    assert not compiled(dense(2, 3)).any() and not compiled.recompiles
    module.load_state_dict({"weight": dense(3, 3), "bias": dense(3)}, assign=True)
    assert (compiled(dense(2, 3)) == 4).all() and not compiled.recompiles


def test_hooks_added_later() -> None:
    module = linear()
    compiled = aot_compile(module)
    before = compiled(dense(2, 3))
    handle = module.register_forward_hook(lambda module, args, out: out * 0)
    assert not compiled(dense(2, 3)).any()
    handle.remove()
    torch.testing.assert_close(compiled(dense(2, 3)), before)


def test_modules_among_the_arguments() -> None:
    compiled = aot_compile(lambda modules, x: modules["layer"](x))
    first, second = linear(), linear()
    for module in (first, second, first, second):
        torch.testing.assert_close(compiled({"layer": module}, dense(2, 3)), module(dense(2, 3)))
    assert len(compiled.recompiles) == 1


BEGINNINGS: dict[str, tuple[Callable[..., Any], Callable[[torch.Tensor], tuple[Any, ...]], str]] = {
    "an argument": (lambda x: x + x.storage_offset(), lambda x: (x,), "args[0]"),
    "one of several": (lambda x, y: x + y.storage_offset(), lambda x: (torch.ones(4), x), "args[1]"),
    "in a list": (lambda xs: xs[1] + xs[1].storage_offset(), lambda x: ([torch.ones(4), x],), "args[0][1]"),
    "a leaf": (lambda w: w + w.b.storage_offset(), lambda x: (TwoTensor(torch.ones(4), x),), "args[0].b"),
    "a part": (lambda w: w + w.parts[1].storage_offset(), lambda x: (Parts([torch.ones(4), x]),), "args[0].parts_1"),
    "a wrapper": (
        lambda w: w + w.storage_offset(),
        lambda x: (TwoTensor(x, torch.arange(9.0)[int(x[0]) :][:4]),),
        "args[0]",
    ),
    "a nested wrapper": (
        lambda w: w + w.a.storage_offset(),
        lambda x: (TwoTensor(TwoTensor(x, torch.ones(4)), torch.ones(4)),),
        "args[0].a",
    ),
}


@pytest.mark.parametrize("name", BEGINNINGS)
def test_where_it_begins_is_compared_if_the_program_asks(name: str) -> None:
    program, make, path = BEGINNINGS[name]
    compiled = aot_compile(program, dynamic=False)
    memory = torch.arange(9.0)
    for begins in (2, 5, 0, 5, 2):
        given = make(memory[begins : begins + 4])
        got, expected = compiled(*given), program(*given)
        for x, y in zip(leaves(got), leaves(expected), strict=True):
            assert torch.equal(x, y)
    assert f"storage offset of {path}: 2 before, 5 now" in compiled.recompiles[0] and len(compiled.recompiles) == 2


def leaves(tensor: Any) -> list[torch.Tensor]:
    return FlattenPlan.of([tensor]).unwrap([tensor])


def test_where_a_buffer_begins() -> None:
    class Shifted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("table", torch.arange(9.0)[2:6])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.table.as_strided((4,), (1,), 3)

    module = Shifted()
    compiled = aot_compile(module)
    for begins in (2, 2, 4, 2):
        module.table = torch.arange(9.0)[begins : begins + 4]
        assert torch.equal(compiled(dense(4)), module(dense(4)))
    assert compiled.recompiles == ["storage offset of self.table: 2 before, 4 now"]


def test_where_others_begin_is_not_compared() -> None:
    compiled = aot_compile(lambda x, y: (x + x.storage_offset(), y.as_strided((2,), (2,)), y.mul(2)), dynamic=False)
    memory = torch.arange(9.0)
    for begins in range(4):
        compiled(memory[1:5], memory[begins : begins + 4])
    assert not compiled.recompiles and compiled.source.count("storage_offset() !=") == 1


def test_storage_sharing_matters_where_something_is_written() -> None:
    compiled = aot_compile(lambda x, y: x.mul_(2) + y)
    base = dense(4)
    compiled(dense(2), dense(2))
    compiled(base[:2], base[2:])
    assert len(compiled.recompiles) <= 1
    for _ in range(2):
        base = dense(3)
        assert torch.equal(compiled(base[:2], base[1:]), torch.tensor([4.0, 3.0]))
    assert any("share storage" in reason for reason in compiled.recompiles)
    count = len(compiled.recompiles)
    compiled(dense(2), dense(2))
    assert len(compiled.recompiles) == count
    reads = aot_compile(lambda x, y: x + y)
    reads(dense(2), dense(2))
    reads(base[:2], base[1:])
    assert not reads.recompiles, "where nothing is written sharing does not matter"


def test_cache_limit() -> None:
    compiled = aot_compile(lambda x: x * 2, dynamic=False, cache_limit=2)
    for size in (1, 2, 3):
        compiled(dense(size))
    assert len(compiled.recompiles) == 2
    compiled(dense(3))
    compiled(dense(2))
    assert len(compiled.recompiles) == 2, "the two used last are kept"
    compiled(dense(1))
    assert len(compiled.recompiles) == 3
    compiled(dense(2))
    assert len(compiled.recompiles) == 3
    compiled(dense(3))
    assert len(compiled.recompiles) == 4


def test_equal_constants_are_one_signature() -> None:
    traces = counter()

    def program(*args: Any) -> torch.Tensor:
        traces.count += 1
        list(args)  # all are read
        return dense(1)

    compiled = aot_compile(program)
    for _ in range(2):
        compiled(float("nan"), Config(1.0, "x"), dataclasses.replace(Config(1.0), name="y"), frozenset({1, 2}), "é" * 3)
        compiled(10**20, 1.5, (1, (2, None)), torch.Size([2, 3]), range(4), b"x", 2j)
    assert traces.count == 2


def test_a_constant_that_changes() -> None:
    @dataclass
    class Options:
        scale: float

    options = Options(2.0)
    compiled = aot_compile(lambda x, options: x * options.scale)
    assert compiled(dense(1), options) == 2
    options.scale = 3.0
    assert compiled(dense(1), options) == 3
    assert "args[1].scale: 2.0 before, 3.0 now" in compiled.recompiles[0]


def test_a_bias_given_later() -> None:
    module = linear(bias=False)
    compiled = aot_compile(module)
    compiled(dense(2, 3))
    module.bias = torch.nn.Parameter(dense(3))
    torch.testing.assert_close(compiled(dense(2, 3)), module(dense(2, 3)))


def test_a_constant_whose_equality_fails() -> None:
    class Odd:
        def __eq__(self, other: object) -> bool:
            raise ValueError("no")

        __hash__ = object.__hash__

    compiled = aot_compile(lambda x, odd: x * 2 if odd is not None else x)
    one, other = Odd(), Odd()
    for odd in (one, one, other, one):
        compiled(dense(2), odd)
    assert len(compiled.recompiles) == 1


def _all_of(*args: Any, **kwargs: Any) -> Any:
    leaves = optree.tree_leaves((args, kwargs), none_is_leaf=True)
    return sum(leaf.sum() if isinstance(leaf, torch.Tensor) else len(str(leaf)) for leaf in leaves) + len(args)


_X, _Y = torch.rand(3), torch.rand(3)
_CALLS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((_X,), {}), (([_X],), {}), (({"a": _X},), {}), ((3,), {}), ((None,), {}), ((), {"a": _X}), ((), {}),
    ((_X, _Y), {}), (((_X, _Y),), {}), ((_X, None), {}), ((_X, _X), {}), ((_X,), {"b": _Y}), ((_X.double(),), {}),
    ((_X, _Y, _X, _Y), {}), (([_X, _Y], _X, _Y), {}), ((_X, _Y, _X, 3), {}), ((_X, _Y, _X, [_Y]), {}),
    ((_X, _Y, _X, _Y), {"b": _Y}), ((nn.Parameter(_X, requires_grad=False),), {}),
]  # fmt: skip


@pytest.mark.parametrize("wrapped", [False, True])
def test_arguments_that_are_tensors_one_by_one_are_told_from_others(wrapped: bool) -> None:
    """Of these, the structure is not compared: their classes say that they stand where they stood."""

    def given(value: Any) -> Any:
        return TwoTensor(value, value) if wrapped and type(value) is torch.Tensor else value

    compiled = aot_compile(_all_of)
    for _ in range(2):
        for call in _CALLS:
            args, kwargs = optree.tree_map(given, call, none_is_leaf=True)  # type: ignore[arg-type]
            expected, got = _all_of(*args, **kwargs), compiled(*args, **kwargs)
            assert type(got) is type(expected) and str(got) == str(expected), call
    assert len(compiled.recompiles) == len(_CALLS) - 1, "each is compiled for once"
