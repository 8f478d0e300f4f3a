"""Random numbers of Python and numpy: as in eager mode, and the generators are left where eager mode leaves them."""

from __future__ import annotations

import random
import types
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from random import random as drawn_by_another_name
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import subclass_aot as sa
from subclass_aot import TwoTensor, aot_compile
from subclass_aot.engine.trace import trace_arguments
from subclass_aot.errors import CompiledFileError

HELD = types.SimpleNamespace(python=random.Random(3), numpy=np.random.default_rng(5), old=np.random.RandomState(4))
KEPT: list[Any] = []


def begin() -> None:
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    HELD.python.seed(1)
    HELD.numpy.bit_generator.state = np.random.PCG64(7).state
    HELD.old.seed(2)
    KEPT.clear()


def states() -> list[Any]:
    return [
        random.getstate(), str(np.random.get_state()), torch.get_rng_state().tolist(), HELD.python.getstate(),
        HELD.numpy.bit_generator.state, str(HELD.old.get_state()), list(KEPT),
    ]  # fmt: skip


def agree(function: Callable[[Any], Any], compiled: Callable[[Any], Any], calls: int, training: bool = True) -> None:
    """Compares values, gradients and generators after each of some calls under one seed."""
    runs = []
    for called in function, compiled:
        begin()
        runs.append([])
        for k in range(calls):
            x = (torch.arange(3.0) + k).requires_grad_(training)
            result = called(x)
            if result.requires_grad:
                result.sum().backward()
            runs[-1].append((result.tolist(), x.grad is not None and x.grad.tolist(), states()))
    assert runs[0] == runs[1]


def skipped(x: Any) -> Any:
    """Skips layers by chance."""
    for scale in (2.0, 3.0):
        if random.random() < 0.4:
            continue
        x = (x * scale).tanh()
    return x * 2


def seeded(x: Any) -> Any:
    np.random.seed(1)
    random.seed("text")
    return x * np.random.rand() + random.random() + torch.from_numpy(np.random.rand(3))


def shuffled(x: Any) -> Any:
    order = [0, 1, 2]
    random.shuffle(order)
    return x[order]


def masked(x: Any) -> Any:
    """Masks spans, as training on speech does."""
    mask = np.zeros(3, dtype=bool)
    mask[np.random.choice(3, np.random.randint(1, 3), replace=False)] = True
    return x.masked_fill(torch.from_numpy(mask), 0.0)


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.scale = random.random()
        return x * ctx.scale

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:  # type: ignore[override]
        return gradient * ctx.scale


def with_torch(x: Any) -> Any:
    y = x * random.random() + torch.rand(3)
    return F.dropout(y, 0.5) * random.random()


ONE_GRAPH: dict[str, Callable[[Any], Any]] = {
    "random": lambda x: x * random.random(),
    "several": lambda x: x * random.uniform(1, 2) + random.gauss(0, 1) - random.triangular(),
    "a tensor of it": lambda x: x * torch.tensor(random.random()) + torch.tensor([random.random(), 2.0, 1.0]),
    "full": lambda x: x + torch.full((3,), random.random()),
    "arithmetic": lambda x: x * random.random() ** 0.5 + abs(random.normalvariate(0, 1)) / 3,
    "numpy": lambda x: x * np.random.rand() + np.random.uniform(0, 3) * np.random.standard_normal(),
    "mixed up": lambda x: x.flip(0) * (1 - np.random.beta(0.5, 0.5)) + x,
    "a seed": seeded,
    "beside torch": with_torch,
    "in a function of autograd": Scaled.apply,
    "a generator with a seed": lambda x: x * float(np.random.default_rng(3).random()) * random.Random(4).random(),
}
BY_VALUE: dict[str, Callable[[Any], Any]] = {
    "a branch": lambda x: x * 2 if random.random() < 0.5 else x - 1,
    "layers": skipped,
    "choice": lambda x: x * random.choice([1.0, 2.0, 3.0]),
    "a size": lambda x: x[: random.randint(1, 3)] * 2,
    "a size of numpy's": lambda x: x[: np.random.randint(1, 3)] * 2,
    "shuffle": shuffled,
    "permutation": lambda x: x[torch.as_tensor(np.random.permutation(3))] * 2,
    "mask": masked,
}
BY_FEW: dict[str, Callable[[Any], Any]] = {
    "an array": lambda x: x * torch.from_numpy(np.random.rand(3)),
    "dropout": lambda x: F.dropout(x, random.random()),
    "choices": lambda x: x * random.choices([1, 2, 3], weights=[1, 2, 3], k=9).index(3) * random.random(),
    "sample": lambda x: x * sum(random.sample(range(100), 2)),
    "a function of numpy": lambda x: x * float(np.log(np.random.rand())),
    "a text": lambda x: x * len(f"{random.random():.9f}".rstrip("0")) * float(str(random.random())),
}


def hooked(x: Any) -> Any:
    y = x * 2
    y.register_hook(lambda gradient: gradient * random.random())
    return y * 3


def state_put_back(x: Any) -> Any:
    state = random.getstate()
    first = random.random()
    random.setstate(state)
    return x * first + random.random()


def state_of_numpy_put_back(x: Any) -> Any:
    state = np.random.get_state()
    first = np.random.rand()
    np.random.set_state(state)
    return x * first + np.random.rand()


def array_shuffled(x: Any) -> Any:
    array = np.arange(3)
    np.random.shuffle(array)
    return x * torch.from_numpy(array)


IN_EAGER_MODE: dict[str, Callable[[Any], Any]] = {
    "a Random": lambda x: x * HELD.python.random(),
    "a Generator": lambda x: x * float(HELD.numpy.random()),
    "a RandomState": lambda x: x * HELD.old.rand(),
    "another name": lambda x: x * drawn_by_another_name(),
    "shuffle": array_shuffled,
    "an array as an argument": lambda x: x * float(np.random.choice(np.arange(3.0) + 1)),
    "bytes": lambda x: x * random.randbytes(1)[0],
    "a hook": hooked,
    "a checkpoint": lambda x: checkpoint(lambda y: (y * random.random()).sin(), x, use_reentrant=False),
    "the state": state_put_back,
    "the state of numpy": state_of_numpy_put_back,
    "a large array": lambda x: x * float(np.random.rand(300, 300).sum() / 1e5),
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", ONE_GRAPH)
def test_numbers_are_drawn_anew_in_one_graph(name: str, training: bool, dynamic: bool | None) -> None:
    compiled = aot_compile(ONE_GRAPH[name], dynamic=dynamic)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        agree(ONE_GRAPH[name], compiled, 5, training)
    assert not compiled.recompiles


@pytest.mark.parametrize("name", [*ONE_GRAPH, *BY_VALUE])
def test_what_steers_the_program_is_compared(name: str) -> None:
    function = {**ONE_GRAPH, **BY_VALUE}[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        agree(function, aot_compile(function), 12)


@pytest.mark.parametrize("name", [*ONE_GRAPH, *BY_VALUE])
def test_more_values_than_are_compiled_for(name: str) -> None:
    function = {**ONE_GRAPH, **BY_VALUE}[name]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*the function itself ran", category=UserWarning)
        agree(function, aot_compile(function, dynamic=False, values_limit=3), 12)


@pytest.mark.parametrize("name", BY_FEW)
def test_values_that_do_not_repeat(name: str) -> None:
    function = BY_FEW[name]
    compiled = aot_compile(function, values_limit=3)
    with pytest.warns(UserWarning, match=r"(?si)the function itself ran.*test_draws_elsewhere.py:\d+") as warned:
        agree(function, compiled, 8)
    assert sum("itself ran" in str(w.message) for w in warned) == 1 and len(compiled.recompiles) <= 3


@pytest.mark.parametrize("name", IN_EAGER_MODE)
def test_what_only_eager_mode_can_draw(name: str) -> None:
    function = IN_EAGER_MODE[name]
    compiled = aot_compile(function)
    with pytest.warns(UserWarning, match=r"(?si)so the function itself ran") as warned:
        agree(function, compiled, 6)
    assert sum("itself ran" in str(w.message) for w in warned) == 1 and not len(compiled._specializations)


def test_calls_that_only_eager_mode_can_do_are_not_traced_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    traces: list[Any] = []

    def trace(*args: Any) -> Any:
        traces.append(args)
        return trace_arguments(*args)

    monkeypatch.setattr("subclass_aot.engine.compile.trace_arguments", trace)
    compiled = aot_compile(lambda x: x * HELD.python.random() if x.requires_grad else x * 2)
    with pytest.warns(UserWarning, match="itself ran"):
        for _ in range(6):
            compiled(torch.ones(2, requires_grad=True))
    assert len(traces) == 2
    assert compiled(torch.ones(2)).equal(torch.ones(2) * 2) and len(compiled._specializations) == 1


def test_what_the_function_puts_somewhere() -> None:
    def function(x: Any) -> Any:
        KEPT.append(random.random())
        return x * KEPT[-1]

    agree(function, aot_compile(function), 5)


@pytest.mark.filterwarnings("ignore")  # Dynamo's own
@pytest.mark.parametrize("name", ["random", "numpy", "full", "a branch", "choice", "a Generator"])
def test_behind_torch_compile(name: str) -> None:
    function = {**ONE_GRAPH, **BY_VALUE, **IN_EAGER_MODE}[name]
    agree(function, torch.compile(function, backend="subclass_aot"), 4)
    torch._dynamo.reset()


def test_wrappers() -> None:
    def function(x: Any) -> Any:
        return x * random.random()

    compiled, x = aot_compile(function), TwoTensor(torch.ones(2), torch.ones(2) * 2)
    begin()
    expected = [function(x) for _ in range(3)]
    begin()
    assert all(torch.equal(compiled(x).b, each.b) for each in expected) and not compiled.recompiles


def test_second_derivatives_draw_the_same() -> None:
    def function(x: Any) -> Any:
        return (x**3 * random.random()).sum()

    found = []
    for called in function, aot_compile(function, double_backward=True):
        begin()
        x = torch.arange(3.0, requires_grad=True)
        (gradient,) = torch.autograd.grad(called(x), x, create_graph=True)
        gradient.square().sum().backward()
        found.append((x.grad.tolist(), random.getstate()))  # type: ignore[union-attr]
    assert found[0] == found[1]


def test_draws_between_a_call_and_a_backward_of_another_kind() -> None:
    """That backward is traced when it comes, and what was drawn since the call is no draw of its own."""
    box = types.SimpleNamespace(seen=None)

    def function(x: Any) -> Any:
        y = x * 2
        y.register_hook(lambda gradient: vars(box).update(seen=gradient))
        return y * 4

    compiled, x = aot_compile(function), torch.ones(2, requires_grad=True)
    result = compiled(x)
    begin()
    expected = random.random(), np.random.rand()
    begin()
    random.random()
    state = random.getstate()
    result.backward(TwoTensor(torch.ones(2), torch.ones(2) * 2))
    assert random.getstate() == state and expected[1] == np.random.rand()
    assert isinstance(box.seen, TwoTensor) and isinstance(x.grad, TwoTensor)


def test_a_callable_compiler_gets_no_such_draw() -> None:
    targets: list[Any] = []

    def compiler(graph: Any, inputs: Any) -> Any:
        targets.extend(str(node.target) for node in graph.graph.nodes)
        return graph

    compiled = aot_compile(lambda x: (x * random.random()).sin() * np.random.rand(), fw_compiler=compiler)
    agree(lambda x: (x * random.random()).sin() * np.random.rand(), compiled, 3)
    assert targets and not any("draw_elsewhere" in target for target in targets)


def test_a_file(tmp_path: Any) -> None:
    compiled = aot_compile(noisy, dynamic=False)
    agree(noisy, compiled, 2, training=False)
    compiled.save(tmp_path / "noisy")
    agree(noisy, sa.load_compiled(tmp_path / "noisy", noisy, trust=True), 3, training=False)
    compiled = aot_compile(ONE_GRAPH["random"])
    compiled(torch.ones(2))
    with pytest.raises(CompiledFileError, match="depends on data"):
        compiled.save(tmp_path / "random")


def noisy(x: Any) -> Any:
    np.random.seed(3)
    return x * np.random.rand() + random.randrange(1)


def test_an_error_leaves_the_generators_as_eager_mode_does() -> None:
    def function(x: Any) -> Any:
        if random.random() < 2:
            raise ValueError("of the program")
        return x

    compiled = aot_compile(lambda x: x if x.sum() > 99 else function(x))
    begin()
    with pytest.raises(ValueError, match="of the program"):
        compiled(torch.ones(2))
    after = states()
    begin()
    random.random()
    assert states()[:2] == after[:2]


def test_what_a_program_has_put_in_the_place_of_a_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random, "random", lambda: 0.25)
    monkeypatch.setattr(np.random, "rand", lambda: 0.5)
    compiled = aot_compile(lambda x: x * random.random() * np.random.rand() * random.uniform(1, 1))
    assert compiled(torch.ones(2)).tolist() == [0.125, 0.125] and random.random() == 0.25 and np.random.rand() == 0.5


def test_functions_are_back_and_what_was_kept_of_them_goes_on_drawing() -> None:
    before = dict(vars(random)), dict(vars(np.random))
    held = types.SimpleNamespace()

    def function(x: Any) -> Any:
        held.draw, held.numpy = random.uniform, np.random.uniform
        return x * 2

    aot_compile(function)(torch.ones(2))
    assert (dict(vars(random)), dict(vars(np.random))) == before
    begin()
    found = held.draw(0, 1), held.numpy(0, 1)
    begin()
    assert found == (random.uniform(0, 1), np.random.uniform(0, 1))


def test_another_thread_draws_as_ever() -> None:
    def function(x: Any) -> Any:
        with ThreadPoolExecutor(1) as pool:
            number = pool.submit(lambda: type(random.random())).result()
        return x * 2 if number is float else x

    compiled = aot_compile(function)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert compiled(torch.ones(2)).tolist() == [2, 2]
