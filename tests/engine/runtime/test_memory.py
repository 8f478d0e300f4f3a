"""How much memory waits for backward: no more than torch keeps for the same program."""

from __future__ import annotations

import logging
import tracemalloc
from collections.abc import Callable
from typing import Any

import functorch.compile
import pytest
import torch
from torch import nn
from torch.func import functional_call

from benchmarks.demo.vit import ViT
from subclass_aot import Int8Weight, QuantAwareWeight, TwoTensor, aot_compile
from subclass_aot.testing import dense_leaves


def quantized(module: nn.Module) -> nn.Module:
    """Linear weights by turns trainable wrappers, frozen wrappers and dense."""
    for i, layer in enumerate(m for m in module.modules() if type(m) is nn.Linear):
        if i % 3 == 0:
            layer.weight = nn.Parameter(QuantAwareWeight(layer.weight.detach()))
        elif i % 3 == 1:
            layer.weight = nn.Parameter(Int8Weight.from_float(layer.weight), requires_grad=False)
    return module


def doubled(module: nn.Module) -> nn.Module:
    """Every parameter is two tensors."""
    for owner in module.modules():
        for name, p in owner.named_parameters(recurse=False):
            setattr(owner, name, nn.Parameter(TwoTensor(p.detach().clone(), p.detach() + 1)))
    return module


def vit() -> tuple[nn.Module, torch.Tensor]:
    return ViT(image=8, patch=4, channels=1, layers=2, width=8, heads=2, hidden=16, classes=10), torch.rand(3, 1, 8, 8)


def mlp() -> tuple[nn.Module, torch.Tensor]:
    layers = [nn.Linear(6, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4), nn.Tanh()]
    return nn.Sequential(*layers), torch.rand(5, 6)


def torchs(module: nn.Module, x: torch.Tensor) -> Callable[[], Any]:
    """The module through `aot_function`, with torch's default partition."""
    state = dict(module.named_parameters())

    def program(x: torch.Tensor, *values: Any) -> Any:
        return functional_call(module, dict(zip(state, values, strict=True)), (x,))

    compiled: Any = functorch.compile.aot_function(
        program,
        fw_compiler=lambda graph, inputs: functorch.compile.make_boxed_func(graph.forward),
        partition_fn=functorch.compile.default_partition,
    )
    return lambda: compiled(x, *state.values())


def saved_bytes(call: Callable[[], Any], inputs: list[Any]) -> tuple[int, int]:
    """What a call leaves for backward: all memory, and what of it no input holds anyway."""
    saved: dict[int, int] = {}
    held = {leaf.untyped_storage().data_ptr() for x in inputs for leaf in dense_leaves(x)}
    alive = []  # so that no address is used twice

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        for leaf in dense_leaves(tensor.detach()):
            storage = leaf.untyped_storage()
            saved[storage.data_ptr()] = storage.nbytes()
            alive.append(leaf)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = call()
    assert result.requires_grad
    return sum(saved.values()), sum(count for address, count in saved.items() if address not in held)


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, 4)).movedim(-3, 0).transpose(-2, -3).unbind()
        weights = (q @ k.transpose(-1, -2) / 2).softmax(-1)
        return x + self.out((weights @ v).transpose(-2, -3).flatten(-2))


def attention() -> tuple[nn.Module, torch.Tensor]:
    return Attention(), torch.rand(3, 5, 8)


@pytest.mark.parametrize("change", [lambda module: module, quantized, doubled], ids=["dense", "quantized", "doubled"])
@pytest.mark.parametrize("make", [vit, mlp, attention])
def test_no_more_is_kept_than_by_torch(make: Callable[[], Any], change: Callable[[nn.Module], nn.Module]) -> None:
    module, x = make()
    change(module)
    inputs = [x, *module.parameters()]
    compiled, others = aot_compile(module), torchs(module, x)
    compiled(x), others()
    ours, theirs = saved_bytes(lambda: compiled(x), inputs), saved_bytes(others, inputs)
    assert 0 < ours[0] <= theirs[0] and 0 < ours[1] <= theirs[1]


@pytest.mark.parametrize("change", [lambda module: module, quantized, doubled], ids=["dense", "quantized", "doubled"])
@pytest.mark.parametrize("make", [vit, mlp, attention])
def test_no_more_is_kept_than_in_eager_mode(make: Callable[[], Any], change: Callable[[nn.Module], nn.Module]) -> None:
    module, x = make()
    change(module)
    inputs = [x, *module.parameters()]
    compiled = aot_compile(module)
    compiled(x)
    ours, eager = saved_bytes(lambda: compiled(x), inputs), saved_bytes(lambda: module(x), inputs)
    assert 0 < ours[1] <= eager[1]


class Watching:
    """A compiler whose backward graph empties its list, and then notes how many hold each activation that it read."""

    def __init__(self) -> None:
        self.holders: list[list[int]] = []

    def __call__(self, graph: Any, inputs: Any) -> Callable[[list[Any]], Any]:
        def boxed(values: list[Any]) -> Any:
            result = graph(*values)
            storages = [x.untyped_storage() for x in values if isinstance(x, torch.Tensor) and x.numel() == SIZE**2]
            values.clear()
            self.holders.append([torch._C._storage_Use_Count(s._cdata) - 1 for s in storages])
            return result

        boxed._boxed_call = True  # type: ignore[attr-defined]
        return boxed


SIZE = 64


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("retain_graph", [False, True])
def test_what_is_saved_is_let_go_when_it_was_read(retain_graph: bool, dynamic: bool) -> None:
    watching = Watching()
    compiled = aot_compile(lambda x: (x @ x).sin().exp().sum(), bw_compiler=watching, dynamic=dynamic)
    x = torch.rand(SIZE, SIZE, requires_grad=True)
    loss = compiled(x)
    loss.backward(retain_graph=True)
    assert sum(watching.holders[-1]) == len(watching.holders[-1]) >= 2, "backward may run again"
    once = x.grad.clone()
    loss.backward(retain_graph=retain_graph)
    torch.testing.assert_close(x.grad, 2 * once)
    assert sorted(watching.holders[-1])[-1] == 1 and (sum(watching.holders[-1]) == 1) is not retain_graph, "x is held"
    if not retain_graph:
        with pytest.raises(RuntimeError, match="a second time"):
            loss.backward()


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("make", [torch.Tensor.clone, lambda x: TwoTensor(x, x + 1)], ids=["dense", "wrapper"])
def test_zeros_for_results_without_a_gradient_are_let_go_when_they_were_read(make: Any, dynamic: bool) -> None:
    """As the logits of a language model, of which only the loss goes backward."""
    watching = Watching()

    def program(x: torch.Tensor) -> Any:
        logits = x.tanh()
        return logits, logits.sum(), logits * 2

    compiled = aot_compile(program, bw_compiler=watching, dynamic=dynamic)
    x = make(torch.rand(SIZE, SIZE)).requires_grad_()
    compiled(x)[1].sum().backward()
    x.grad = None
    compiled(x)[1].sum().backward()
    assert len(watching.holders[-1]) >= 3 and not any(watching.holders[-1])


def test_a_backward_that_failed_to_compile_may_run_again() -> None:
    """Nothing is let go before there is something to read it."""
    failures = [ValueError("not yet")]

    def compiler(graph: Any, inputs: Any) -> Any:
        if failures:
            raise failures.pop()
        return functorch.compile.make_boxed_func(graph.forward)

    compiled = aot_compile(lambda x: (x @ x).sin().exp().sum(), bw_compiler=compiler)
    x = torch.rand(SIZE, SIZE, requires_grad=True)
    loss = compiled(x)
    with pytest.raises(ValueError, match="not yet"):
        loss.backward()
    loss.backward()
    torch.testing.assert_close(x.grad, torch.autograd.grad(compiled.fn(x), x)[0])


def bytes_of_a_compilation() -> tuple[int, int]:
    """What Python keeps, and takes at the most, of a compilation of a function of 400 leaves, backward too."""
    xs = [TwoTensor(torch.ones(1), torch.ones(1)).requires_grad_() for _ in range(200)]
    compiled = aot_compile(lambda xs: [x * 2 for x in xs])
    logging.disable(logging.DEBUG)  # torch writes graphs into a log, once Dynamo is imported, and pytest keeps them
    tracemalloc.start()
    try:
        out = compiled(xs)
        sum(x.sum() for x in out).backward()
        return tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        logging.disable(logging.NOTSET)


def test_memory_while_compiling_grows_with_the_number_of_leaves_and_no_faster() -> None:
    """Python's own bytes; 400 leaves take 60 kB each at the most, and keep 20.

    What the process imports, keeps for all, or does in another thread meanwhile, it does once.
    """
    measured = [bytes_of_a_compilation() for _ in range(3)]
    kept, peak = map(min, zip(*measured, strict=True))
    assert kept / 400 < 40_000 and peak / 400 < 110_000
