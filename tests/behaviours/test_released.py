"""What was traced and compiled is gone with what the program holds of it, without the collector.

See Note [Storages] in `meta/storage.py` and Note [Graphs without the collector] in `_torch/graphs.py`.
"""

from __future__ import annotations

import gc
import io
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import fx, nn
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils.checkpoint import checkpoint

import subclass_aot as sa
from subclass_aot.errors import SubclassAotError
from subclass_aot.meta import Storage


@pytest.fixture(autouse=True, scope="module")
def without_collector() -> Iterator[None]:
    gc.collect()
    gc.freeze()  # so that only what is made from here on is counted, which is fast
    gc.disable()
    yield
    gc.enable()
    gc.unfreeze()


def counts() -> Counter[str]:
    """How many objects there are of what a trace is made of, and of this library's own classes."""
    kinds = (torch.Tensor, fx.Graph, fx.Node, fx.GraphModule, ShapeEnv, Storage)
    found = Counter[str]()
    for x in gc.get_objects():
        kind = type(x)  # `isinstance` would ask lazy objects of others what they are
        if issubclass(kind, kinds) or str(kind.__module__).startswith("subclass_aot."):
            found[kind.__qualname__] += 1
    return found


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.Softmax(-1))


def grad(*size: int) -> torch.Tensor:
    return torch.randn(*size or (3, 4), requires_grad=True)


def two() -> torch.Tensor:
    return sa.TwoTensor(torch.randn(3, 4), torch.randn(3, 4)).requires_grad_()  # type: ignore[no-any-return]


class Checkpointed(nn.Module):
    """A block that is computed again, before one that is not."""

    def __init__(self, use_reentrant: bool = False) -> None:
        super().__init__()
        self.first, self.second, self.use_reentrant = mlp(), mlp(), use_reentrant

    def forward(self, x: torch.Tensor) -> Any:
        return self.second(checkpoint(self.first, x, use_reentrant=self.use_reentrant))


class Exp(torch.autograd.Function):
    """Saves what it gives."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * ctx.saved_tensors[0]


class Counting(nn.Module):
    """Has state, and numbers drawn at random."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.drop = nn.BatchNorm1d(4), nn.Dropout(0.5)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> Any:
        self.calls += 1
        return self.drop(self.norm(x)).tanh()


def hooked(x: torch.Tensor) -> torch.Tensor:
    y = x.tanh()
    y.register_hook(lambda g: g * 2)
    return y.exp()


def read(x: torch.Tensor) -> torch.Tensor:
    y = x.tanh()
    return y.exp() if y.sum() > -100 else y


def with_gradient(x: torch.Tensor) -> torch.Tensor:
    (g,) = torch.autograd.grad(x.tanh().sum(), x, create_graph=True)
    return g.exp()


def views(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = x.tanh()
    return y, y[1:], x.t(), y.unsqueeze(0)


def quantized() -> nn.Module:
    model = mlp()
    sa.quantize_(model, sa.Int8Weight)
    return model


def once(function: Any) -> Callable[[], Any]:
    return lambda: function


PROGRAMS: dict[str, tuple[Callable[[], Any], Callable[[], torch.Tensor]]] = {
    "an MLP": (mlp, grad),
    "results that autograd saves": (once(lambda x: x.tanh().exp().sigmoid()), grad),
    "writes": (once(lambda x: x.tanh().add(1).mul_(2).exp()), grad),
    "written inputs": (once(lambda x: x.mul_(2).tanh()), lambda: torch.randn(3, 4)),
    "resized": (once(lambda x: x.t_().tanh()), lambda: torch.randn(3, 4)),
    "views": (once(views), grad),
    "state and random numbers": (Counting, grad),
    "checkpointed": (Checkpointed, grad),
    "checkpointed, reentrant": (lambda: Checkpointed(True), grad),
    "an autograd.Function": (once(lambda x: Exp.apply(x).tanh()), grad),
    "hooks": (once(hooked), grad),
    "a gradient inside": (once(with_gradient), grad),
    "transforms inside": (once(torch.func.vmap(torch.func.grad(lambda x: x.tanh().sum()))), grad),
    "wrappers": (once(lambda x: x.tanh().exp()), two),
    "quantized weights": (quantized, grad),
    "values read": (once(read), grad),
}


def train(compiled: Callable[..., Any], x: torch.Tensor, goes_back: bool) -> None:
    result = compiled(x)
    first = result[0] if isinstance(result, tuple) else result
    if goes_back and first.requires_grad:
        first.sum().backward()


def left_by(run: Callable[[], None], times: int = 3) -> Counter[str]:
    """What is left of so many runs, after one that fills what is remembered for ever."""
    run()
    run()
    gc.collect()
    before = counts()
    for _ in range(times):
        run()
    return counts() - before


@pytest.mark.parametrize("name", [n for n in PROGRAMS if n != "values read"])  # which only a call has
def test_a_trace_leaves_nothing(name: str) -> None:
    make, argument = PROGRAMS[name]

    def run() -> None:
        sa.trace_joint(make(), argument())

    assert not left_by(run)


@pytest.mark.parametrize(
    ("dynamic", "goes_back"),
    [
        pytest.param(False, True, id="trained"),
        pytest.param(True, False, id="symbols, no backward", marks=pytest.mark.long),
        pytest.param(False, False, id="no backward", marks=pytest.mark.long),
        pytest.param(True, True, id="symbols, trained", marks=pytest.mark.long),
    ],
)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_compiled_function_leaves_nothing(name: str, dynamic: bool, goes_back: bool) -> None:
    make, argument = PROGRAMS[name]

    def run() -> None:
        train(sa.aot_compile(make(), dynamic=dynamic), argument(), goes_back)

    assert not left_by(run)


def inference() -> None:
    with torch.no_grad():
        sa.aot_compile(mlp())(torch.randn(3, 4))


def both_sizes() -> None:
    compiled = sa.aot_compile(Checkpointed())
    for batch in (2, 3, 5):
        compiled(grad(batch, 4)).sum().backward()


def joint_by_hand() -> None:
    x = grad()
    compiled = sa.compile_joint(sa.trace_joint(mlp(), x)).bind(mlp())
    compiled(x).sum().backward()


def second_derivative() -> None:
    x = grad()
    compiled = sa.aot_compile(lambda x: x.tanh(), double_backward=True)
    (g,) = torch.autograd.grad(compiled(x).sum(), x, create_graph=True)
    g.sum().backward()


def sparse_gradient() -> None:
    table = nn.Embedding(5, 3, sparse=True)
    sa.aot_compile(table)(torch.tensor([1, 2])).tanh().sum().backward()


def size_by_data() -> None:
    sa.aot_compile(lambda x: x[x > 0].tanh(), dynamic=True)(grad()).sum().backward()


def refused() -> None:
    compiled = sa.aot_compile(lambda x: x.tanh().data_ptr())
    with pytest.raises(SubclassAotError):
        compiled(grad())


def fails() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        y = x.tanh()
        raise ZeroDivisionError(y.shape)

    compiled = sa.aot_compile(program)
    with pytest.raises(ZeroDivisionError):
        compiled(grad())


def saved() -> None:
    file = io.BytesIO()
    compiled = sa.aot_compile(mlp())
    compiled(grad())
    del compiled
    torch.save(two().detach(), file)
    file.seek(0)
    torch.load(file)


def without_data() -> None:
    with sa.meta():
        model, x = Checkpointed(), torch.randn(3, 4).requires_grad_()
        model(x)
        model(x).sum().backward()
        model(x)


def leaf_alone() -> None:
    x = sa.MetaTensor(torch.randn(3)).requires_grad_()
    x.tanh().exp()


OTHERS = [
    inference, both_sizes, joint_by_hand, second_derivative, sparse_gradient,
    size_by_data, refused, fails, saved, without_data, leaf_alone,
]  # fmt: skip


@pytest.mark.every_case
@pytest.mark.parametrize("run", OTHERS, ids=lambda run: run.__name__)
def test_other_uses_leave_nothing(run: Callable[[], None]) -> None:
    assert not left_by(run)


def by_blocks() -> None:
    model = mlp()
    sa.compile_blocks(model, [nn.Linear])
    model(grad()).sum().backward()


def no_data_in_a_module() -> None:
    sa.to_meta(mlp())(sa.MetaTensor(torch.randn(3, 4)))


def own_class() -> None:
    class Scaled(sa.WrapperTensor):
        values: torch.Tensor
        scale: float = 2.0

        def to_plain(self) -> torch.Tensor:
            return self.values * self.scale

    x = Scaled(torch.randn(3))
    sa.aot_compile(lambda x: x.sin())(x)


@pytest.mark.parametrize("run", [by_blocks, no_data_in_a_module, own_class], ids=lambda run: run.__name__)
def test_what_refers_to_itself_is_gone_with_the_collector(run: Callable[[], None]) -> None:
    """A module whose `forward` is an object does, and every class."""

    def and_collect() -> None:
        run()
        gc.collect()

    assert not left_by(and_collect)


def test_classes_die() -> None:
    """The one of `own_class` is known to the table of classes, to replays, and to `torch.load`."""
    own_class()
    gc.collect()
    assert not [c for c in sa.WrapperTensor.__subclasses__() if c.__qualname__.startswith("own_class")]
