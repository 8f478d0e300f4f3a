"""Autocast around a program and in it: what was cast when it was recorded is not cast again, whatever runs it again."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from subclass_aot import Int8Weight, TwoTensor, aot_compile, compile_joint, load, trace_joint
from subclass_aot.engine.passes import default_partition

aten: Any = torch.ops.aten


def bfloat16() -> Any:
    return torch.autocast("cpu", dtype=torch.bfloat16)


def float16() -> Any:
    return torch.autocast("cpu", dtype=torch.float16)


def off() -> Any:
    return torch.autocast("cpu", enabled=False)


def rand(*size: int, seed: int = 1) -> Tensor:
    return torch.rand(size, generator=torch.Generator().manual_seed(seed)) - 0.3


def off_inside(x: Any, w: Any) -> Any:
    low = x @ w
    with off():
        return low, x @ w


def on_inside_off(x: Any, w: Any) -> Any:
    with off():
        before = x @ w
        with float16():
            half = x @ w
        return before, half, x @ w


def another_dtype_inside(x: Any, w: Any) -> Any:
    with float16():
        half = (x * 1) @ (w * 1)
    return half, (x * 2) @ (w * 2)


def attention(x: Any, w: Any) -> Any:
    """The kernel that is written with matrix products computes in float32 what it softens."""
    heads = (x @ w).view(1, -1, 2, 4).transpose(1, 2)
    with nn.attention.sdpa_kernel(nn.attention.SDPBackend.MATH):
        return functional.scaled_dot_product_attention(heads, heads, heads, dropout_p=0.2)


class Float32(torch.autograd.Function):
    """Whatever autocast says, it computes in float32."""

    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.float32)
    def forward(ctx: Any, x: Any, w: Any) -> Any:
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx: Any, grad: Any) -> Any:  # type: ignore[override, unused-ignore]
        x, w = ctx.saved_tensors
        return grad @ w.t(), x.t() @ grad


def checkpointed(x: Any, w: Any) -> Any:
    def inside(x: Any) -> Any:
        with off():
            y = x @ w
        return functional.dropout(y @ w, 0.2).float()

    return checkpoint(inside, x, use_reentrant=False)


PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {
    "off inside": off_inside,
    "on inside off": on_inside_off,
    "another dtype inside": another_dtype_inside,
    "attention": attention,
    "custom_fwd": lambda x, w: Float32.apply(x @ w, w),
    "checkpoint": checkpointed,
    "operators that want float32": lambda x, w: torch.cdist((x @ w)[None], w[None]),
    "two layers": lambda x, w: functional.layer_norm(x @ w, (8,)).relu() @ w,
}


def with_write(program: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def written(x: Any, w: Any) -> Any:
        ones = torch.zeros(8).add_(1)
        return program(x * ones, w)

    return written


def with_dropout(program: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda x, w: program(functional.dropout(x, 0.3), w)


AROUND: dict[str, Callable[[], Any]] = {"on": bfloat16, "off": contextlib.nullcontext}


def step(function: Any, i: int, around: Any, weight: Callable[[], Any]) -> Any:
    """Results, and the gradients of both arguments."""
    torch.manual_seed(i)
    x, w = rand(4 + i % 2, 8, seed=i).requires_grad_(), weight()
    with around():
        results = function(x, w)
    results = results if isinstance(results, tuple) else (results,)
    wanted = [t for t in (x, w) if t.requires_grad]
    tangents = [torch.ones_like(r) for r in results]
    return results, torch.autograd.grad(results, wanted, tangents)


def equal(expected: Any, got: Any) -> None:
    """Bit for bit, dtypes included."""
    assert type(expected) is type(got)
    if isinstance(expected, tuple | list):
        for x, y in zip(expected, got, strict=True):
            equal(x, y)
    elif hasattr(expected, "__tensor_flatten__"):
        for name in expected.__tensor_flatten__()[0]:
            equal(getattr(expected, name), getattr(got, name))
    else:
        torch.testing.assert_close(got, expected, rtol=0, atol=0)


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("beside", [with_write, with_dropout])
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("dynamic", [None, pytest.param(True, marks=pytest.mark.long)])
def test_nothing_is_cast_twice(name: str, beside: Any, around: str, dynamic: bool | None) -> None:
    program = beside(PROGRAMS[name])
    compiled = aot_compile(program, dynamic=dynamic)
    for i in range(3):
        expected, got = (step(f, i, AROUND[around], lambda: rand(8, 8).requires_grad_()) for f in (program, compiled))
        equal(expected, got)


@pytest.mark.parametrize("name", ["off inside", pytest.param("on inside off", marks=pytest.mark.long)])
def test_behind_torch_compile(name: str, fresh_dynamo: None) -> None:
    program = with_write(PROGRAMS[name])
    compiled = torch.compile(program, backend="subclass_aot")
    for i in range(2):
        expected, got = (step(f, i, bfloat16, lambda: rand(8, 8).requires_grad_()) for f in (program, compiled))
        equal(expected, got)


WEIGHTS: dict[str, Callable[[], Any]] = {
    "two": lambda: TwoTensor(rand(8, 8), rand(8, 8, seed=2)).requires_grad_(),
    "int8": lambda: Int8Weight.from_float(rand(8, 8)),
}


@pytest.mark.parametrize("weight", WEIGHTS)
def test_wrappers(weight: str) -> None:
    def program(x: Any, w: Any) -> Any:
        low = functional.linear(x, w)
        with off():
            return low, functional.linear(x, w)

    program = with_dropout(with_write(program))
    compiled = aot_compile(program)
    for i in range(2):
        expected, got = (step(f, i, bfloat16, WEIGHTS[weight]) for f in (program, compiled))
        equal(expected, got)


class Router(nn.Module):
    """A mixture of experts, of which the router is in float32, and counts."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.router, self.norm = nn.Linear(8, 3), nn.BatchNorm1d(8)
        self.experts = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))
        self.register_buffer("load", torch.zeros(3))

    def forward(self, x: Any) -> Any:
        x = self.norm(x)
        with off():
            weights = functional.linear(x.float(), self.router.weight, self.router.bias).softmax(-1)
        self.load += weights.detach().sum(0)
        mixed = sum(weights[:, i : i + 1] * functional.dropout(e(x), 0.1) for i, e in enumerate(self.experts))
        return mixed, weights


class Cache(nn.Module):
    """Keys in a buffer, scores in float32."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.query = nn.Linear(8, 8)
        self.register_buffer("keys", torch.zeros(6, 8))

    def forward(self, x: Any) -> Any:
        query = self.query(x)
        self.keys[:4].copy_(query.detach()[:4])
        with off():
            scores = (query.float() @ self.keys.t()).softmax(-1)
        return scores @ self.keys


@pytest.mark.parametrize("cls", [Router, Cache])
def test_modules_that_write_buffers(cls: type[nn.Module]) -> None:
    eager, ours = cls(), cls()
    compiled = aot_compile(ours)
    for i in range(3):
        found = []
        for function, module in ((eager, eager), (compiled, ours)):
            weight = next(module.parameters())
            found.append((step(lambda x, _, f=function: f(x), i, bfloat16, lambda w=weight: w), [*module.buffers()]))
        equal(*found)


# -- what runs recorded operators again --------------------------------------------------------------------------------


def dtypes(results: Any) -> list[torch.dtype]:
    return [x.dtype for x in results]


EXPECTED = [torch.bfloat16, torch.float32]
written = with_write(off_inside)


@pytest.mark.parametrize("inside", [True, False])
def test_a_joint_graph(inside: bool) -> None:
    """It is compiled inside or outside of autocast, and called where it was traced."""
    x, w = rand(4, 8), rand(8, 8).requires_grad_()
    with bfloat16():
        joint = trace_joint(written, x, w)
    with bfloat16() if inside else contextlib.nullcontext():
        compiled = compile_joint(joint)
    with bfloat16():
        assert dtypes(compiled(x, w)) == dtypes(compiled.bind(written)(x, w)) == EXPECTED


def recast(graph: Any, inputs: Any) -> list[Any]:
    """What is cast once more where a graph is traced again."""
    again = make_fx(lambda *args: graph(*args))(*[torch.zeros(x.shape, dtype=x.dtype) for x in inputs])
    casts = [[n for n in g.graph.nodes if n.target is aten._to_copy.default] for g in (graph, again)]
    return casts[1][len(casts[0]) :]


def test_what_splits_or_compiles_a_graph_may_trace_it_again() -> None:
    found: list[Any] = []

    def partition(joint: Any, inputs: Any, **options: Any) -> Any:
        found.append(recast(joint, inputs))
        return default_partition(joint, inputs, **options)

    def compiler(graph: Any, inputs: Any) -> Any:
        found.append(recast(graph, inputs))
        return graph

    x, w = rand(4, 8), rand(8, 8).requires_grad_()
    with bfloat16():
        results = aot_compile(written, partition_fn=partition, fw_compiler=compiler)(x, w)
        torch.autograd.grad(results[1].sum(), w)
        joint = trace_joint(written, x, w)
        with joint.fakes():
            found.append(recast(joint.graph_module, joint.example_inputs()))
    assert found == [[], [], [], []]


@pytest.mark.parametrize("of_input", [True, False])
def test_values_that_a_program_asks_for(of_input: bool) -> None:
    """They are computed while the program is traced, which asks for them where autocast is on."""

    def program(x: Any) -> Any:
        with off():
            exact = (x if of_input else torch.full((2, 2), 1.001)) @ torch.full((2, 2), 1.001)
        return x * exact.tolist()[0][0], x * exact.sum().item(), x @ x

    x, compiled = torch.full((2, 2), 1.001), aot_compile(program)
    with bfloat16():
        equal(program(x), compiled(x))
    assert not compiled.recompiles  # as for a value that was computed in another precision


def test_a_file_that_is_read_under_autocast(tmp_path: Path) -> None:
    x, w = rand(4, 8), rand(8, 8).requires_grad_()
    compiled = aot_compile(written)
    with bfloat16():
        expected = compiled(x, w)
        compiled.save(tmp_path / "file")
        got = load(tmp_path / "file", trust=True)(x, w)
    equal(expected, got)


def test_a_gradient_of_another_class_than_expected() -> None:
    """Backward is traced once more, and the graph is made without writes once more, where autocast is on."""

    def program(x: Any, w: Any) -> Any:
        low, high = written(x, w)
        return high, low

    x, w = rand(4, 8).requires_grad_(), rand(8, 8)
    gradients = []
    for function in (program, aot_compile(program)):
        with bfloat16():
            high, _ = function(x, w)
        with bfloat16() if function is not program else contextlib.nullcontext():
            gradients.append(torch.autograd.grad(high, x, TwoTensor(rand(4, 8), rand(4, 8, seed=3))))
    equal(*gradients)


def test_backward_is_recorded_without_autocast_of_any_device() -> None:
    """Whatever device the forward is for, and whether it is there."""
    seen = []

    class Sees(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:  # type: ignore[override, unused-ignore]
            seen.append(torch.is_autocast_enabled("cuda") or torch.is_autocast_enabled("cpu"))
            return grad * 2

    torch.set_autocast_enabled("cuda", True)
    try:
        with bfloat16():
            trace_joint(Sees.apply, torch.ones(2, requires_grad=True))
    finally:
        torch.set_autocast_enabled("cuda", False)
    assert seen == [False]


def test_a_program_that_looks_at_a_value() -> None:
    def program(x: Any, w: Any) -> Any:
        _, high = written(x, w)
        return high * 2 if high.sum() > 0 else high * 3

    compiled = aot_compile(program)
    for i in range(3):
        expected, got = (step(f, i, bfloat16, lambda: rand(8, 8).requires_grad_()) for f in (program, compiled))
        equal(expected, got)


def test_second_derivatives() -> None:
    found = []
    for function in (written, aot_compile(written, double_backward=True)):
        x, w = rand(4, 8), rand(8, 8).requires_grad_()
        with bfloat16():
            _, high = function(x, w)
        (first,) = torch.autograd.grad(high.square().sum(), w, create_graph=True)
        found.append((high, first, torch.autograd.grad(first.square().sum(), w)))
    equal(*found)


@pytest.mark.filterwarnings("ignore:(?s).*was compiled, and is called inside")
def test_inside_transforms() -> None:
    def loss(x: Any, w: Any) -> Any:
        return written(x, w)[1].sum()

    compiled = aot_compile(loss)
    for transform in (lambda f: torch.func.grad(f, 1), lambda f: torch.func.vmap(torch.func.grad(f, 1), (0, None))):
        with bfloat16():
            equal(transform(loss)(rand(4, 8), rand(8, 8)), transform(compiled)(rand(4, 8), rand(8, 8)))
