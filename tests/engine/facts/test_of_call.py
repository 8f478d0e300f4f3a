"""The facts of a call: what differs between two is found, in words, and by a file."""

from __future__ import annotations

import copy
import functools
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import subclass_aot as sa
from subclass_aot.engine.call import Arguments
from subclass_aot.engine.facts import Kind, facts_of, global_state, is_of_call
from tests.engine.facts.calls import Simple, Tagged, default_dtype


def reason(change: Callable[[Any], Any], module: nn.Module, x: Tensor | None = None) -> str:
    """Why a module is compiled again after a change; what it gives then is compared with eager mode."""
    x = torch.tensor([-1.0, 2.0]) if x is None else x
    compiled = sa.aot_compile(module)
    compiled(x)
    change(module)
    torch.testing.assert_close(compiled(x), module(x))
    (line,) = compiled.recompiles
    return line


def doubles(module: nn.Module, args: Any, result: Any = None) -> Any:
    return None if result is None else result * 2


def shift(factor: int) -> Any:
    return lambda module, args, result: result + factor


HOOKS: dict[str, tuple[Callable[[nn.Module], Any], str]] = {
    "forward": (lambda m: m.register_forward_hook(doubles), "self._forward_hooks: absent before, function doubles"),
    "before": (lambda m: m.register_forward_pre_hook(lambda m, args: (args[0] + 1,)), "_pre_hooks: absent before"),
    "with keywords": (
        lambda m: m.register_forward_hook(lambda m, a, k, out: out * 3, with_kwargs=True),
        "self._forward_hooks: absent before, function <lambda> now",
    ),
    "of a child": (lambda m: m[0].register_forward_hook(doubles), "self.0._forward_hooks: absent before"),  # type: ignore[index]
    "a second one": (lambda m: (m.register_forward_hook(doubles), m.register_forward_hook(shift(2))), "doubles, shift"),
    "first of several": (lambda m: m.register_forward_hook(shift(3), prepend=True), "_hooks: absent before"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOOKS)
def test_hooks_are_named(name: str) -> None:
    change, text = HOOKS[name]
    if name == "a second one":
        text = "function doubles, function <lambda> now"
    found = reason(change, nn.Sequential(nn.Linear(2, 2)))
    assert text.removeprefix("r") in found and "the same call as before" not in found


def test_a_hook_of_the_same_code_is_another_one() -> None:
    module = nn.Sequential(nn.Linear(2, 2))
    handle = module.register_forward_hook(shift(1))

    def change(module: nn.Module) -> None:
        handle.remove()
        module.register_forward_hook(shift(2))

    assert "before, " in reason(change, module)


CHILDREN: dict[str, tuple[Callable[[Any], Any], str]] = {
    "another class": (
        lambda m: m.__setitem__(1, nn.ReLU()),
        "class of self.1: torch.nn.modules.activation.Tanh before, torch.nn.modules.activation.ReLU now",
    ),
    "another of its class": (
        lambda m: m.__setitem__(1, nn.Tanh()), "self.1: torch.nn.modules.activation.Tanh before, another one now",
    ),
    "one more": (lambda m: m.append(nn.ReLU()), "class of self.2: absent before, torch.nn.modules.activation.ReLU now"),
    "one less": (lambda m: m.__delitem__(1), "class of self.1: torch.nn.modules.activation.Tanh before, absent now"),
    "a tied one": (lambda m: m.__setitem__(1, m[0]), "self.1: torch.nn.modules.activation.Tanh before, absent"),
    "inside another": (
        lambda m: m[2].__setitem__(0, nn.GELU()),
        "class of self.2.0: torch.nn.modules.activation.ReLU before, torch.nn.modules.activation.GELU now",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CHILDREN)
def test_submodules_are_named(name: str) -> None:
    change, text = CHILDREN[name]
    inner = [nn.Sequential(nn.ReLU())] if name == "inside another" else []
    assert text in reason(change, nn.Sequential(nn.Linear(2, 2), nn.Tanh(), *inner))


def writes(a: Tensor, b: Tensor) -> Tensor:
    a.mul_(2)
    return b + 1


def together(
    start: int, stop: int, count: int, cut: Callable[[Tensor], Tensor] | None = None, grad: bool = False
) -> Any:
    base = torch.arange(float(count))
    if grad:
        base = base.requires_grad_() * 1
    return (base[:3] if cut is None else cut(base)), base[start:stop]


MEMORY: dict[str, tuple[Callable[[], Any], Callable[[], Any], str]] = {
    "bytes": (
        lambda: together(1, 3, 100), lambda: together(1, 3, 4), "bytes of the storage of args[0]: 400 before, 16 now",
    ),
    "offset": (
        lambda: together(1, 3, 9), lambda: together(2, 4, 9), "storage offset of args[1]: 1 before, 2 now",
    ),
    "apart": (
        lambda: together(1, 3, 9), lambda: (torch.ones(3), torch.ones(2)), "leaves that share storage: [(0, 1)] before",
    ),
    "how autograd has a view": (
        lambda: together(1, 4, 9, None, True),
        lambda: together(1, 4, 9, lambda x: x.unsafe_split_with_sizes([3, 6])[0], True),
        "history of args[0]._base: absent before, its own now",
    ),
    "made under no_grad": (
        lambda: together(1, 4, 9, None, True), lambda: together(1, 4, 9, no_grad, True),
        "DEFAULT before",
    ),
}  # fmt: skip


@torch.no_grad()
def no_grad(x: Tensor) -> Tensor:
    return x[:3]


def expected(fn: Callable[..., Any], make: Callable[[], Any]) -> Any:
    try:
        return fn(*make())
    except RuntimeError as error:
        return error


@pytest.mark.parametrize("name", MEMORY)
def test_memory_is_named_and_known_to_files(name: str, tmp_path: Path) -> None:
    first, then, text = MEMORY[name]
    compiled = sa.aot_compile(writes)
    compiled(*first())
    compiled.save(tmp_path / "x.sa")
    alone = sa.load_compiled(tmp_path / "x.sa", trust=True)
    torch.testing.assert_close(alone(*first()), writes(*first()))
    want = expected(writes, then)
    if isinstance(want, RuntimeError):
        with pytest.raises((RuntimeError, sa.SubclassAotError)):
            compiled(*then())
    else:
        torch.testing.assert_close(compiled(*then()), want)
        assert text in compiled.recompiles[0]
    with pytest.raises(sa.CompiledFileError):
        alone(*then())


def test_a_file_refuses_a_view_that_autograd_has_in_another_way(tmp_path: Path) -> None:
    """What one of several results is, eager mode does not write."""
    compiled = sa.aot_compile(writes)
    compiled(*together(1, 4, 4, None, True))
    compiled.save(tmp_path / "x.sa")
    loaded = sa.load_compiled(tmp_path / "x.sa", writes, trust=True)
    call = together(1, 4, 4, lambda x: x.split([3, 1])[0], True)
    with pytest.raises(RuntimeError, match="view"):
        writes(*call)
    with pytest.raises((RuntimeError, sa.SubclassAotError)):
        loaded(*together(1, 4, 4, lambda x: x.split([3, 1])[0], True))


KINDS: dict[str, Callable[[Tensor], Any]] = {
    "dense": lambda x: x,
    "two": lambda x: sa.TwoTensor(x, x + 1),
    "int8": lambda x: sa.Int8Weight.from_float(torch.stack([x, x])),
    "foreign": Tagged,
    "nested": lambda x: sa.TwoTensor(sa.TwoTensor(x, x), sa.TwoTensor(x, x)),
    "inside a list": lambda x: [x],
}


@pytest.mark.parametrize("kind", KINDS)
def test_tensors_of_inference_mode_are_named(kind: str) -> None:
    compiled = sa.aot_compile(lambda x: (x[0] if isinstance(x, list) else x) * 2)
    compiled(KINDS[kind](torch.ones(2)))
    with torch.inference_mode():
        x = KINDS[kind](torch.ones(2))
    compiled(x)
    assert "of inference mode" in compiled.recompiles[0] and "the same call" not in compiled.recompiles[0]


def test_the_default_dtype_is_named() -> None:
    compiled = sa.aot_compile(lambda x: x + torch.tensor([1.5]))
    x = torch.ones(2, dtype=torch.float64)
    compiled(x)
    with default_dtype(torch.float64):
        compiled(x)
    assert compiled.recompiles == ["default dtype: torch.float32 before, torch.float64 now"]


class Config:
    def __init__(self, bits: int) -> None:
        self.bits = bits

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Config) and self.bits == other.bits

    def __hash__(self) -> int:
        return 0


class Rounding(Config):
    def __call__(self, x: Any) -> Any:
        return x


def set_bits(config: Config) -> None:
    config.bits = 5


CONTEXTS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any], Callable[[Any], int]]] = {
    "a list": (lambda: [1], lambda c: c.append(2), len),
    "a dict": (lambda: {"bits": 4}, lambda c: c.update(bits=5), lambda c: c["bits"]),
    "a list in a tuple": (lambda: (1, [2]), lambda c: c[1].append(3), lambda c: len(c[1])),
    "a set": (lambda: {1}, lambda c: c.add(2), len),
    "an object": (lambda: Config(4), set_bits, lambda c: c.bits),
    "an object that can be called": (lambda: Rounding(4), set_bits, lambda c: c.bits),
    "an object in a tuple": (lambda: (Config(4),), lambda c: set_bits(c[0]), lambda c: c[0].bits),
}


@pytest.mark.every_case
@pytest.mark.parametrize("cls", [Tagged, Simple])
@pytest.mark.parametrize("held_by", ["argument", "closure", "module"])
@pytest.mark.parametrize("name", CONTEXTS)
def test_a_context_is_compared_with_what_it_was(name: str, held_by: str, cls: Callable[..., torch.Tensor]) -> None:
    make, change, value = CONTEXTS[name]
    x: Any = cls(torch.ones(2), make())

    def scaled(x: Any) -> Any:
        return x.inner * value(x.tag)

    program, call = scaled, (x,)
    if held_by == "closure":
        program, call = functools.partial(scaled, x), ()
    elif held_by == "module":
        module = nn.Module()
        module.weight = nn.Parameter(x, requires_grad=False)
        program, call = functools.partial(lambda m: scaled(m.weight), module), ()
        x = module.weight
    compiled = sa.aot_compile(program)
    torch.testing.assert_close(compiled(*call), program(*call))
    change(x.tag)
    torch.testing.assert_close(compiled(*call), program(*call))
    torch.testing.assert_close(compiled(*call), program(*call))
    assert len(compiled.recompiles) == 1


def test_who_brings_something_does_not_hang_on_its_name() -> None:
    """A variable of a closure may be called `args`."""
    args = [torch.ones(2), {"a": torch.ones(2)}]
    args_of_layers = nn.Linear(2, 2)

    def program(x: Tensor) -> Tensor:
        return args_of_layers(x) + args[0] + args[1]["a"]  # type: ignore[call-overload]

    facts = facts_of(Arguments.of(program, (torch.ones(2),), {}), global_state())
    tensors = sorted((fact.place, fact.of_call) for fact in facts if fact.kind is Kind.TENSOR)
    of_function = ["args[0]", "args[1]['a']", "args_of_layers.bias", "args_of_layers.weight"]
    assert tensors == sorted([*((name, False) for name in of_function), ("args[0]", True)])


@pytest.mark.parametrize(
    ("path", "is_of"),
    [("args[0]", True), ("kwargs['x'].a", True), ("a key of args", True), ("args", True), ("args_2", False),
     ("self.args", False), ("kwargs2[0]", False)],
)  # fmt: skip
def test_what_the_call_brings(path: str, is_of: bool) -> None:
    assert is_of_call(path) == is_of


def held(value: object) -> types.SimpleNamespace:
    return types.SimpleNamespace(a=value)


PAIRS: dict[str, tuple[Any, Any, str]] = {
    "a key of another type": ({1: 2}, {True: 2}, ""),
    "another order": ({"a": 1, "b": 2}, {"b": 2, "a": 1}, ""),
    "a longer list": ([1], [1, 2], "args[0][1]: absent before, int 2 now"),
    "length of a deque": (held(deque([1], 2)), held(deque([1], 3)), "limit of args[0].a: 2 before, 3 now"),
    "factory": (held(defaultdict(int, a=1)), held(defaultdict(list, a=1)), "limit of args[0].a"),
    "elements of a set": (held({1, 2}), held({1, 3}), "args[0].a: {1, 2} before, {1, 3} now"),
    "another class": (types.SimpleNamespace(a=1), Config(1), "class of args[0]: types.SimpleNamespace before"),
}


@pytest.mark.parametrize("name", PAIRS)
def test_python_objects(name: str) -> None:
    one, other, text = PAIRS[name]
    compiled = sa.aot_compile(lambda x, y: (x, y * 2)[1])
    compiled(one, torch.ones(1))
    compiled(other, torch.ones(1))
    assert len(compiled.recompiles) == 1 and text in compiled.recompiles[0]
    assert "the same call" not in compiled.recompiles[0]


@pytest.fixture
def _hooks_of_all_modules() -> Iterator[None]:
    yield
    nn.modules.module._global_forward_hooks.clear()


@pytest.mark.usefixtures("_hooks_of_all_modules")
def test_a_hook_of_all_modules() -> None:
    layer, x = nn.Linear(2, 2), torch.ones(2)
    compiled = sa.aot_compile(layer)
    compiled(x)
    handle = nn.modules.module.register_module_forward_hook(lambda module, args, result: result * 2)
    torch.testing.assert_close(compiled(x), layer(x))
    torch.testing.assert_close(compiled(x), layer(x))
    handle.remove()
    torch.testing.assert_close(compiled(x), layer(x))
    assert compiled.recompiles == ["hooks of all modules: absent before, function <lambda> now"]


def turned(layers: nn.Sequential) -> None:
    """Puts the first layer last, under its name."""
    first = layers.a
    del layers.a
    layers.a = first


@pytest.mark.parametrize("way", [sa.aot_compile, sa.compile_blocks])
def test_the_order_of_submodules(way: Callable[[nn.Module], Any]) -> None:
    layers = nn.Sequential(OrderedDict(a=nn.Linear(2, 2), b=nn.ReLU(), c=nn.Linear(2, 2)))
    model = nn.Sequential(layers, copy.deepcopy(layers))
    plain, x = copy.deepcopy(model), torch.randn(3, 2)
    compiled = way(model)
    torch.testing.assert_close(compiled(x), plain(x))
    turned(layers)
    turned(plain[0])
    torch.testing.assert_close(compiled(x), plain(x))


class Buffers(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for number, buffer in enumerate(self.buffers()):
            x = (x + number) * buffer
        return x


def test_the_order_of_buffers() -> None:
    module, x = Buffers(), torch.ones(2)
    module.register_buffer("a", torch.full((2,), 3.0))
    module.register_buffer("b", torch.full((2,), 5.0))
    compiled = sa.aot_compile(module)
    torch.testing.assert_close(compiled(x), module(x))
    first = module.a
    del module.a
    module.register_buffer("a", first)
    torch.testing.assert_close(compiled(x), module(x))
