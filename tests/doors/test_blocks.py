"""Blocks that are compiled in place, against the model in eager mode."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import threading
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy
import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
    register_module_full_backward_hook,
    register_module_full_backward_pre_hook,
)
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from subclass_aot import Int8Weight, WrapperTensor, aot_compile, compile_blocks
from subclass_aot.errors import BlockError
from subclass_aot.testing import difference

WIDTH = 8


class Layer(nn.Module):
    def __init__(self, scale: float = 1.0, config: Any = None) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 2 * WIDTH), nn.GELU(), nn.Linear(2 * WIDTH, WIDTH))
        self.scale = scale
        self.config = config
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: Any, *, shift: float = 0.0) -> Any:
        if self.training:
            self.seen.add_(1)
        y = self.norm(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        factor = self.scale if self.config is None else self.scale * self.config.factor
        return x + self.mlp(x) * factor + shift


class Model(nn.Module):
    def __init__(self, count: int = 12, **options: Any) -> None:
        super().__init__()
        self.stem = nn.Linear(4, WIDTH)
        self.layers = nn.ModuleList(Layer(**options) for _ in range(count))
        self.head = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 3))

    def forward(self, x: Any) -> Any:
        x = self.stem(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class Counting:
    """A compiler that counts the forward and backward graphs it is given."""

    def __init__(self) -> None:
        self.forward = self.backward = 0

    def options(self, **others: Any) -> dict[str, Any]:
        def forward(graph: Any, inputs: Any) -> Any:
            self.forward += 1
            return graph.forward

        def backward(graph: Any, inputs: Any) -> Any:
            self.backward += 1
            return graph.forward

        return {"fw_compiler": forward, "bw_compiler": backward, **others}


def pair(count: int = 12, **options: Any) -> tuple[Model, Model, Counting]:
    """A model, its twin with compiled blocks, and what counts compilations."""
    model, counting = Model(count, **options), Counting()
    return model, compile_blocks(copy.deepcopy(model), **counting.options()), counting


def assert_steps_agree(model: nn.Module, compiled: nn.Module, steps: int = 3) -> None:
    """Trains both, and compares losses, gradients, parameters and buffers."""
    optimizers = [torch.optim.SGD([p for p in m.parameters() if p.requires_grad], lr=0.05) for m in (model, compiled)]
    for _ in range(steps):
        x = torch.rand(2, 5, 4)
        for m, optimizer in zip((model, compiled), optimizers, strict=True):
            optimizer.zero_grad()
            m(x).square().sum().backward()
            optimizer.step()
        for (name, a), b in zip(model.named_parameters(), compiled.parameters(), strict=True):
            assert not difference(a.grad, b.grad, rtol=1e-4, atol=1e-5), name
        for (name, a), b in zip(model.state_dict().items(), compiled.state_dict().values(), strict=True):
            assert not difference(a, b, rtol=1e-4, atol=1e-5), name


def test_twelve_equal_blocks_are_one_compilation() -> None:
    model, compiled, counting = pair()
    assert_steps_agree(model, compiled)
    assert (counting.forward, counting.backward) == (1, 1)
    report = compiled.layers[7].forward.explain()
    assert report.startswith("Layer: 1 signature") and "args[1]['mlp.0.weight']" in report


def test_quantized_weights_in_the_blocks() -> None:
    model = Model(4)
    for layer in model.layers:
        for linear in (layer.mlp[0], layer.mlp[2]):
            linear.weight = nn.Parameter(Int8Weight.from_float(linear.weight), requires_grad=False)
    counting = Counting()
    compiled = compile_blocks(copy.deepcopy(model), **counting.options())
    assert_steps_agree(model, compiled)
    assert (counting.forward, counting.backward) == (1, 1)


@pytest.mark.filterwarnings("ignore")  # inductor warns of parts of torch that torch itself has deprecated
def test_inductor() -> None:
    model = Model(3)
    assert_steps_agree(model, compile_blocks(copy.deepcopy(model), fw_compiler="inductor"), 2)


@pytest.mark.parametrize("dynamic", [None, True])
def test_sizes_that_change(dynamic: bool | None) -> None:
    model, counting = Model(3), Counting()
    compiled = compile_blocks(copy.deepcopy(model), **counting.options(dynamic=dynamic))
    for n in (2, 3, 4, 5):
        x = torch.rand(n, 5, 4)
        assert not difference(model(x).detach(), compiled(x).detach())
    assert counting.forward == (1 if dynamic else 2)


def apart(model: Model) -> None:
    pass


def other_scale(model: Model) -> None:
    model.layers[1].scale = 3.0


def whole_scale(model: Model) -> None:
    model.layers[1].scale = 1  # 1 and 1.0 are not the same in every program


def other_mode(model: Model) -> None:
    model.layers[1].eval()


def other_class(model: Model) -> None:
    model.layers[1].mlp[1] = nn.Tanh()


def other_size(model: Model) -> None:
    torch.manual_seed(1)
    model.layers[1].mlp = nn.Sequential(nn.Linear(WIDTH, 4), nn.GELU(), nn.Linear(4, WIDTH))


def without_bias(model: Model) -> None:
    model.layers[1].mlp[0].bias = None


def with_a_hook_inside(model: Model) -> None:
    model.layers[1].mlp.register_forward_hook(lambda module, args, out: out * 2)


def other_config(model: Model) -> None:
    model.layers[1].config = SimpleNamespace(factor=3.0)


def own_forward_inside(model: Model) -> None:
    model.layers[1].mlp[1].forward = torch.sin


def a_list(model: Model) -> None:
    model.layers[1].notes = [1, 2]


CHANGES = [
    other_scale, whole_scale, other_mode, other_class, other_size, without_bias, with_a_hook_inside, other_config,
    own_forward_inside, a_list,
]  # fmt: skip


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_blocks_that_differ_are_compiled_apart(change: Any, when: str) -> None:
    model, counting = Model(3), Counting()
    compiled = copy.deepcopy(model)
    if when == "after":
        compile_blocks(compiled, **counting.options())
        x = torch.rand(2, 5, 4)
        assert not difference(model(x).detach(), compiled(x).detach()) and counting.forward == 1
    change(model)
    change(compiled)
    if when == "before":
        compile_blocks(compiled, **counting.options())
    assert_steps_agree(model, compiled)
    assert counting.forward == 2


def test_what_stands_in_lists_dicts_and_objects_is_looked_at_at_each_call() -> None:
    class Reads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 3)
            self.config = SimpleNamespace(factor=1.0, inner=SimpleNamespace(more=[1.0]))
            self.table = {"a": 1.0, "names": {"x"}}

        def forward(self, x: Any) -> Any:
            x = self.linear(x) * self.config.factor * self.config.inner.more[-1] * self.table["a"]
            return x + len(self.table["names"])  # type: ignore[arg-type]

    model, counting, x = nn.Sequential(Reads(), Reads()), Counting(), torch.rand(2, 3, requires_grad=True) * 1
    compiled = compile_blocks(copy.deepcopy(model), **counting.options())
    changes = [
        lambda m: None,
        lambda m: setattr(m.config, "factor", 2.0),
        lambda m: m.config.inner.more.append(3.0),
        lambda m: m.config.inner.more.__setitem__(1, 4.0),
        lambda m: m.table.update(a=5.0),
        lambda m: m.table["names"].add("y"),
    ]
    for count, change in enumerate(changes, 1):
        for m in (model, compiled):
            change(m[0])
            change(m[1])
        assert not difference(model(x).detach(), compiled(x).detach())
        assert counting.forward == count


class Numbered(nn.Module):
    """Knows its place among the layers, and asks for it in some calls only."""

    def __init__(self, index: int) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.index = index

    def forward(self, x: Any, numbered: bool = False) -> Any:
        x = self.linear(x)
        return x * self.index if numbered else x


class LooksInside(Numbered):
    def forward(self, x: Any, numbered: bool = False) -> Any:
        return self.linear(x) * vars(self)["index"]


@pytest.mark.parametrize("order", [range(4), (3, 0, 2, 1)])
def test_numbers_that_are_not_read_may_differ(order: Any) -> None:
    model, counting = nn.ModuleList(Numbered(i) for i in range(4)), Counting()
    compiled, x = compile_blocks(copy.deepcopy(model), **counting.options()), torch.rand(2, 3)
    counts = []
    for numbered in (False, True, False, True):
        for i in order:
            assert not difference(model[i](x, numbered).detach(), compiled[i](x, numbered).detach())
        counts.append(counting.forward)
    assert counts[0] == 1 and counts[1] == 5 and counts[3] <= 4 + 4
    for m in (model, compiled):
        m[2].index = 7
    for numbered in (True, False):
        assert not difference(model[2](x, numbered).detach(), compiled[2](x, numbered).detach())
    assert "index" not in vars(Numbered) and "in_features" not in vars(nn.Linear)
    assert "index=" in compiled[0].forward.explain()


def test_numbers_that_are_read_out_of_sight_must_be_equal() -> None:
    model, counting = nn.ModuleList(LooksInside(i) for i in range(3)), Counting()
    compiled, x = compile_blocks(copy.deepcopy(model), **counting.options()), torch.rand(2, 3)
    for a, b in zip(model, compiled, strict=True):
        assert not difference(a(x).detach(), b(x).detach())
    assert counting.forward == 3


def test_attributes_with_defaults_in_the_class_are_found_while_they_are_watched() -> None:
    class Defaults(nn.Module):
        scale = 2.0
        base = 3

        def __init__(self, own: bool) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 3)
            if own:
                self.scale = 5.0
                self.base = 1

        def forward(self, x: Any) -> Any:
            assert type(self).scale == 2.0 and not hasattr(self, "other")
            return self.linear(x) * self.scale + self.base

    model = nn.ModuleList(Defaults(own) for own in (True, False, True))
    compiled, x = compile_blocks(copy.deepcopy(model)), torch.rand(2, 3)
    for a, b in zip(model, compiled, strict=True):
        assert not difference(a(x).detach(), b(x).detach())
    assert Defaults.scale == 2.0 and type(vars(Defaults)["base"]) is int


def test_tensors_that_are_plain_attributes_are_each_its_own() -> None:
    class Holds(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 3)
            self.mask = torch.rand(3)

        def forward(self, x: Any) -> Any:
            return self.linear(x) * self.mask

    model, x = nn.Sequential(Holds(), Holds()), torch.rand(2, 3)
    compiled = compile_blocks(copy.deepcopy(model))
    assert not difference(model(x).detach(), compiled(x).detach())
    for m in (model, compiled):
        m[1].mask = torch.arange(3.0)
    assert not difference(model(x).detach(), compiled(x).detach())


def test_methods_and_objects_of_the_block_itself_do_not_differ() -> None:
    class Binds(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 3)
            self.activation = self.double
            self.options = SimpleNamespace(owner=self, names=["a"])

        def double(self, x: Any) -> Any:
            return 2 * self.linear(x)

        def forward(self, x: Any) -> Any:
            return self.activation(x) + self.options.owner.linear(x)

    model, counting = nn.Sequential(*(Binds() for _ in range(4))), Counting()
    x = torch.rand(2, 3, requires_grad=True) * 1
    compiled = compile_blocks(copy.deepcopy(model), **counting.options())
    assert not difference(model(x).detach(), compiled(x).detach()) and counting.forward == 1


def test_train_and_eval() -> None:
    model, compiled, counting = pair(3)
    x = torch.rand(2, 5, 4)
    for _ in range(2):
        for mode in (True, False):
            model.train(mode)
            compiled.train(mode)
            assert not difference(model(x).detach(), compiled(x).detach())
    assert counting.forward == 2 and model.layers[2].seen == compiled.layers[2].seen == 2


def test_the_model_stays_what_it_was() -> None:
    model, compiled, counting = pair(3)
    assert list(model.state_dict()) == list(compiled.state_dict())
    assert [n for n, _ in model.named_modules()] == [n for n, _ in compiled.named_modules()]
    assert str(model) == str(compiled) and type(compiled.layers[0]) is Layer
    assert inspect.signature(compiled.layers[0].forward) == inspect.signature(model.layers[0].forward)
    x = torch.rand(2, 5, WIDTH)
    expected, got = model.layers[1](x, shift=2.0), compiled.layers[1](x, shift=2.0)
    assert not difference(expected.detach(), got.detach())
    compiled.load_state_dict({name: 2 * t for name, t in model.state_dict().items()})
    model.load_state_dict({name: 2 * t for name, t in model.state_dict().items()})
    x = torch.rand(2, 5, 4)
    assert not difference(model(x).detach(), compiled(x).detach())
    del compiled.layers[0].forward
    assert compiled.layers[0].forward.__func__ is Layer.forward
    assert compile_blocks(compiled) is compiled, "again, with other options"


HOOKS_OF_ALL: dict[str, tuple[Any, Any]] = {
    "forward": (register_module_forward_hook, lambda m, args, out: out * 2 if of(m) else None),
    "before forward": (register_module_forward_pre_hook, lambda m, args: (args[0] * 2,) if of(m) else None),
    "backward": (register_module_full_backward_hook, lambda m, gin, gout: (gin[0] * 2,) if of(m) else None),
    "before backward": (register_module_full_backward_pre_hook, lambda m, gout: (gout[0] * 2,) if of(m) else None),
}


def of(module: nn.Module) -> bool:
    """Says which modules they change: one in each block."""
    return isinstance(module, nn.GELU)


@pytest.mark.parametrize("name", HOOKS_OF_ALL)
def test_hooks_of_all_modules_that_come_and_go(name: str) -> None:
    register, hook = HOOKS_OF_ALL[name]
    model, x = Model(3), torch.randn(2, 3, 4, requires_grad=True)
    compiled = compile_blocks(copy.deepcopy(model), fw_compiler="eager")
    for hooked in (False, True, False, True):
        handle = register(hook) if hooked else None
        results = []
        for each in (model, compiled):
            each.zero_grad()
            result = each(x)
            result.sum().backward()
            results.append([result, *(p.grad for p in each.parameters())])
        if handle is not None:
            handle.remove()
        assert not list(filter(None, map(difference, *results)))


def test_hooks_of_blocks_run_at_each_call() -> None:
    model, compiled, counting = pair(3)
    seen: list[Any] = []
    for m in (model, compiled):
        m.layers[1].register_forward_pre_hook(lambda module, args: (args[0] * 2,))
        m.layers[1].register_forward_hook(lambda module, args, out: seen.append(out.detach()) or out + 1)
        m.layers[2].register_full_backward_hook(lambda module, gin, gout: seen.append(gout[0]))
    assert_steps_agree(model, compiled, 2)
    assert len(seen) == 8 and all(type(t) is torch.Tensor for t in seen)
    assert not difference(seen[0], seen[2]) and not difference(seen[1], seen[3])
    assert counting.forward == 1


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["deepcopy", "pickle"])
@pytest.mark.parametrize("warm", [True, False])
def test_copies_are_compiled_and_have_their_own_parameters(copied: Any, warm: bool) -> None:
    compiled, x = compile_blocks(Model(3), fw_compiler="eager"), torch.rand(2, 5, 4)
    if warm:
        compiled(x)
    twin = copied(compiled)
    expected = compiled(x).detach()
    with torch.no_grad():
        for p in compiled.parameters():
            p.zero_()
    assert not difference(expected, twin(x).detach())
    assert twin.layers[2].forward._block is twin.layers[2]
    assert twin.layers[0].forward._compilations is twin.layers[2].forward._compilations
    assert "1 signature" in twin.layers[2].forward.explain()


def test_second_derivatives() -> None:
    model = nn.Sequential(*(nn.Sequential(nn.Linear(3, 3), nn.Tanh()) for _ in range(3)))
    compiled, x = compile_blocks(copy.deepcopy(model), double_backward=True), torch.rand(2, 3, requires_grad=True)
    penalties = []
    for m in (model, compiled):
        (gradient,) = torch.autograd.grad(m(x).sum(), x, create_graph=True)
        gradient.square().sum().backward()
        penalties.append([p.grad for p in m.parameters()])
    for expected, got in zip(*penalties, strict=True):
        assert not difference(expected, got)


def test_checkpoints_around_blocks() -> None:
    model, compiled, _ = pair(3)
    x = torch.rand(2, 5, WIDTH)
    for m in (model, compiled):
        m.layers[1].eval()
        checkpoint(m.layers[1], x, use_reentrant=False).sum().backward()
    for a, b in zip(model.layers[1].parameters(), compiled.layers[1].parameters(), strict=True):
        assert not difference(a.grad, b.grad)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("warm", [True, False])
def test_torch_compile_and_export_around(warm: bool) -> None:
    torch.compiler.reset()
    model, compiled, _ = pair(3)
    x = torch.rand(2, 5, 4)
    if warm:
        compiled(x)
        model(x)
    model.eval()
    compiled.eval()
    outer = torch.compile(compiled, backend="aot_eager", fullgraph=True)
    model(x).sum().backward()
    outer(x).sum().backward()
    for a, b in zip(model.parameters(), compiled.parameters(), strict=True):
        assert not difference(a.grad, b.grad, rtol=1e-4, atol=1e-5)
    for strict in (True, False):
        exported = torch.export.export(compiled, (x,), strict=strict)
        assert "layers.2.mlp.0.weight" in exported.graph_signature.parameters
        assert not difference(model(x).detach(), exported.module()(x).detach())


def test_the_whole_is_compiled_around() -> None:
    model, compiled, counting = pair(3)
    assert_steps_agree(model, aot_compile(compiled).fn)
    x = torch.rand(2, 5, 4)
    assert not difference(model(x).detach(), aot_compile(compiled)(x).detach())


@pytest.fixture
def process_group(tmp_path: Path) -> Iterator[None]:
    """A group of one process; what wraps a model for many does the same in it."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def sharded(model: Any) -> nn.Module:
    mesh = init_device_mesh("cpu", (1,))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


@pytest.mark.filterwarnings("ignore")  # torch's own, of parts that it has deprecated
@pytest.mark.parametrize("first", ["compile", "wrap"])
@pytest.mark.parametrize("wrap", [DistributedDataParallel, sharded])
def test_distributed(process_group: None, wrap: Any, first: str) -> None:
    model, counting = Model(4), Counting()
    wrapped, twin = wrap(copy.deepcopy(model)), copy.deepcopy(model)
    if first == "compile":
        twin = wrap(compile_blocks(twin, **counting.options()))
    else:
        twin = compile_blocks(wrap(twin), **counting.options())
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.05) for m in (wrapped, twin)]
    for _ in range(3):
        x = torch.rand(2, 5, 4)
        for m, optimizer in zip((wrapped, twin), optimizers, strict=True):
            optimizer.zero_grad()
            m(x).square().sum().backward()
            optimizer.step()
    for (name, a), b in zip(wrapped.named_parameters(), twin.parameters(), strict=True):
        a, b = (p.full_tensor() if isinstance(p, DTensor) else p for p in (a, b))
        assert not difference(a.detach(), b.detach(), rtol=1e-4, atol=1e-5), name
    assert (counting.forward, counting.backward) == (1, 1)


@pytest.mark.filterwarnings("ignore:Layer was compiled")
def test_transforms_around() -> None:
    model, compiled, _ = pair(3)
    model.eval()
    compiled.eval()
    parameters, x = {n: p.detach() for n, p in model.named_parameters()}, torch.rand(2, 5, 4)

    def loss(m: Any) -> Any:
        return torch.func.grad(lambda p: torch.func.functional_call(m, p, (x,)).square().sum())(parameters)

    for a, b in zip(loss(model).values(), loss(compiled).values(), strict=True):
        assert not difference(a, b)
    twice = {name: 2 * p for name, p in parameters.items()}
    expected = torch.func.functional_call(model, twice, (x,))
    assert not difference(expected.detach(), torch.func.functional_call(compiled, twice, (x,)).detach())


def test_threads() -> None:
    model, compiled, counting = pair(4)
    model.eval()
    compiled.eval()
    x = torch.rand(2, 5, 4)
    with torch.no_grad():
        expected, results = model(x), []

        def run() -> None:
            with torch.no_grad():
                results.append(compiled(x))

        threads = [threading.Thread(target=run) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(results) == 4 and not any(difference(expected, r) for r in results) and counting.forward == 1


@dataclasses.dataclass(slots=True)
class Slots:
    factor: float = 1.0


class OwnDict(dict[str, float]): ...


class OwnInt(int):
    factor = 1.0


def of_cell() -> Any:
    factor = 1.0

    def scaled(x: Any) -> Any:
        return x * factor

    return scaled


def of_default() -> Any:
    return lambda x, factor=1.0: x * factor


def scaled(x: Any, *, factor: float) -> Any:
    return x * factor


HELD: dict[str, tuple[Any, str, Any]] = {
    "slots": (Slots, "x * self.a.factor", lambda a: setattr(a, "factor", 3.0)),
    "deque": (lambda: deque([1.0]), "x * self.a[0]", lambda a: a.append(a.popleft() * 3)),
    "defaultdict": (lambda: defaultdict(float, b=1.0), "x * self.a['b']", lambda a: a.update(b=3.0)),
    "own dict": (lambda: OwnDict(b=1.0), "x * self.a['b']", lambda a: a.update(b=3.0)),
    "ordered dict": (lambda: OrderedDict(b=1.0, c=2.0), "x * [*self.a.values()][0]", lambda a: a.move_to_end("b")),
    "own int": (lambda: OwnInt(3), "x * self.a.factor", lambda a: setattr(a, "factor", 3.0)),
    "list in a tuple": (lambda: ([1.0],), "x * self.a[0][0]", lambda a: a[0].insert(0, 3.0)),
    "cell": (of_cell, "self.a(x)", lambda a: setattr(a.__closure__[0], "cell_contents", 3.0)),
    "default argument": (of_default, "self.a(x)", lambda a: setattr(a, "__defaults__", (3.0,))),
    "attribute of a function": (of_default, "x * getattr(self.a, 'b', 2)", lambda a: setattr(a, "b", 3.0)),
    "partial": (lambda: partial(scaled, factor=1.0), "self.a(x)", lambda a: a.keywords.update(factor=3.0)),
    "array": (lambda: numpy.ones(1), "x * float(self.a[0])", lambda a: a.fill(3)),
    "requires_grad": (lambda: torch.ones(3), "x * (2 if self.a.requires_grad else 3)", lambda a: a.requires_grad_()),
    "attribute of a tensor": (lambda: torch.ones(3), "x * getattr(self.a, 'b', 2)", lambda a: setattr(a, "b", 3)),
    "size of a tensor": (lambda: torch.ones(3), "x * self.a", lambda a: setattr(a, "data", torch.full((1,), 3.0))),
    "mode of a module": (lambda: [nn.ReLU()], "x * (2 if self.a[0].training else 3)", lambda a: a[0].eval()),
    "weight of a module": (lambda: (nn.Linear(3, 3),), "self.a[0](x)", lambda a: a[0].weight.data.fill_(3)),
    "generator": (torch.Generator, "x + torch.rand(3, generator=self.a)", lambda a: a.manual_seed(5)),
}
"""What a block holds, how its forward reads it, and what changes it."""


@pytest.mark.every_case
@pytest.mark.parametrize("how", [compile_blocks, lambda model: aot_compile(model)], ids=["blocks", "whole"])
@pytest.mark.parametrize("name", HELD)
def test_what_a_block_holds_is_compared(name: str, how: Any) -> None:
    make, text, change = HELD[name]
    models = []
    for _ in range(2):
        torch.manual_seed(0)
        models.append(blocks_of(f"return self.linear({text})", make))
    model, compiled = models[0], how(models[1])
    for _ in range(2):
        for _ in range(2):
            x = torch.rand(2, 3)
            assert not difference(model(x).detach(), compiled(x).detach())
        for block in (*model, *models[1]):
            change(block.a)


def blocks_of(body: str, make: Any = int) -> nn.Module:
    """Two blocks with this forward, which hold what `make` makes."""
    scope = {"nn": nn, "torch": torch, "make": make, "SimpleNamespace": SimpleNamespace}
    lines = """
class Written(nn.Module):
    level = 1

    def __init__(self):
        super().__init__()
        self.linear, self.a, self.count, self.log, self.kept = nn.Linear(3, 3), make(), 0, [], torch.ones(3)
        self.config, self.last = SimpleNamespace(level=1), None
        self.register_buffer("seen", torch.ones(3))

    def note(self, gradient):
        self.count = 1 - self.count

    def forward(self, x):
        """
    module = ModuleType("written")
    vars(module).update(scope)
    exec(lines + body.replace("\n", "\n        "), vars(module))
    return nn.Sequential(module.Written(), module.Written())


WRITTEN = (
    "self.count = (self.count + 1) % 2; x = x * (self.count + 1)", "self.log.append(1); x = x * len(self.log)",
    "self.log.append(x.sum().detach()); x = x * 2", "self.last = x.detach()", "self.kept.mul_(2); x = x + self.kept",
    "type(self).level = 3 - type(self).level; x = x * self.level", "self.seen = self.seen + 1; x = x + self.seen",
    "self.config.level = 3 - self.config.level; x = x * self.config.level", "self.seen.add_(1); x = x + self.seen",
    "self.linear.train(not self.linear.training); x = x * (2 if self.linear.training else 3)",
    "self.seen.note = getattr(self.seen, 'note', 0) + 1; x = x * self.seen.note",
    "y = x * 2\ny.register_hook(lambda g: self.log.append(g.sum()))\nx = x + y",
    "y = x * 2\ny.register_hook(self.note)\nself.seen.add_(1)\nx = x + y * self.seen",
)  # fmt: skip


@pytest.mark.every_case
@pytest.mark.parametrize("line", WRITTEN)
def test_what_a_block_changes_is_changed_at_each_call(line: str) -> None:
    models = []
    for _ in range(2):
        torch.manual_seed(0)
        models.append(blocks_of(f"{line}\nreturn self.linear(x)"))
    model, compiled = models[0], compile_blocks(models[1])
    for _ in range(4):
        x = torch.rand(2, 3, requires_grad=True)
        results = [m(x) for m in (model, compiled)]
        assert not difference(results[0].detach(), results[1].detach())
        for result in results:
            result.sum().backward()
        for a, b in zip(model, compiled, strict=True):
            assert (a.count, len(a.log), a.config.level, a.linear.training, type(a).level) == (
                b.count, len(b.log), b.config.level, b.linear.training, type(b).level,
            )  # fmt: skip
            assert not difference(a.kept, b.kept) and not difference(a.seen, b.seen)


def test_which_blocks() -> None:
    def compiled(model: nn.Module, *args: Any) -> list[str]:
        compile_blocks(model, *args)
        return [name for name, module in model.named_modules() if "forward" in vars(module)]

    layers = ["layers.0", "layers.1"]
    assert compiled(Model(2)) == layers
    for wanted in (Layer, "Layer", "layers.*"):
        assert compiled(Model(2), [wanted]) == layers
    of_first = [f"layers.0.{name}" for name in ("attention.out_proj", "mlp.0", "mlp.2")]
    assert compiled(Model(2), ["layers.1", nn.Linear]) == ["stem", *of_first, "layers.1", "head.0", "head.2"]
    assert compiled(nn.Sequential(Model(2), Model(2))) == ["0", "1"]

    def stage(n: int) -> nn.Module:
        return nn.Sequential(*(nn.Sequential(nn.Linear(n, n), nn.ReLU()) for _ in range(2)))

    stages = nn.ModuleDict({"stages": nn.ModuleList([stage(2), stage(3)])})
    assert compiled(nn.Sequential(nn.Identity(), stages)) == [f"1.stages.{i}.{j}" for i in range(2) for j in range(2)]


def test_what_is_refused() -> None:
    with pytest.raises(BlockError, match=r"(?s)Linear has no block to compile: nothing in it is repeated.*aot_compile"):
        compile_blocks(nn.Linear(2, 2))
    with pytest.raises(BlockError, match=r"none is of 'Leier', Conv2d"):
        compile_blocks(Model(2), ["Leier", nn.Conv2d])
    model = Model(2)
    model.layers[1].forward = lambda x: x
    with pytest.raises(BlockError, match=r"layers.1: the forward of this block.*Layer"):
        compile_blocks(model)
    assert "forward" not in vars(model.layers[0])
    with pytest.raises(TypeError, match="fw_compile"):
        compile_blocks(Model(2), fw_compile="eager")

    class Assigns(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(2, 2)

        def forward(self, x: Any) -> Any:
            self.linear.weight = nn.Parameter(torch.zeros(2, 2))
            return self.linear(x)

    model = compile_blocks(nn.Sequential(Assigns(), Assigns()))
    before = model[0].linear.weight
    assert torch.equal(model(torch.rand(2, 2)), model[1].linear.bias.expand(2, 2))  # the weights are zeros by then
    assert model[0].linear.weight is not before


def test_a_block_that_is_compiled_alone_and_raises_is_compiled_alone_again() -> None:
    """What it does before it raises is done once at each call."""

    class Counted(WrapperTensor, fallback="each"):
        value: torch.Tensor
        count: int = 0

    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.held, self.n = Counted(torch.rand(2)), 1  # a tensor that is no buffer

        def forward(self, x: Any) -> Any:
            self.held.count += 1
            if self.n:
                raise ValueError(self.n)
            return x * 2

    block = compile_blocks(nn.Sequential(Counts(), Counts()))[0]
    for call in (1, 2, 3):
        with pytest.raises(ValueError, match="1"):
            block(torch.ones(2))
        assert block.held.count == call
    block.n = 0
    assert torch.equal(block(torch.ones(2)), torch.full((2,), 2.0)) and block.held.count == 4
    assert torch.equal(block(torch.ones(2)), torch.full((2,), 2.0)) and block.held.count == 5
