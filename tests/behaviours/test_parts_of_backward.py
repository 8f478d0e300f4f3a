"""Results that share nothing go backward one after the other, as in eager mode: see Note [Parts of backward]."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from functorch.compile import min_cut_rematerialization_partition
from torch import nn
from torch.utils.checkpoint import checkpoint

from subclass_aot import TwoTensor, aot_compile, load_compiled, trace_joint
from subclass_aot.testing import difference

Function = Callable[..., Any]
DOORS: dict[str, Callable[[Function], Function]] = {
    "eager": aot_compile,
    "symbolic": functools.partial(aot_compile, dynamic=True),
    "torch.compile": functools.partial(torch.compile, backend="subclass_aot", dynamic=False),
}


class Case(NamedTuple):
    """A program, what makes its arguments, and how many parts its backward has; 0 for one that is not split."""

    program: Function
    arguments: Sequence[Callable[[], torch.Tensor]]
    parts: int


CASES: dict[str, Case] = {}


def case(parts: int, *arguments: Callable[[], torch.Tensor]) -> Callable[[Function], Function]:
    def add(program: Function) -> Function:
        CASES[program.__name__] = Case(program, arguments, parts)
        return program

    return add


def leaf() -> torch.Tensor:
    return torch.rand(3, 4, dtype=torch.float64).add_(0.5).requires_grad_()


def frozen() -> torch.Tensor:
    return leaf().detach()


def computed() -> torch.Tensor:
    return leaf() * 1


def two() -> Any:
    return TwoTensor(frozen(), frozen()).requires_grad_()


def nested() -> Any:
    return TwoTensor(TwoTensor(frozen(), frozen()), TwoTensor(frozen(), frozen())).requires_grad_()


class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        return -gradient


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        (x,) = ctx.saved_tensors
        return 2 * x * gradient


@case(2, leaf, leaf)
def of_two_leaves(a: Any, b: Any) -> Any:
    return a * 2, b * 3


@case(2, leaf, leaf)
def of_shared_leaves(a: Any, b: Any) -> Any:
    return a * b, b.exp()


@case(3, leaf, leaf)
def three(a: Any, b: Any) -> Any:
    return a.sin(), b.sin(), a + b


@case(2, leaf, leaf)
def two_of_three_share(a: Any, b: Any) -> Any:
    h = a * a
    return h.sin(), b.exp(), h.cos()


@case(0, leaf, leaf)
def they_share_what_was_saved(a: Any, b: Any) -> Any:
    h = a * b
    return h * 2, h.sin()


@case(2, leaf, leaf)
def they_share_what_saves_nothing(a: Any, b: Any) -> Any:
    h = (a + b).t().reshape(-1)
    return h.exp(), h.sin()


@case(2, two, two)
def wrappers(a: Any, b: Any) -> Any:
    return a * 2, b.exp()


@case(3, two, leaf)
def wrappers_and_dense(a: Any, b: Any) -> Any:
    return a * b.detach(), b.exp(), a.sin()


@case(2, nested, leaf)
def nested_wrappers(a: Any, b: Any) -> Any:
    return a * b.detach(), b.exp()


@case(2, computed, computed)
def of_computed_inputs(a: Any, b: Any) -> Any:
    return a * b, a.exp()


@case(2, computed, leaf)
def an_input_is_written(a: Any, b: Any) -> Any:
    a.mul_(2)
    return b.exp(), a.sin()


@case(2, computed, computed)
def both_inputs_are_written(a: Any, b: Any) -> Any:
    a.mul_(2)
    b.exp_()


@case(2, frozen, leaf)
def an_input_begins_to_have_a_history(a: Any, b: Any) -> Any:
    a.mul_(b)
    return b.exp()


@case(2, frozen, leaf)
def the_graph_writes(a: Any, b: Any) -> Any:
    a.mul_(2)
    return b.exp(), b * a


@case(2, computed, computed)
def an_input_is_transposed(a: Any, b: Any) -> Any:
    a.t_()
    return a.sin(), b * 2


@case(2, leaf, leaf)
def views(a: Any, b: Any) -> Any:
    return a.t(), b.view(-1), a.sin().t(), b * 2


@case(2, leaf, leaf)
def views_of_what_is_computed(a: Any, b: Any) -> Any:
    return *(a.exp()).chunk(2), (b * b).t()


@case(3, leaf, leaf)
def functions(a: Any, b: Any) -> Any:
    return Reverse.apply(a), Square.apply(b), Square.apply(a)


@case(2, leaf, leaf)
def one_reads_the_result_of_another(a: Any, b: Any) -> Any:
    y = a.exp()
    return y, y.detach() * b


@case(2, leaf, leaf)
def each_reads_the_result_of_the_other(a: Any, b: Any) -> Any:
    y, z = a.exp(), b.exp()
    return y * z.detach(), z * y.detach(), y, z


@case(3, two, two)
def wrappers_read_results_of_each_other(a: Any, b: Any) -> Any:
    y, z = a.exp(), b.exp()
    return y, z * y.detach(), z.detach() * a


@case(2, leaf, leaf)
def a_hook_joins(a: Any, b: Any) -> Any:
    h = a + b
    h.register_hook(lambda gradient: gradient.clamp(max=1.0))
    return h * 2, h * 3, b.exp()


@case(2, leaf, leaf)
def a_hook_of_one(a: Any, b: Any) -> Any:
    h = a * b
    h.register_hook(lambda gradient: gradient * 2)
    return h * 2, b.exp()


@case(0, leaf, leaf)
def a_gradient_is_retained(a: Any, b: Any) -> Any:
    h = a * 2
    h.retain_grad()
    return h, b * 2


@case(2, leaf, leaf)
def checkpoints(a: Any, b: Any) -> Any:
    once = functools.partial(checkpoint, use_reentrant=False)
    return once(lambda x: F.dropout(x.sin().exp()), a), once(lambda x: x.sin(), b)


@case(2, leaf, leaf)
def one_checkpoint_of_both(a: Any, b: Any) -> Any:
    return checkpoint(lambda x, y: (x.sin().exp(), y.exp().sin()), a, b, use_reentrant=False)


@case(2, leaf, leaf)
def draws(a: Any, b: Any) -> Any:
    return F.dropout(a) * 2, F.dropout(b)


@case(2, leaf, leaf)
def a_leaf_is_made(a: Any, b: Any) -> Any:
    v = (a.detach() * 2).requires_grad_()
    return v, v * b, a.exp()


@case(2, leaf, leaf)
def results_are_written(a: Any, b: Any) -> Any:
    y, z = a * 2, b * 2
    y.add_(1)
    z.mul_(3)
    return y, z


@case(2, leaf, leaf)
def a_sparse_gradient(a: Any, b: Any) -> Any:
    return F.embedding(torch.tensor([0, 1, 1]), a, sparse=True), b.sum() * b[0]


@case(2, leaf, leaf)
def beside_other_results(a: Any, b: Any) -> Any:
    y = a.exp()
    return {"loss": y, "again": [y, b], "other": (b.exp(), 3, a.detach() + 1)}


def tensors(result: Any) -> list[torch.Tensor]:
    """Those in a result that autograd goes back from."""
    if isinstance(result, dict):
        result = list(result.values())
    if isinstance(result, list | tuple):
        return [x for part in result for x in tensors(part)]
    return [result] if isinstance(result, torch.Tensor) and result.requires_grad and not result.is_leaf else []


def each(results: list[torch.Tensor], leaves: list[torch.Tensor], retain: bool = False) -> list[Any]:
    seen: list[Any] = []
    for factor, result in enumerate(results, 1):
        result.backward(torch.full_like(result.detach(), factor), retain_graph=retain)
        seen.append([None if x.grad is None else x.grad.clone() for x in leaves])
    return seen


def backwards(results: list[torch.Tensor], leaves: list[torch.Tensor]) -> list[Any]:
    return each(results[::-1], leaves)


def retained(results: list[torch.Tensor], leaves: list[torch.Tensor]) -> list[Any]:
    return [*each(results, leaves, retain=True), *together(results, leaves)]


def together(results: list[torch.Tensor], leaves: list[torch.Tensor]) -> list[Any]:
    torch.autograd.backward(results, [torch.full_like(x.detach(), i) for i, x in enumerate(results, 1)])
    return [x.grad for x in leaves]


def gradients(results: list[torch.Tensor], leaves: list[torch.Tensor]) -> list[Any]:
    given = [(x, torch.full_like(x.detach(), i)) for i, x in enumerate(results, 1)]
    return [torch.autograd.grad(x, leaves, like, allow_unused=True, retain_graph=True) for x, like in given]


def written(results: list[torch.Tensor], leaves: list[torch.Tensor]) -> list[Any]:
    """The first result is written, and the others go backward."""
    with torch.no_grad():
        results[0].mul_(2)
    return each(results[1:], leaves)


ORDERS = (each, backwards, retained, together, gradients, written)


def outcome(function: Function, case: Case, order: Function, calls: int = 2) -> list[Any]:
    """What two calls give, each with a backward after it."""
    torch.manual_seed(5)
    seen: list[Any] = []
    made = [leaf() if make is computed else make() for make in case.arguments]
    leaves = [x for x in made if x.requires_grad]
    for _ in range(calls):
        given = [x if make in (leaf, two, nested) else x * 1 for make, x in zip(case.arguments, made, strict=True)]
        result = function(*given)
        ends = [*tensors(result), *tensors([x for x in given if x.grad_fn is not None])]
        seen.append([x.detach().clone() for x in ends])
        try:
            seen += order(ends, leaves)
        except RuntimeError as error:
            seen.append("a second time" in str(error) or "inplace" in str(error) or raise_(error))
    return seen


def raise_(error: BaseException) -> Any:
    raise error


def parts_of(compiled: Any) -> int:
    return len(compiled._specializations.latest.signature.parts)


def same(expected: Any, got: Any) -> bool:
    if isinstance(expected, list | tuple) and isinstance(got, list | tuple):
        return len(expected) == len(got) and all(map(same, expected, got))
    if isinstance(expected, torch.Tensor) and expected.is_sparse and isinstance(got, torch.Tensor):
        return same(expected.to_dense(), got.to_dense())
    return not difference(expected, got, strides=False)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", CASES)
def test_as_in_eager_mode(name: str, order: Function) -> None:
    case = CASES[name]
    compiled = aot_compile(case.program)
    assert same(outcome(case.program, case, order), outcome(compiled, case, order))
    assert parts_of(compiled) == case.parts


@pytest.mark.parametrize("order", [each, written])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("door", ["symbolic", "torch.compile"])
@pytest.mark.usefixtures("fresh_dynamo")
def test_by_other_doors(door: str, name: str, order: Function) -> None:
    case = CASES[name]
    assert same(outcome(case.program, case, order), outcome(DOORS[door](case.program), case, order))


class Networks(nn.Module):
    """A generator and a discriminator. The losses share parameters, and nothing else."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = nn.Sequential(nn.Linear(2, 6), nn.ReLU(), nn.Linear(6, 4))
        self.discriminator = nn.Sequential(nn.Linear(4, 6), nn.LeakyReLU(), nn.Linear(6, 1))

    def forward(self, noise: Any, real: Any) -> tuple[Any, Any]:
        made = self.generator(noise)
        ones = F.softplus(-self.discriminator(real)).mean()
        zeros = F.softplus(self.discriminator(made.detach())).mean()
        return ones + zeros, F.softplus(-self.discriminator(made)).mean()


def trained(compile: Function, wrap: Function, autocast: bool = False, steps: int = 3) -> list[torch.Tensor]:
    """Steps of both networks, with a call and two backwards in each: the losses and the parameters."""
    torch.manual_seed(0)
    networks = Networks()
    for module in networks.modules():
        if isinstance(module, nn.Linear):
            module.weight, module.bias = (nn.Parameter(wrap(x.detach())) for x in (module.weight, module.bias))
    compiled, seen = compile(networks), []
    optimizers = [torch.optim.SGD(x.parameters(), 0.1) for x in (networks.discriminator, networks.generator)]
    for size in (5, 5, 7)[:steps]:
        with torch.autocast("cpu", enabled=autocast):
            losses = compiled(torch.rand(size, 2), torch.rand(size, 4))
        for optimizer, loss in zip(optimizers, losses, strict=True):
            networks.zero_grad()
            loss.backward()
            seen.append(loss.detach())
            seen += [x.grad for x in optimizer.param_groups[0]["params"]]
        for optimizer in optimizers:
            optimizer.step()
    return [*seen, *(x.detach() for x in networks.parameters())]


@pytest.mark.parametrize("wrap", [lambda x: x, lambda x: TwoTensor(x, x * 2)], ids=["dense", "wrapped"])
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.usefixtures("fresh_dynamo")
def test_two_losses_of_adversarial_networks(door: str, wrap: Function) -> None:
    expected, got = trained(lambda x: x, wrap), trained(DOORS[door], wrap)
    for one, other in zip(expected, got, strict=True):
        assert not difference(one, other, strides=False, rtol=1e-4)


def test_casts_of_weights_that_autocast_keeps_are_no_bond() -> None:
    expected, got = trained(lambda x: x, lambda x: x, autocast=True), trained(aot_compile, lambda x: x, autocast=True)
    for one, other in zip(expected, got, strict=True):
        assert not difference(one, other, strides=False, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("options", [{"fw_compiler": "inductor"}, {"fw_compiler": "inductor", "dynamic": True}])
@pytest.mark.long
def test_by_inductor(options: dict[str, Any]) -> None:
    case = CASES["two_of_three_share"]
    for order in (each, together):
        assert same(outcome(case.program, case, order), outcome(aot_compile(case.program, **options), case, order))


@pytest.mark.parametrize("name", ["two_of_three_share", "one_reads_the_result_of_another", "wrappers_and_dense"])
def test_another_partitioner(name: str) -> None:
    case = CASES[name]
    compiled = aot_compile(case.program, partition_fn=min_cut_rematerialization_partition)
    assert same(outcome(case.program, case, each), outcome(compiled, case, each)) and parts_of(compiled) == case.parts


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", ["two_of_three_share", "wrappers_and_dense", "the_graph_writes"])
def test_from_a_file(name: str, dynamic: bool, tmp_path: Path) -> None:
    case = CASES[name]
    compiled = aot_compile(case.program, dynamic=dynamic)
    expected = outcome(compiled, case, each)
    compiled.save(tmp_path / "compiled")
    loaded = load_compiled(tmp_path / "compiled", case.program, trust=True)
    assert same(expected, outcome(loaded, case, each)) and parts_of(loaded) == case.parts


def test_each_part_releases_what_it_has_saved() -> None:
    def program(a: Any, b: Any) -> Any:
        return a.sin().exp().sum(), b.sin().exp().sum()

    noted: list[weakref.ref[torch.Tensor]] = []

    def note(x: torch.Tensor) -> torch.Tensor:
        noted.append(weakref.ref(x))
        return x

    a, b = leaf(), leaf()
    compiled = aot_compile(program)
    compiled(a, b)
    with torch.autograd.graph.saved_tensors_hooks(note, lambda x: x):
        one, other = compiled(a, b)
    alive = [x for x in noted if x() is not a and x() is not b]
    assert len(alive) == len([x for x in alive if x() is not None]) >= 2
    one.backward()
    left = [x for x in alive if x() is not None]
    assert 0 < len(left) < len(alive)
    other.backward()
    assert not [x for x in alive if x() is not None]


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_a_checkpoint_around_a_call(use_reentrant: bool) -> None:
    def program(a: Any, b: Any) -> Any:
        return (a * b).sin(), b.exp().sin()

    seen = []
    for function in (program, compiled := aot_compile(program)):
        torch.manual_seed(3)
        a, b = leaf(), leaf()
        once = functools.partial(checkpoint, function, a, b, use_reentrant=use_reentrant)
        torch.autograd.backward([x.sum() for x in once()])
        seen.append([a.grad, b.grad])
        if not use_reentrant:
            for result in once():
                result.sum().backward()
                seen[-1] += [a.grad.clone(), b.grad.clone()]
    assert same(*seen) and parts_of(compiled) == 2 and "in 2 parts" in compiled.explain()


def test_a_gradient_of_another_class() -> None:
    """Each part has backwards of its own for these."""

    def program(a: Any, b: Any) -> Any:
        return a.exp(), (a * b).sin()

    seen = []
    for function in (program, aot_compile(program)):
        torch.manual_seed(1)
        a, b = leaf(), leaf()
        one, other = function(a, b)
        for gradient in (two().detach(), frozen(), nested().detach()):
            seen.append(torch.autograd.grad(other, (a, b), gradient, retain_graph=True))
            seen.append(torch.autograd.grad(one, a, gradient, retain_graph=True))
    assert same(seen[:6], seen[6:])


def test_what_is_one_part() -> None:
    """Second derivatives; more parts than a call should pay for; joint graphs, whose gradients have names."""

    def program(a: Any, b: Any) -> Any:
        return a.exp(), b.exp()

    compiled = aot_compile(program, double_backward=True)
    a, b = leaf(), leaf()
    (gradient,) = torch.autograd.grad(compiled(a, b)[0].sum(), a, create_graph=True)
    assert parts_of(compiled) == 0 and not difference(torch.autograd.grad(gradient.sum(), a)[0], a.detach().exp())
    assert not trace_joint(program, a, b).signature.parts
    for count in (16, 17):
        many = aot_compile(lambda xs: [x * 2 for x in xs])
        many([leaf() for _ in range(count)])
        assert parts_of(many) == (16 if count == 16 else 0)


@pytest.mark.parametrize("writes", [False, True])
def test_effects_of_backward_join(writes: bool) -> None:
    """Which part would run them is for nobody to say: a write into a buffer, and an object that a hook changes."""

    class Noting(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, into: Any) -> Any:
            ctx.into = into
            return x * 2

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            if writes:
                ctx.into[0].add_(1)
            else:
                ctx.into.append(gradient.sum())
            return gradient * 2, None

    def program(a: Any, b: Any, into: list[Any]) -> Any:
        return Noting.apply(a, into), b.exp()

    seen = []
    for function in (program, compiled := aot_compile(program)):
        torch.manual_seed(2)
        a, b, into = leaf(), leaf(), [torch.zeros(())]
        torch.autograd.backward([x.sum() for x in function(a, b, into)])
        seen.append([a.grad, b.grad, *into])
    assert same(*seen) and parts_of(compiled) == 0


def test_other_programs_are_as_they_were() -> None:
    def program(a: Any, b: Any) -> Any:
        loss = (a * b).sum()
        return loss, a.detach() + 1, b

    compiled = aot_compile(program)
    compiled(leaf(), leaf())[0].backward()
    assert parts_of(compiled) == 0
    assert compiled.source.count("def forward(") == 1 and "non_differentiable" in compiled.source
