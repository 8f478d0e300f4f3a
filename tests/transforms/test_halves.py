"""A gradient inside a transform reads what forward kept, and is right where nothing can be kept."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.func import functional_call, grad, jacrev, jvp, vjp, vmap
from torch.nn import functional as F

import subclass_aot as sa
from tests.transforms.test_calls import MANY, W, X, loss, same

Function = Callable[..., Any]


class Runs:
    """A compiler that notes which graphs run."""

    def __init__(self) -> None:
        self.graphs: list[torch.fx.GraphModule] = []

    def __call__(self, graph: torch.fx.GraphModule, inputs: Any) -> Function:
        def run(args: list[Any]) -> Any:
            self.graphs.append(graph)
            return graph(*args)

        return run

    def count(self, target: Any) -> int:
        """How often an operator ran."""
        return sum(len(graph.graph.find_nodes(op="call_function", target=target)) for graph in self.graphs)


SINE = torch.ops.aten.sin.default
ONCE: dict[str, Callable[[Function], Any]] = {
    "grad": lambda f: grad(f)(W, X),
    "vmap of grad": lambda f: vmap(grad(f), (None, 0))(W, MANY),
    "vmap of vmap of grad": lambda f: vmap(vmap(grad(f), (None, 0)), (0, None))(torch.stack([W, 2 * W]), MANY),
    "grad of vmap": lambda f: grad(lambda w: vmap(f, (None, 0))(w, MANY).sum())(W),
    "jacrev": lambda f: jacrev(f)(W, X),
    "vmap of jacrev": lambda f: vmap(jacrev(f, 1), (None, 0))(W, MANY),
    "vjp, gone back twice": lambda f: (lambda pull: pull(torch.ones(())) + pull(torch.zeros(())))(vjp(f, W, X)[1]),
    "autograd around vmap": lambda f: (
        lambda w: torch.autograd.grad(vmap(f, (None, 0))(w, MANY).sum(), w)
    )(W.clone().requires_grad_()),
}  # fmt: skip


@pytest.mark.parametrize("name", ONCE)
def test_forward_runs_once(name: str) -> None:
    runs = Runs()
    compiled = sa.aot_compile(loss, fw_compiler=runs)
    for _ in range(2):
        runs.graphs.clear()
        same(ONCE[name](loss), ONCE[name](compiled))
        assert runs.count(SINE) == 1
        assert len(runs.graphs) == (3 if "twice" in name else 2)


def no_grad_inside(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        scale = x * 2
    return (x * scale).sum() + (x * x.detach()).sum()


class Claims(torch.autograd.Function):
    """A function whose derivative is said to be another one than it is."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: torch.Tensor) -> torch.Tensor:
        return x**3

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[torch.Tensor], output: torch.Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return 7 * gradient * ctx.saved_tensors[0].square()


def layouts(x: torch.Tensor) -> torch.Tensor:
    return x.t().reshape(-1).view(3, 4).transpose(0, 1).contiguous().view(-1)[2:9].square().sum()


def reads_strides(x: torch.Tensor) -> torch.Tensor:
    return torch.as_strided(x.contiguous() * 1, (2, 2), (4, 1)).sin().sum()


def writes_inside(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y.mul_(x)
    y[0] = 1.0
    return y.sum()


def normalized(x: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, (4,)).softmax(-1).log().square().sum()


def in_bfloat16(x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return (x @ W).float().sin().sum()


FUNCTIONS: dict[str, Function] = {
    "without gradients inside": no_grad_inside,
    "a derivative of its own": lambda x: Claims.apply(x).sum(),
    "layouts": layouts,
    "strides": reads_strides,
    "writes": writes_inside,
    "norm": normalized,
    "gather": lambda x: x[torch.tensor([0, 2]), torch.tensor([1, 1])].exp().sum() + x[..., 1].sum(),
    "convolution": lambda x: F.conv1d(x[None], torch.ones(2, 3, 2)).relu().sum(),
    "autocast": in_bfloat16,
}
ON = torch.ones(())
AROUND: dict[str, Callable[[Function], Any]] = {
    "grad": lambda f: grad(f)(X),
    "vmap of grad along other dimensions": lambda f: vmap(grad(f), -1, 1)(MANY.permute(1, 2, 0)),
    "vmap of vmap of grad": lambda f: vmap(vmap(grad(f)))(torch.stack([MANY, MANY + 1])),
    "grad of vmap": lambda f: grad(lambda m: vmap(f)(m).square().sum())(MANY),
    "grad of grad": lambda f: grad(lambda x: grad(f)(x).square().sum())(X),
    "grad of vmap of grad": lambda f: grad(lambda m: vmap(grad(f))(m).square().sum())(MANY),
    "vmap of the pull": lambda f: vmap(vjp(f, X)[1])(torch.tensor([1.0, 2.0])),
    "grad of the pull": lambda f: (lambda pull: grad(lambda t: pull(t)[0].square().sum())(ON))(vjp(f, X)[1]),
    "forward mode over the pull": lambda f: (lambda pull: jvp(pull, (ON,), (ON,)))(vjp(f, X)[1]),
    "autograd inside": lambda f: grad(
        lambda x: (torch.autograd.grad(f(x), x, create_graph=True)[0] * x).square().sum()
    )(X),
}


@pytest.mark.filterwarnings("ignore:`torch.jit.script")
@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_as_in_eager_mode(name: str, around: str) -> None:
    function, transform = FUNCTIONS[name], AROUND[around]
    compiled = sa.aot_compile(function)
    expected = transform(function)
    for _ in range(2):
        same(expected, transform(compiled))


def test_gradients_of_some_results() -> None:
    def f(x: torch.Tensor) -> Any:
        return x.sqrt(), x.sin(), x.detach() * 2

    compiled = sa.aot_compile(f)
    zero = torch.zeros(3)  # where the gradient of the root has no value
    for i in (1, 2):
        same(grad(lambda x, i=i: f(x)[i].sum())(zero), grad(lambda x, i=i: compiled(x)[i].sum())(zero))
    pulls = [vjp(g, zero + 1)[1]((zero + 1, zero + 2, zero + 3)) for g in (f, compiled)]
    same(*pulls)


def test_a_value_without_gradient() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x.sin().sum() + y.detach().sum()

    compiled = sa.aot_compile(f)
    same(grad(f, (0, 1))(X, X), grad(compiled, (0, 1))(X, X))
    same(vmap(grad(f, (0, 1)), (0, None))(MANY, X), vmap(grad(compiled, (0, 1)), (0, None))(MANY, X))


def test_autocast_at_the_call() -> None:
    """A backward within it is cast, whatever forward was."""

    def f(x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", enabled=False):
            return (x @ W).sin().sum()

    compiled = sa.aot_compile(f)
    with torch.autocast("cpu", torch.bfloat16):
        same(vmap(grad(f))(MANY), vmap(grad(compiled))(MANY))
        same(grad(f)(X), grad(compiled)(X))


def test_sizes_that_change() -> None:
    compiled = sa.aot_compile(loss)
    for n in (5, 4, 3, 2, 1, 5):
        same(grad(loss)(W, MANY[0, :1].expand(n, 4)), grad(compiled)(W, MANY[0, :1].expand(n, 4)))
        same(vmap(grad(loss), (None, 0))(W, MANY[:n]), vmap(grad(compiled), (None, 0))(W, MANY[:n]))
        same(*(grad(lambda w, f=f, n=n: vmap(f, (None, 0))(w, MANY[:n]).sum())(W) for f in (loss, compiled)))


def test_parameters_that_were_put_in_are_those_of_backward() -> None:
    """Backward runs when the module has its own again."""
    model = torch.nn.Linear(4, 4).requires_grad_(False)
    compiled = sa.aot_compile(model)

    class Holds(torch.nn.Module):
        def __init__(self, function: Any) -> None:
            super().__init__()
            self.inner, self.functions = model, (function,)

        def forward(self, x: torch.Tensor) -> Any:
            return self.functions[0](x).sin().sum()

    others = {"inner.weight": torch.randn(4, 4), "inner.bias": torch.randn(4)}
    holders = [Holds(f) for f in (model, compiled, compiled)]
    found = [grad(lambda x, h=h: functional_call(h, others, (x,)))(X) for h in holders]
    same(found[0], found[1])
    same(found[0], found[2])


@pytest.mark.parametrize("make", [lambda: torch.eye(4), lambda: sa.Int8Weight.from_float(torch.eye(4))])
@pytest.mark.parametrize("is_linear", [True, False])
def test_a_write_before_backward_is_refused_as_in_eager_mode(is_linear: bool, make: Callable[[], Any]) -> None:
    weight = make()

    def f(x: torch.Tensor) -> torch.Tensor:
        return (x @ weight if is_linear else (x @ weight).sin()).sum()

    for function in (f, sa.aot_compile(f)):
        many = MANY.clone().requires_grad_()
        total = vmap(function)(many).sum()
        weight.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            total.backward()


def test_a_write_into_what_backward_does_not_read() -> None:
    bias = torch.ones(4)
    compiled = sa.aot_compile(lambda x: (x @ W + bias).sum())
    many = MANY.clone().requires_grad_()
    total = vmap(compiled)(many).sum()
    bias.mul_(2)
    total.backward()
    same(many.grad, W.sum(1).expand(5, 3, 4))


def test_nothing_is_held_when_the_call_is_over() -> None:
    kept: list[Any] = []

    def compiler(graph: torch.fx.GraphModule, inputs: Any) -> Function:
        def run(args: list[torch.Tensor]) -> Any:
            results = graph(*args)
            kept.extend(weakref.ref(x) for x in results)
            return results

        return run

    compiled = sa.aot_compile(lambda x: (x.sin() * 2).exp(), fw_compiler=compiler)
    gc.collect()
    gc.disable()
    try:
        for _ in range(2):
            grad(lambda x: compiled(x).sum())(X)
            x = MANY.clone().requires_grad_()
            vmap(compiled)(x).sum().backward()
        del x
        assert kept and not [ref for ref in kept if ref() is not None]
    finally:
        gc.enable()


def test_a_backward_that_cannot_be_compiled_computes_forward_again() -> None:
    def compiler(graph: Any, inputs: Any) -> Function:
        if graph.graph.find_nodes(op="call_function", target=torch.ops.aten.cos.default) and not graph.graph.find_nodes(
            op="call_function", target=SINE
        ):
            raise RuntimeError("not today")
        return lambda args: graph(*args)

    compiled = sa.aot_compile(lambda x: x.sin().sum(), fw_compiler=compiler)
    with pytest.warns(UserWarning, match=r"(?s)could not be compiled.*not today"):
        same(X.cos(), grad(compiled)(X))
