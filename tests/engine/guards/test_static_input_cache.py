"""Weights are taken apart once, and again when anything about them changed; each change against eager."""

from __future__ import annotations

import copy
import gc
import re
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor as TorchTwoTensor

from subclass_aot import TwoTensor, WrapperTensor, aot_compile, mark_static_address
from subclass_aot.base import hooks
from subclass_aot.engine.guards.static_input_cache import StaticInputCache, can_be_kept
from subclass_aot.kit.flatten import create_subclass_meta
from subclass_aot.testing import difference

pytestmark = pytest.mark.usefixtures("either_way")


aten = torch.ops.aten


class Scaled(WrapperTensor):
    """Codes and a scale that is context."""

    codes: torch.Tensor
    extra: torch.Tensor | None = None
    scale: float = 2.0

    def to_plain(self) -> torch.Tensor:
        plain = self.codes * self.scale
        return plain if self.extra is None else plain + self.extra

    def from_plain(self, plain: torch.Tensor) -> Any:
        return Scaled(plain / self.scale, None, self.scale)


class Foreign(torch.Tensor):
    """The same without this library; `config` is anything that has the scale."""

    __torch_function__ = torch._C._disabled_torch_function_impl
    flattened = 0

    @staticmethod
    def __new__(cls, codes: torch.Tensor, config: Any) -> Any:
        made = torch.Tensor._make_wrapper_subclass(cls, codes.shape, dtype=codes.dtype)
        made.codes, made.config = codes, config
        return made

    def scale(self) -> float:
        config = self.config
        return config if isinstance(config, float) else config["scale"] if isinstance(config, dict) else config.scale

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        Foreign.flattened += 1
        return ["codes"], self.scale()

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, Any], context: Any, size: Any, stride: Any) -> Any:
        return Foreign(inner["codes"], context)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (aten.detach.default, aten.alias.default, aten.clone.default):
            return Foreign(func(args[0].codes), args[0].config)
        if func is aten.copy_.default:
            args[0].codes.copy_(args[1].codes)
            return args[0]
        plain = [a.codes * a.scale() if isinstance(a, Foreign) else a for a in args]
        return func(*plain, **(kwargs or {}))


class Holder(nn.Module):
    def __init__(self, weight: Any) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight, requires_grad=False)
        self.bias = nn.Parameter(torch.ones(2))
        self.child = nn.Linear(2, 2)
        self.register_buffer("offset", torch.zeros(2))

    def forward(self, x: Any) -> Any:
        return self.child(x) * self.weight + self.bias + self.offset


def two(value: float) -> Any:
    return TwoTensor(torch.full((2, 2), value), torch.full((2, 2), value + 1))


def torch_two(value: float) -> Any:
    return TorchTwoTensor(torch.full((2, 2), value), torch.full((2, 2), value + 1))


def nested(value: float) -> Any:
    return TwoTensor(two(value), torch.full((2, 2), value))


MAKERS: dict[str, Callable[[float], Any]] = {"ours": two, "torch's": torch_two, "nested": nested}


def last(w: Any) -> torch.Tensor:
    """An inner tensor, the deepest there is."""
    return last(w.a) if hasattr(w, "a") else w


def holder_of_last(w: Any) -> Any:
    return holder_of_last(w.a) if hasattr(w.a, "a") else w


# Each changes a module; the second argument makes weights of the same kind.
CHANGES: dict[str, Callable[[Any, Any], Any]] = {
    "nothing": lambda m, make: None,
    "another parameter": lambda m, make: setattr(m, "weight", nn.Parameter(make(5.0), requires_grad=False)),
    "another parameter that trains": lambda m, make: setattr(m, "weight", nn.Parameter(make(5.0))),
    "the table": lambda m, make: m._parameters.__setitem__("weight", nn.Parameter(make(5.0), requires_grad=False)),
    "another dense parameter": lambda m, make: setattr(m, "bias", nn.Parameter(torch.full((2,), 7.0))),
    "another buffer": lambda m, make: setattr(m, "offset", torch.full((2,), 7.0)),
    "buffer of another size": lambda m, make: setattr(m, "offset", torch.full((1,), 7.0)),
    "no bias": lambda m, make: setattr(m.child, "bias", None),
    "another child": lambda m, make: setattr(m, "child", nn.Identity()),
    "state dict": lambda m, make: m.load_state_dict(copy.deepcopy({**m.state_dict(), "weight": make(5.0)})),
    "state dict, assigned": lambda m, make: m.load_state_dict({**m.state_dict(), "weight": make(5.0)}, assign=True),
    "data": lambda m, make: setattr(m.weight, "data", make(5.0)),
    "data of a dense one": lambda m, make: setattr(m.bias, "data", torch.full((2,), 7.0)),
    "dense data of another size": lambda m, make: setattr(m.bias, "data", torch.full((1,), 7.0)),
    "copy_": lambda m, make: m.weight.copy_(make(5.0)),
    "an inner tensor": lambda m, make: setattr(holder_of_last(m.weight), "a", torch.full((2, 2), 5.0)),
    "an inner tensor, in the dict": lambda m, make: vars(holder_of_last(m.weight)).update(a=torch.full((2, 2), 5.0)),
    "the dict": lambda m, make: setattr(m.weight, "__dict__", dict(vars(make(5.0)))),
    "write into an inner tensor": lambda m, make: last(m.weight).mul_(3),
    "data of an inner tensor": lambda m, make: setattr(last(m.weight), "data", torch.full((2, 2), 5.0)),
    "dtype of an inner tensor": lambda m, make: setattr(last(m.weight), "data", torch.full((2, 2), 5.0).double()),
    "strides of an inner tensor": lambda m, make: last(m.weight).copy_(torch.rand(2, 2)).t_(),
    "swapped": lambda m, make: torch.utils.swap_tensors(m.weight, nn.Parameter(make(5.0), requires_grad=False)),
    "requires_grad": lambda m, make: m.weight.requires_grad_(),
    "an attribute that nobody reads": lambda m, make: setattr(m.weight, "note", "hello"),
    "hook": lambda m, make: m.child.register_forward_hook(lambda module, args, out: out * 2),
    "hook before": lambda m, make: m.register_forward_pre_hook(lambda module, args: (args[0] * 2,)),
    "training": lambda m, make: m.eval(),
}  # fmt: skip
REFUSED_BY_TORCHS = ("dtype of an inner tensor", "strides of an inner tensor")
"""Torch's class asserts that its two tensors look alike."""


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize(
    "change, kind", [(c, k) for c in CHANGES for k in MAKERS if k != "torch's" or c not in REFUSED_BY_TORCHS]
)
def test_changes_are_noticed(change: str, kind: str, native: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks, "one_call_pays", native)
    torch.manual_seed(1)
    make = MAKERS[kind]
    module, x = Holder(make(1.0)), torch.rand(2, 2)
    compiled = aot_compile(module)
    for _ in range(2):
        assert not difference(module(x), compiled(x))
    with torch.no_grad():
        CHANGES[change](module, make)
    for _ in range(2):
        assert not difference(module(x), compiled(x))
    with torch.no_grad():
        module.weight.copy_(make(9.0))  # what is kept now is what the module holds now
    assert not difference(module(x), compiled(x))
    gradients = []
    for call in (module, compiled):
        module.zero_grad()
        out = call(x)
        out.backward(torch.ones_like(out))
        gradients.append([p.grad for p in module.parameters()])
    for expected, got in zip(*gradients, strict=True):
        assert not difference(expected, got)


@pytest.mark.parametrize("native", [True, False])
def test_moves_are_noticed(native: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """`Module.to` swaps a wrapper for another one, object and `__dict__` alike."""
    monkeypatch.setattr(hooks, "one_call_pays", native)
    module = Holder(two(1.0)).requires_grad_(False)
    compiled = aot_compile(module)
    compiled(torch.rand(2, 2))
    module.double()
    x = torch.rand(2, 2, dtype=torch.float64)
    assert not difference(module(x), compiled(x)) and module(x).dtype == torch.float64
    compiled(x)
    assert len(compiled.recompiles) == 1


# Each: a weight, and what changes its context.
CONTEXTS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "ours": (lambda: Scaled(torch.ones(2, 2)), lambda w: setattr(w, "scale", 3.0)),
    "ours, an optional tensor": (lambda: Scaled(torch.ones(2, 2)), lambda w: setattr(w, "extra", torch.ones(2, 2))),
    "attribute": (lambda: Foreign(torch.ones(2, 2), 2.0), lambda w: setattr(w, "config", 3.0)),
    "dict": (lambda: Foreign(torch.ones(2, 2), {"scale": 2.0}), lambda w: w.config.update(scale=3.0)),
    "object": (
        lambda: Foreign(torch.ones(2, 2), SimpleNamespace(scale=2.0)),
        lambda w: setattr(w.config, "scale", 3.0),
    ),
}


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize("kind", CONTEXTS)
def test_contexts_are_noticed(kind: str, native: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks, "one_call_pays", native)
    make, change = CONTEXTS[kind]
    module, x = Holder(make()), torch.rand(2, 2)
    compiled = aot_compile(module)
    for _ in range(2):
        assert not difference(module(x), compiled(x))
    change(module.weight)
    for _ in range(2):
        assert not difference(module(x), compiled(x))
    assert len(compiled.recompiles) == 1


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[StaticInputCache]:
    """What was read anew, each time."""
    found: list[StaticInputCache] = []
    read = StaticInputCache.read
    monkeypatch.setattr(hooks, "one_call_pays", True)
    monkeypatch.setattr(StaticInputCache, "read", lambda self, leaves: (found.append(self), read(self, leaves))[1])
    return found


def test_an_unchanged_weight_is_taken_apart_once(reads: list[StaticInputCache]) -> None:
    module = Holder(Foreign(torch.ones(2, 2), 2.0))
    compiled = aot_compile(module)
    compiled(torch.rand(2, 2))
    assert len(reads) == 1
    flattened = Foreign.flattened
    for _ in range(3):
        compiled(torch.rand(2, 2))
        with torch.no_grad():
            module.bias.mul_(2)
            module.weight.codes.mul_(2)
    assert len(reads) == 1 and Foreign.flattened == flattened
    module.weight = nn.Parameter(Foreign(torch.ones(2, 2), 2.0), requires_grad=False)
    for _ in range(3):
        compiled(torch.rand(2, 2))
    assert len(reads) == 2 and not compiled.recompiles


def test_the_source_shows_both_functions() -> None:
    compiled = aot_compile(Holder(two(1.0)))
    compiled(torch.rand(2, 2))
    functions = re.findall(r"^def (\w+)", compiled.source, re.MULTILINE)
    assert functions[:2] == (["call", "read"] if hooks.one_call_pays else ["call", "forward"])


def test_each_signature_keeps_its_own(reads: list[StaticInputCache]) -> None:
    module = Holder(two(1.0))
    compiled = aot_compile(module)
    xs = torch.rand(2, 2), torch.rand(2, 2, dtype=torch.float32).t()
    for _ in range(3):
        for x in xs:
            assert not difference(module(x), compiled(x))
    assert len(reads) == 2 == len(set(reads))


@pytest.mark.parametrize("replace", ["weight", "inner tensor", "swap"])
def test_old_weights_are_let_go(replace: str) -> None:
    """By every signature, as soon as one is called; and nothing but Python references is held, so that swaps work."""
    module = Holder(two(1.0))
    compiled = aot_compile(module)
    xs = torch.rand(2, 2), torch.rand(2, 2).t()
    for x in xs:
        compiled(x)
    old = weakref.ref(module.weight.a)
    gc.collect()
    gc.disable()
    try:
        if replace == "weight":
            module.weight = nn.Parameter(two(2.0), requires_grad=False)
        elif replace == "inner tensor":
            module.weight.a = torch.ones(2, 2)
        else:
            torch.utils.swap_tensors(module.weight, nn.Parameter(two(2.0), requires_grad=False))
        compiled(xs[0])
        assert old() is None
    finally:
        gc.enable()
    assert not difference(module(xs[1]), compiled(xs[1]))


def test_a_dropped_signature_keeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks, "one_call_pays", True)
    module = Holder(two(1.0))
    compiled = aot_compile(module, cache_limit=1)
    compiled(torch.rand(2, 2))
    compiled(torch.rand(2, 2).t())
    assert len(compiled._kept) == 1


def test_marked_arguments(reads: list[StaticInputCache]) -> None:
    program = lambda x, w: x * w  # noqa: E731
    compiled, x = aot_compile(program), torch.rand(2, 2)
    weights = [mark_static_address(Foreign(torch.full((2, 2), value), 2.0)) for value in (1.0, 5.0)]
    for w in (weights[0], weights[0], weights[1], weights[1], weights[0]):
        assert not difference(program(x, w), compiled(x, w))
    assert len(reads) == 3 and not compiled.recompiles
    weights[0].config = 3.0
    assert not difference(program(x, weights[0]), compiled(x, weights[0])) and len(compiled.recompiles) == 1
    unmarked = Foreign(torch.ones(2, 2), 2.0)
    assert not difference(program(x, unmarked), compiled(x, unmarked)) and len(compiled.recompiles) == 1


def test_a_marked_argument_twice(reads: list[StaticInputCache]) -> None:
    program = lambda x, y: x + y  # noqa: E731
    one, other = (mark_static_address(torch_two(value)) for value in (1.0, 5.0))
    compiled = aot_compile(program)
    for x, y in ((one, one), (one, one), (one, other), (other, other), (one, one), (other, one)):
        assert not difference(program(x, y), compiled(x, y))
    assert len(compiled.recompiles) == 1


def test_a_weight_that_is_an_argument_too() -> None:
    module = Holder(two(1.0))
    compiled = aot_compile(lambda module, x, w: module(x) * w)
    for w in (module.weight, module.weight, two(3.0), module.weight):
        x = torch.rand(2, 2)
        assert not difference(module(x) * w, compiled(module, x, w))
    assert len(compiled.recompiles) == 1


def test_tied_weights() -> None:
    module = nn.ModuleList([Holder(two(1.0)), Holder(two(2.0))])
    module[1].weight = module[0].weight
    program = lambda modules, x: modules[1](modules[0](x))  # noqa: E731
    compiled, x = aot_compile(program), torch.rand(2, 2)
    for _ in range(2):
        assert not difference(program(module, x), compiled(module, x))
    module[1].weight = nn.Parameter(two(3.0), requires_grad=False)
    for _ in range(2):
        assert not difference(program(module, x), compiled(module, x))
    assert len(compiled.recompiles) == 1


@dataclass(frozen=True)
class FrozenConfig:
    scale: float
    more: Any = ()


class WithSlots(Foreign):
    __slots__ = ("hidden",)


@pytest.mark.parametrize(
    "make, expected",
    [
        (lambda: torch.ones(2), True),
        (lambda: two(1.0), True),
        (lambda: nested(1.0), True),
        (lambda: torch_two(1.0), True),
        (lambda: Foreign(torch.ones(2), 2.0), True),
        (lambda: Foreign(torch.ones(2), FrozenConfig(2.0, (torch.int8, (1, None)))), True),
        (lambda: Foreign(torch.ones(2), FrozenConfig(2.0, [])), False),
        (lambda: Foreign(torch.ones(2), {"scale": 2.0}), False),
        (lambda: Foreign(torch.ones(2), SimpleNamespace(scale=2.0)), False),
        (lambda: WithSlots(torch.ones(2), 2.0), False),
        (lambda: TwoTensor(Foreign(torch.ones(2), {"scale": 2.0}), torch.ones(2)), False),
    ],
)  # fmt: skip
def test_what_can_be_kept(make: Callable[[], Any], expected: bool) -> None:
    value = make()
    assert can_be_kept(value, create_subclass_meta([value])[0]) is expected


def test_names_of_fields_do_not_clash_with_those_of_the_guard() -> None:
    class Odd(WrapperTensor, fallback="each"):
        kept_values: torch.Tensor
        items: int = 3
        found: str = "a"
        kept: Any = None

    module = Holder(Odd(torch.ones(2, 2)))
    compiled = aot_compile(lambda module, x, w: module(x) * w)
    for _ in range(2):
        x, w = torch.rand(2, 2), Odd(torch.ones(2, 2))
        assert not difference(module(x) * w, compiled(module, x, w))


class Scale:
    def __init__(self, value: float) -> None:
        self.value = value


class WithSets(torch.nn.Module):
    """Models keep names in sets, and objects that can be changed."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(2, 2)
        self.names = {"relu"}
        self.scales = {Scale(2.0)}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.linear(x) * sum(scale.value for scale in self.scales)
        return y.relu() if "relu" in self.names else y


def test_what_sets_of_a_module_hold_is_seen() -> None:
    model, x = WithSets(), torch.randn(3, 2)
    compiled = aot_compile(model)

    def same() -> None:
        for _ in range(3):
            torch.testing.assert_close(compiled(x), model(x))

    same()
    model.names.remove("relu")
    same()
    model.names.add("relu")
    same()
    next(iter(model.scales)).value = 5.0
    same()
    model.scales.add(Scale(3.0))
    same()
    model.names = {"gelu"}
    same()


def test_a_model_with_sets_is_read_once() -> None:
    model, x = WithSets(), torch.randn(3, 2)
    compiled = aot_compile(model)
    reads = []
    for kept in [compiled(x), *compiled._kept][1:]:
        read = kept._read
        kept._read = lambda leaves, read=read: reads.append(1) or read(leaves)
    for _ in range(3):
        compiled(x)
    assert len(reads) <= 1
