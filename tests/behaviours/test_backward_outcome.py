"""What hooks and `autograd.Function`s put into objects while gradients are computed: at each backward, as in eager.

Each program takes what compiles a function, runs a few steps, and gives what can be seen from outside after each.
"""

from __future__ import annotations

import dataclasses
import functools
import gc
import threading
import weakref
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.autograd import graph
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils.checkpoint import checkpoint

from subclass_aot import aot_compile, compile_joint, load, trace_joint
from subclass_aot.errors import BackwardOutcomeError, DoubleBackwardError, JointGraphError, MutationError

Compile = Callable[[Callable[..., Any]], Callable[..., Any]]
Program = Callable[[Compile], list[Any]]

DOORS: dict[str, Compile] = {
    "eager": aot_compile,
    "symbolic": functools.partial(aot_compile, dynamic=True),
    "inductor": functools.partial(aot_compile, fw_compiler="inductor"),
    "torch.compile": functools.partial(torch.compile, backend="subclass_aot"),
}
PROGRAMS: dict[str, Program] = {}


def program(run: Program) -> Program:
    PROGRAMS[run.__name__] = run
    return run


def seen(value: Any) -> Any:
    """What a value is, in a form that can be compared: tensors as lists, with whether they require grad."""
    if isinstance(value, TwoTensor):
        return "TwoTensor", seen(value.a), seen(value.b), value.requires_grad
    if isinstance(value, torch.Tensor):
        return [round(x, 4) for x in value.detach().flatten().tolist()], value.requires_grad
    if isinstance(value, dict):
        return {key: seen(part) for key, part in value.items()}
    return [seen(part) for part in value] if isinstance(value, list | tuple | deque) else value


def leaf(i: int = 0, size: int = 3) -> torch.Tensor:
    return torch.full((size,), i + 1.0, requires_grad=True)


def steps(function: Callable[..., Any], look: Callable[[], Any], count: int = 3) -> list[Any]:
    """Runs forward and backward, with other gradients each time, and looks before and after each backward."""
    found = []
    for i in range(count):
        x = leaf(i)
        out = function(x)
        found.append(seen(look()))
        (out * (i + 1)).sum().backward()
        found.append(seen([look(), x.grad]))
    return found


def hooked(hook: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function with a hook on something that it computes."""

    def function(x: Any) -> Any:
        y = x * 2
        y.register_hook(hook)
        return y * y

    return function


def network() -> torch.nn.Sequential:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh(), torch.nn.Linear(3, 3))


# -- who runs: hooks of each kind, and functions -----------------------------------------------------------------------


@program
def hook_of_a_module_that_is_a_method(compile: Compile) -> list[Any]:
    model = Activations()
    return steps(compile(model), lambda: model.gradients)


class Activations(torch.nn.Module):
    """Keeps the gradient of its activations, as Grad-CAM does."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = torch.nn.Linear(3, 3), torch.nn.Linear(3, 2)
        self.gradients: Any = None

    def keep(self, gradient: torch.Tensor) -> None:
        self.gradients = gradient

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.first(x)
        if hidden.requires_grad:
            hidden.register_hook(self.keep)
        return self.second(hidden)


@program
def full_backward_hook(compile: Compile) -> list[Any]:
    model, got = network(), {}

    def hook(module: Any, grad_input: Any, grad_output: Any) -> None:
        got["in"], got["out"] = grad_input[0], grad_output[0]

    model[2].register_full_backward_hook(hook)
    return steps(compile(model), lambda: got)


@program
def full_backward_pre_hook(compile: Compile) -> list[Any]:
    model, got = network(), []
    model[0].register_full_backward_pre_hook(lambda module, grad_output: got.append(grad_output[0]))
    return steps(compile(model), lambda: got)


@program
def hooks_of_all_modules_by_name(compile: Compile) -> list[Any]:
    model, norms = network(), {}
    for name, module in model.named_children():
        module.register_full_backward_hook(
            lambda module, grad_input, grad_output, name=name: norms.__setitem__(name, grad_output[0].norm())
        )
    return steps(compile(model), lambda: dict(sorted(norms.items())))


@program
def hook_of_a_node(compile: Compile) -> list[Any]:
    got: list[Any] = []

    def function(x: Any) -> Any:
        y = x * 2
        y.grad_fn.register_hook(lambda grad_input, grad_output: got.append(grad_output[0]))
        return y * y

    return steps(compile(function), lambda: got)


@program
def pre_hook_of_a_node(compile: Compile) -> list[Any]:
    got: list[Any] = []

    def function(x: Any) -> Any:
        y = x * 2
        y.grad_fn.register_prehook(lambda grad_output: got.append(grad_output[0]))
        return y * y

    return steps(compile(function), lambda: got)


@program
def hook_of_several_tensors(compile: Compile) -> list[Any]:
    got: list[Any] = []

    def function(x: Any) -> Any:
        y, z = x * 2, x * 3
        graph.register_multi_grad_hook([y, z], lambda gradients: got.extend(gradients))
        return y * z

    return steps(compile(function), lambda: got)


@program
def hook_after_accumulation(compile: Compile) -> list[Any]:
    model, got = network(), []
    model[0].weight.register_post_accumulate_grad_hook(lambda weight: got.append(weight.grad.clone()))
    return steps(compile(model), lambda: got)


class Counted(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, stats: Any) -> Any:
        ctx.stats = stats
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:  # type: ignore[override]
        (x,) = ctx.saved_tensors
        ctx.stats.calls += 1
        ctx.stats.norms.append(gradient.norm())
        return gradient * x.cos(), None


@program
def backward_of_a_function(compile: Compile) -> list[Any]:
    stats = SimpleNamespace(calls=0, norms=[])
    return steps(compile(lambda x: Counted.apply(x, stats)), lambda: (stats.calls, stats.norms))


@program
def what_a_checkpoint_computes_again(compile: Compile) -> list[Any]:
    class Block(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.calls = torch.nn.Linear(3, 3), 0

        def body(self, x: Any) -> Any:
            self.calls += 1
            hidden = self.linear(x)
            self.auxiliary, self.row = hidden.pow(2).mean(), x[0]
            return hidden.sin()

        def forward(self, x: Any) -> Any:
            return checkpoint(self.body, x, use_reentrant=False)

    torch.manual_seed(0)
    model = Block()
    function, found = compile(model), []
    for i in range(3):
        out = function(torch.full((2, 3), i + 1.0))
        (out.sum() + model.auxiliary).backward()
        found += seen([model.auxiliary, model.row, model.calls, model.linear.weight.grad])
    return found


# -- where it goes -----------------------------------------------------------------------------------------------------


@program
def into_a_closure(compile: Compile) -> list[Any]:
    count, last = 0, None

    def hook(gradient: Any) -> None:
        nonlocal count, last
        count, last = count + 1, gradient

    return steps(compile(hooked(hook)), lambda: (count, last))


@program
def into_a_list_that_grows(compile: Compile) -> list[Any]:
    log: list[Any] = []
    return steps(compile(hooked(lambda gradient: log.append(gradient.norm()))), lambda: log)


@program
def into_a_deque(compile: Compile) -> list[Any]:
    log: deque[Any] = deque(maxlen=2)
    return steps(compile(hooked(lambda gradient: log.append(gradient))), lambda: log, 4)


@program
def into_arguments(compile: Compile) -> list[Any]:
    def function(x: Any, found: Any, log: Any, batch: Any) -> Any:
        y = x * 2

        def hook(gradient: Any) -> None:
            found["gradient"], batch.gradient = gradient, gradient * 2
            log.append(gradient)

        y.register_hook(hook)
        return y * y

    compiled, results = compile(function), []
    for i in range(3):
        x, found, log, batch = leaf(i), {}, [], SimpleNamespace(gradient=None)  # type: ignore[var-annotated]
        compiled(x, found, log, batch).sum().backward()
        results += seen([found, log, batch.gradient])
    return results


@program
def into_objects_of_two_calls(compile: Compile) -> list[Any]:
    def function(x: Any, batch: Any) -> Any:
        y = x * 2

        def hook(gradient: Any) -> None:
            batch.count, batch.gradient = batch.count + 1, gradient

        y.register_hook(hook)
        return y * y

    compiled = compile(function)
    one, two = SimpleNamespace(count=0, gradient=None), SimpleNamespace(count=0, gradient=None)
    first, second = compiled(leaf(0), one), compiled(leaf(1), two)
    second.sum().backward()
    found = seen([one.count, two.count, two.gradient])
    first.sum().backward()
    return [*found, seen([one.count, two.count, one.gradient])]


@program
def into_results(compile: Compile) -> list[Any]:
    def function(x: Any) -> Any:
        result = {"calls": []}
        other = SimpleNamespace(count=0)
        y = x * 2

        def hook(gradient: Any) -> None:
            result["gradient"] = gradient  # type: ignore[assignment]
            result["calls"].append(1)
            other.count += 1
            y.note = gradient

        y.register_hook(hook)
        return result, other, y, (y * y).sum()

    compiled, found = compile(function), []
    for i in range(3):
        result, other, y, loss = compiled(leaf(i))
        found += [sorted(result), other.count, hasattr(y, "note")]
        loss.backward()
        found += seen([result, other.count, y.note])
    return found


@program
def onto_a_parameter(compile: Compile) -> list[Any]:
    model = network()

    def function(x: Any) -> Any:
        y = model(x)
        y.register_hook(lambda gradient: setattr(model[2].weight, "of_result", gradient))
        return y * y

    return steps(compile(function), lambda: getattr(model[2].weight, "of_result", None))


@program
def into_a_buffer_that_is_replaced(compile: Compile) -> list[Any]:
    class Mean(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.zeros(3))
            self.register_buffer("count", torch.zeros(()))

        def hook(self, gradient: Any) -> None:
            self.mean = self.mean * 0.5 + gradient
            self.count += 1

        def forward(self, x: Any) -> Any:
            y = x * 2
            y.register_hook(self.hook)
            return y * y + self.mean

    model = Mean()
    return steps(compile(model), lambda: (model.mean.clone(), model.count.clone()))


# -- what is put there -------------------------------------------------------------------------------------------------


@program
def a_wrapper(compile: Compile) -> list[Any]:
    got: dict[str, Any] = {}
    function, found = compile(hooked(lambda gradient: got.__setitem__("gradient", gradient))), []
    for i in range(3):
        x = TwoTensor(torch.full((3,), i + 1.0), torch.full((3,), 2.0)).requires_grad_()
        function(x).sum().backward()
        found.append(seen(got))
    return found


@program
def numbers_that_the_next_forward_reads(compile: Compile) -> list[Any]:
    class Schedule(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.steps, self.rate, self.seen = 0, 1.0, False

        def hook(self, gradient: Any) -> Any:
            self.steps, self.rate, self.seen = self.steps + 1, self.rate * 0.5, True
            return -gradient * self.steps * self.rate

        def forward(self, x: Any) -> Any:
            y = x * (self.steps + 1)
            y.register_hook(self.hook)
            return y * 2 if self.seen else y

    model = Schedule()
    return steps(compile(model), lambda: (model.steps, model.rate, model.seen), 5)


@program
def another_gradient_as_well(compile: Compile) -> list[Any]:
    log: list[Any] = []

    def hook(gradient: Any) -> Any:
        log.append(gradient.abs().max())
        return gradient.clamp(-1, 1)

    return steps(compile(hooked(hook)), lambda: log)


@program
def records(compile: Compile) -> list[Any]:
    @dataclasses.dataclass
    class State:
        count: int = 0
        last: Any = None
        names: tuple[str, ...] = ()

    state = State()

    def hook(gradient: Any) -> None:
        state.count, state.last = state.count + 1, State(7, (gradient, gradient * 2))
        state.names = (*state.names, "hook")

    def look() -> Any:
        return state.count, state.names, state.last and (state.last.count, state.last.last)

    return steps(compile(hooked(hook)), look)


@program
def what_is_there_already(compile: Compile) -> list[Any]:
    state: dict[str, Any] = {"one": [], "two": {"k": 1}, "gone": 1}

    def function(x: Any) -> Any:
        y = x * 2

        def hook(gradient: Any) -> None:
            state["one"], state["two"] = state["two"], state["one"]
            state.pop("gone", None)
            state["x"], state["y"] = x, y

        y.register_hook(hook)
        return y * y

    compiled, found = compile(function), []
    for i in range(3):
        x = leaf(i)
        compiled(x).sum().backward()
        found += seen([state["one"], state["two"], state.get("gone"), state["x"] is x, state["y"]])
    return found


# -- when backward runs ------------------------------------------------------------------------------------------------


@program
def never(compile: Compile) -> list[Any]:
    log: list[Any] = []
    function = compile(hooked(lambda gradient: log.append(gradient)))
    found = []
    for i in range(3):
        out = function(leaf(i))
        found.append(len(log))
    out.sum().backward()
    return [*found, seen(log)]


@program
def twice_with_other_gradients(compile: Compile) -> list[Any]:
    model = Activations()
    function, found = compile(model), []
    for i in range(3):
        out = function(leaf(i))
        out[0].backward(retain_graph=True)
        found.append(seen(model.gradients))
        out[1].backward()
        found.append(seen(model.gradients))
    return found


@program
def from_some_results(compile: Compile) -> list[Any]:
    log: list[Any] = []

    def function(x: Any) -> Any:
        y, z = x * 2, x * 3
        y.register_hook(lambda gradient: log.append(("y", gradient)))
        z.register_hook(lambda gradient: log.append(("z", gradient)))
        return y * y, z * z

    compiled, found = compile(function), []
    for i in range(3):
        x = leaf(i)
        compiled(x)[i % 2].sum().backward()
        found += seen([log[-1], len(log), x.grad])
        sum(compiled(x)).sum().backward()  # type: ignore[union-attr]
        found += seen([sorted(name for name, _ in log), x.grad])
    return found


@program
def after_several_calls(compile: Compile) -> list[Any]:
    model = Totals()
    function, found = compile(model), []
    for i in range(3):
        x, y = leaf(i), leaf(i + 1)
        first, second = function(x), function(y)
        second.sum().backward()
        found += seen([model.count, model.total, x.grad, y.grad])
        first.sum().backward()
        found += seen([model.count, model.total, x.grad, y.grad])
    return found


class Totals(torch.nn.Module):
    """Adds gradients up, and multiplies them by how many there were."""

    def __init__(self) -> None:
        super().__init__()
        self.count, self.total = 0, None

    def hook(self, gradient: Any) -> Any:
        self.count += 1
        self.total = gradient if self.total is None else self.total + gradient
        return gradient * self.count

    def forward(self, x: Any) -> Any:
        y = x * 2
        y.register_hook(self.hook)
        return y * y


@program
def twice_where_hooks_read_what_they_left(compile: Compile) -> list[Any]:
    model = Totals()
    function, found = compile(model), []
    for i in range(3):
        x = leaf(i)
        out = function(x)
        out.sum().backward(retain_graph=True)
        found += seen([model.count, model.total, x.grad])
        (out * 3).sum().backward()
        found += seen([model.count, model.total, x.grad])
    return found


@program
def after_others_have_changed_it(compile: Compile) -> list[Any]:
    model = Totals()
    function, found = compile(model), []
    for i in range(4):
        x = leaf(i)
        out = function(x)
        model.total, model.count = (None, 0) if i % 2 else (torch.ones(3), 10 * i)
        out.sum().backward()
        found += seen([model.count, model.total, x.grad])
    return found


RATE = 1.0


class Signed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, settings: Any, log: list[Any]) -> Any:
        ctx.settings, ctx.log = settings, log
        return x * 1

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:  # type: ignore[override]
        ctx.log.append(gradient)
        return gradient * ctx.settings.sign if ctx.settings.on else gradient, None, None


@program
def after_what_hooks_only_read_has_changed(compile: Compile) -> list[Any]:
    global RATE
    RATE, scale, log = 1.0, 1.0, []
    options, settings = {"weight": 2}, SimpleNamespace(sign=1, on=True)

    def function(x: Any) -> Any:
        y = Signed.apply(x, settings, log) * 2
        y.register_hook(lambda gradient: gradient * options["weight"] * scale * RATE)
        return y * y

    compiled, found = compile(function), []
    for i in range(5):
        x = leaf(i)
        out = compiled(x)
        if i == 1:
            options["weight"] = 3
        elif i == 2:
            scale = 0.5
        elif i == 3:
            settings.sign, RATE = -1, 4.0
        else:
            settings.on = not settings.on
        out.sum().backward()
        found += seen([x.grad, log[-1], len(log)])
    return found


@program
def into_one_gradient(compile: Compile) -> list[Any]:
    log: list[Any] = []
    function, x = compile(hooked(lambda gradient: log.append(gradient))), leaf()
    found = []
    for _ in range(3):
        function(x).sum().backward()
        found += seen([x.grad, log])
    return found


@program
def in_the_order_of_the_calls(compile: Compile) -> list[Any]:
    log: list[str] = []

    def function(x: Any) -> Any:
        log.append("forward")
        y = x * 2
        y.register_hook(lambda gradient: log.append("backward"))
        return y * y

    compiled = compile(function)
    for i in range(2):
        first, second = compiled(leaf(i)), compiled(leaf(i))
        (first.sum() + second.sum()).backward()
    return log


@program
def without_gradients(compile: Compile) -> list[Any]:
    model = Activations()
    function = compile(model)
    with torch.no_grad():
        function(leaf())
    before = model.gradients
    function(leaf()).sum().backward()
    return [before, seen(model.gradients)]


@program
def by_autograd_grad(compile: Compile) -> list[Any]:
    model = Activations()
    function, found = compile(model), []
    for i in range(2):
        gradients = torch.autograd.grad(function(leaf(i)).sum(), list(model.parameters()))
        found += seen([model.gradients, gradients])
    return found


@program
def in_one_compiled_function_inside_another(compile: Compile) -> list[Any]:
    state: dict[str, Any] = {}
    inner = compile(hooked(lambda gradient: state.__setitem__("gradient", gradient)))
    return steps(compile(lambda x: inner(x).sin()), lambda: state)


@program
def in_several_threads(compile: Compile) -> list[Any]:
    log: list[Any] = []
    function = compile(hooked(lambda gradient: log.append(gradient)))
    threads = [threading.Thread(target=lambda i=i: function(leaf(i)).sum().backward()) for i in range(4)]  # type: ignore[misc]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(seen(log))


@program
def of_a_leaf_that_the_function_makes(compile: Compile) -> list[Any]:
    log: list[Any] = []

    def function(x: Any) -> Any:
        made = (x * 2).detach().requires_grad_()
        y = made * 3
        y.register_hook(lambda gradient: log.append(gradient))
        return made, (y * y).sum()

    compiled, found = compile(function), []
    for i in range(2):
        made, loss = compiled(torch.full((3,), i + 1.0))
        loss.backward()
        found += seen([made.grad, log])
    return found


@program
def what_a_gradient_looks_like(compile: Compile) -> list[Any]:
    state: dict[str, Any] = {}

    def hook(gradient: Any) -> None:
        state.update(shape=tuple(gradient.shape), more=gradient.shape[0] + 1, mean=gradient.mean())

    function, found = compile(hooked(hook)), []
    for size in range(2, 5):
        function(leaf(0, size)).sum().backward()
        found.append(seen(state))
    return found


@program
def while_others_add_to_the_gradient(compile: Compile) -> list[Any]:
    weight, log = torch.nn.Parameter(torch.ones(2)), []

    def function() -> Any:
        y = weight * 1
        y.register_hook(lambda gradient: log.append(gradient))
        return y.sum()

    compiled = compile(function)
    for _ in range(3):
        compiled().backward()
    return seen([weight.grad, log])


# -- retain_grad -------------------------------------------------------------------------------------------------------


@program
def retained_by_a_result(compile: Compile) -> list[Any]:
    def function(x: Any) -> Any:
        hidden = x * 2
        hidden.retain_grad()
        return hidden, (hidden * hidden).sum()

    compiled, found = compile(function), []
    for i in range(3):
        hidden, loss = compiled(leaf(i))
        (loss * (i + 1) + hidden.sum() * i).backward()
        found.append(seen(hidden.grad))
    return found


@program
def retained_in_objects(compile: Compile) -> list[Any]:
    class Model(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            self.hidden = x * 2
            self.hidden.retain_grad()
            self.parts = {"one": self.hidden.sin(), "two": [self.hidden.cos()]}
            self.parts["two"][0].retain_grad()
            return (self.parts["one"] * self.parts["two"][0]).sum()

    model = Model()
    return steps(compile(model), lambda: (model.hidden.requires_grad and model.hidden.is_leaf, 0)) + [
        seen(model.hidden.grad),
        seen(model.parts["two"][0].grad),
    ]


@program
def retained_twice(compile: Compile) -> list[Any]:
    def function(x: Any) -> Any:
        hidden = x * 2
        hidden.retain_grad()
        return hidden, (hidden * hidden).sum()

    compiled, found = compile(function), []
    for i in range(2):
        hidden, loss = compiled(leaf(i))
        loss.backward(retain_graph=True)
        found.append(seen(hidden.grad))
        loss.backward()
        found.append(seen(hidden.grad))
    return found


@program
def retained_by_a_wrapper(compile: Compile) -> list[Any]:
    def function(x: Any) -> Any:
        hidden = x * 2
        hidden.retain_grad()
        return hidden, (hidden * hidden).sum()

    compiled, found = compile(function), []
    for i in range(2):
        x = TwoTensor(torch.full((3,), i + 1.0), torch.full((3,), 2.0)).requires_grad_()
        hidden, loss = compiled(x)
        loss.backward(torch.ones_like(loss))
        found.append(seen(hidden.grad))
    return found


@program
def retained_and_let_go(compile: Compile) -> list[Any]:
    def function(x: Any) -> Any:
        hidden = x * 2
        hidden.retain_grad()
        return hidden, (hidden * hidden).sum()

    x = leaf()
    _, loss = compile(function)(x)
    del _
    loss.backward()
    return seen(x.grad)


@program
def retained_by_an_argument(compile: Compile) -> list[Any]:
    def function(x: Any, y: Any) -> Any:
        x.retain_grad()
        return (x * y).sin().sum()

    compiled, found = compile(function), []
    for i in range(3):
        x = leaf(i) * 2
        compiled(x, x if i == 2 else leaf()).backward()
        found.append(seen(x.grad))
    return found


@program
def retained_by_a_view_of_an_argument(compile: Compile) -> list[Any]:
    def function(x: Any, rows: Any) -> Any:
        rows.retain_grad()
        return (x.sum() * rows).sin().sum()

    x = leaf() * 2
    rows = x[:2]
    compile(function)(x, rows).backward()
    return seen(rows.grad)


@program
def retained_by_an_argument_that_is_a_wrapper(compile: Compile) -> list[Any]:
    def function(x: Any) -> Any:
        x.retain_grad()
        return x.sin().sum()

    x = TwoTensor(torch.full((3,), 2.0), torch.ones(3)).requires_grad_()
    y = x * 2
    loss = compile(function)(y)
    loss.backward(torch.ones_like(loss))
    return seen(y.grad)


@program
def retained_by_a_leaf(compile: Compile) -> list[Any]:
    def function(x: Any) -> Any:
        x.retain_grad()
        return x.sin().sum()

    x = leaf()
    compile(function)(x).backward()
    return [*seen(x.grad), x.retains_grad]


ON_REAL_TENSORS = {"after_several_calls", "twice_where_hooks_read_what_they_left", "after_others_have_changed_it"}
"""Hooks are traced once more on tensors of that moment, of which the trace has no symbols."""

UNLIKE_TORCH_COMPILE = {
    "from_some_results": "what Dynamo captures is one node of autograd's graph",
    "in_several_threads": "Dynamo compiles in one thread at a time",
    "after_what_hooks_only_read_has_changed": 'Dynamo keeps what the hook read first, with backend="eager", too',
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_hooks_do_at_each_backward_what_they_do_in_eager_mode(name: str, door: str) -> None:
    if door == "torch.compile" and name in UNLIKE_TORCH_COMPILE:
        pytest.skip(UNLIKE_TORCH_COMPILE[name])
    if door == "symbolic" and name in ON_REAL_TENSORS:
        with pytest.raises(BackwardOutcomeError, match="for what is there now they could not be traced"):
            PROGRAMS[name](DOORS[door])
        return
    torch._dynamo.reset()
    expected = PROGRAMS[name](lambda function: function)
    assert PROGRAMS[name](DOORS[door]) == expected


# -- what it costs, and what there is to read --------------------------------------------------------------------------


def test_numbers_that_hooks_count_up_compile_three_times() -> None:
    model = Totals()
    model.hook = lambda gradient: setattr(model, "count", model.count + 1)  # type: ignore[method-assign]
    function = aot_compile(model)
    for i in range(8):
        function(leaf(i)).sum().backward()
    assert model.count == 8 and len(function.recompiles) == 2


def test_a_gradient_of_the_last_step_compiles_twice() -> None:
    model = Activations()
    function = aot_compile(model)
    for i in range(5):
        function(leaf(i)).sum().backward()
    assert len(function.recompiles) == 1


def test_what_hooks_found_elsewhere_is_traced_once() -> None:
    model, runs = Activations(), []
    keep = model.keep
    model.keep = lambda gradient: (runs.append(1), keep(gradient))[0]  # type: ignore[assignment, func-returns-value]
    function = aot_compile(model)
    for i in range(4):
        out = function(leaf(i))
        out[0].backward(retain_graph=True)
        out[1].backward()
    assert len(runs) == 8  # an effect itself
    assert len(function.recompiles) <= 2


def test_it_is_explained_and_in_the_source() -> None:
    model = Activations()
    function = aot_compile(model)
    function(leaf()).sum().backward()
    assert "changed by backward: self" in function.explain()
    assert "__dict__['gradients'] = " in function.source


def test_what_no_hook_changes_costs_nothing() -> None:
    function = aot_compile(hooked(lambda gradient: gradient * 2))
    function(leaf()).sum().backward()
    assert "ctx.objects" not in function.source


class Batch:
    pass


def test_objects_live_as_long_as_the_graph() -> None:
    function = aot_compile(lambda x, batch: hooked(lambda gradient: setattr(batch, "gradient", gradient))(x))
    for _ in range(2):  # the first call traces
        batch = Batch()
        out = function(leaf(), batch)
        alive = weakref.ref(batch)
        del batch
        gc.collect()
        assert alive() is not None
        del out
        gc.collect()
    assert alive() is None


# -- what cannot be done is refused ------------------------------------------------------------------------------------


@pytest.mark.parametrize("double_backward", [False, True])
def test_gradients_that_can_be_differentiated_are_refused(double_backward: bool) -> None:
    model = Activations()
    function = aot_compile(model, double_backward=double_backward)
    x = leaf()
    function(x).sum().backward()  # others are not
    assert model.gradients is not None
    with pytest.raises(DoubleBackwardError, match=r"objects \(self\)"):
        torch.autograd.grad(function(x).sum(), x, create_graph=True)


def test_a_history_that_was_computed_in_backward_is_an_error_that_says_so() -> None:
    state: dict[str, Any] = {}

    def function(x: Any) -> Any:
        y = x * 2
        y.register_hook(lambda gradient: state.__setitem__("y", y))
        return y * y

    aot_compile(function)(leaf()).sum().backward()
    with pytest.raises(BackwardOutcomeError, match="no record of its history"):
        state["y"].sum().backward()


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("of", [lambda x: x, lambda x: x[:2]])
def test_an_argument_that_keeps_its_gradient_and_is_written_is_refused(early: bool, of: Any) -> None:
    def function(x: Any, y: Any, kept: Any) -> Any:
        if early:
            kept.retain_grad()
        x.mul_(y)
        if not early:
            kept.retain_grad()
        return x.sin().sum()

    x = leaf() * 2
    with pytest.raises(MutationError, match="keep its gradient"):
        aot_compile(function)(x, leaf(), of(x))


@pytest.mark.parametrize(
    "put",
    [
        lambda x, act, gradient: torch.ones(3).requires_grad_(),
        lambda x, act, gradient: x[1:],
        lambda x, act, gradient: x.detach(),
        lambda x, act, gradient: act[1:],
        lambda x, act, gradient: [act.view(3, 1)],
    ],
)
def test_what_is_no_new_tensor_is_refused(put: Any) -> None:
    state: dict[str, Any] = {}

    def function(x: Any) -> Any:
        y = x * 2
        state["act"] = y.detach()
        y.register_hook(lambda gradient: state.__setitem__("put", put(x.detach(), state["act"], gradient)))
        return y * y

    with pytest.raises(MutationError, match=r"state\['put'\].*while gradients are computed"):
        aot_compile(function)(leaf())
    assert not state


def test_a_joint_graph_of_values_alone_refuses_it() -> None:
    model = Activations()
    joint = trace_joint(model, leaf())
    assert [given.kind for given in joint.outputs].count("object") == 1
    compiled = compile_joint(joint)
    with pytest.raises(JointGraphError, match="self"):
        compiled(*model.parameters(), leaf())
    compiled.bind(model)(leaf()).sum().backward()
    assert model.gradients is not None


def test_a_file_has_it(tmp_path: Any) -> None:
    model = Activations()
    function = aot_compile(model)
    function(leaf()).sum().backward()
    expected, model.gradients = seen(model.gradients), None
    function.save(tmp_path / "file")
    loaded = load(tmp_path / "file", model, trust=True)
    out = loaded(leaf())
    out.sum().backward(retain_graph=True)
    assert seen(model.gradients) == expected
    model.gradients = 3
    with pytest.raises(BackwardOutcomeError, match="loaded from a file"):
        out.sum().backward()
