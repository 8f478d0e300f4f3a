"""Programs that read values compile whole: every call does what eager mode does, whatever it sees."""

from __future__ import annotations

import copy
import functools
import gc
import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import optree
import pytest
import torch
from torch import nn

from subclass_aot import Int8Weight, TwoTensor, aot_compile, trace_joint
from subclass_aot.errors import DataDependentError, SubclassAotError
from subclass_aot.testing import difference as difference_of_tensors
from tests.fuzz import custom_operators

Call = tuple[Any, ...]


def difference(expected: Any, got: Any) -> str:
    """How two structures of tensors and Python values differ."""
    (a, structure), (b, other) = optree.tree_flatten(expected), optree.tree_flatten(got)
    if structure != other:
        return f"{structure} expected, {other} got"
    return next(filter(None, map(difference_of_tensors, a, b)), "")


def outcome(fn: Callable[..., Any], call: Call, gradients: bool) -> Any:
    """What a call gives, writes, raises, draws, and which gradients it has."""
    torch.manual_seed(0)
    call = tuple(x.clone() if isinstance(x, torch.Tensor) else x for x in call)
    inputs = [x.requires_grad_() for x in call if gradients and x.is_floating_point()]
    try:
        result = fn(*(x * 1 if gradients and x.requires_grad else x for x in call))
    except (ValueError, IndexError) as error:
        return type(error), str(error), call, torch.get_rng_state()
    given = []
    if gradients:
        ends = [x for x in (result if isinstance(result, tuple | list) else [result]) if isinstance(x, torch.Tensor)]
        given = list(torch.autograd.grad([x.sum() for x in ends if x.requires_grad], inputs, allow_unused=True))
    return result, given, call, torch.get_rng_state()


def agree(fn: Callable[..., Any], calls: Sequence[Call], gradients: bool = False, **options: Any) -> Any:
    compiled = aot_compile(fn, **options)
    for call in calls:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", "(.|\n)*the function itself ran")
            wrong = difference(outcome(fn, call, gradients), outcome(compiled, call, gradients))
        assert not wrong, (wrong, call)
    return compiled


def branch(x: Any) -> Any:
    return x * 2 if x.sum() > 0 else x - 1


def refuses_what_is_not_finite(x: Any) -> Any:
    if not x.isfinite().all():
        raise ValueError(f"not finite: {x.tolist()}")
    return x.sin() * 2


def cut(x: Any, lengths: Any) -> Any:
    return x[:, : lengths.max().item()].sum(1)


def writes(x: Any, y: Any) -> Any:
    x.add_(1)
    if x.sum() > 0:
        y.mul_(2)
    else:
        y.zero_()
        if y.sum() == 0:
            x.neg_()
    return x + y


def draws(x: Any) -> Any:
    first = torch.rand(3)
    second = torch.rand(3) if x.sum() + first.sum() > 0 else torch.randn(3) * 2
    return first + second if second.max() > 0.5 else x


def looks_again_and_again(x: Any) -> Any:
    while x.abs().max() < 10:
        x = x * 3
    return x


def scales(x: Any) -> Any:
    return x * (x.detach().max().item() + 1)


def returns_a_number(x: Any) -> Any:
    return x * 2, x.sum().item()


def compares_a_number(x: Any) -> Any:
    return x * 2 if x.sum().item() > 0.5 else x - 1


def selects(x: Any) -> Any:
    return x[x > 0].exp().sum()


def returns_a_selection(x: Any) -> Any:
    return x[x > 0]


def reads_a_list(x: Any, sizes: Any) -> Any:
    return [part.sum() for part in x.split(sizes.tolist())]


def looks_where_it_may_fail(table: Any, index: Any) -> Any:
    return table[index] if index.max() < table.shape[0] else table.sum(0, keepdim=True)


def compares_tensors(x: Any, y: Any) -> Any:
    if torch.equal(x, y):
        return x
    return y * 2 if torch.allclose(x, y, atol=1.5) else y * 3


def validates(x: Any, scale: Any) -> Any:
    return torch.distributions.Normal(x, scale, validate_args=True).log_prob(x + 1)


def looks_in_a_gradient(x: Any) -> Any:
    return torch.func.grad(lambda t: (t.sin() if t.sum() > 0 else t.cos()).sum())(x)


def counts(x: Any) -> Any:
    return torch.nonzero(x > 0).sum(), torch.unique(x.sign())


def connects(log_probs: Any, lengths: Any) -> Any:
    targets = torch.tensor([[1, 2], [2, 1]])
    return nn.functional.ctc_loss(log_probs.log_softmax(-1), targets, lengths, torch.tensor([2, 1]))


def makes_text(x: Any) -> Any:
    n = x.sum().item()
    return {f"{n:.1f}": x * 2, str(n): x}


def broadcasts_a_selection(x: Any) -> Any:
    return torch.ones(2, 3) * x[x > 0]


def writes_after_a_selection(x: Any) -> Any:
    selected = x[x > 0]
    x.mul_(2)
    return x, torch.ones(2, 3) * selected


def writes_after_a_selection_for_nothing(x: Any) -> Any:
    x[x > 0]
    return x.mul_(2)


def unbinds_a_slice(x: Any) -> Any:
    rows = x[(x > 1).sum().item() % 2 :].unbind()
    return rows[-1] * 2, len(rows), rows[0].shape


def broadcasts_by_a_formula(x: Any) -> Any:
    rest = x[(x > 1).sum().item() % 2 :]
    return x * rest


def broadcasts_where_it_is_equal(x: Any) -> Any:
    rest = x[(x > 1).sum().item() % 2 :]
    return x if torch.equal(x, rest) else x + rest


def turns_a_slice(x: Any) -> Any:
    rest = x[(x > 1).sum().item() % 2 :]
    rest.t_()
    return rest


def turns_a_selection(x: Any) -> Any:
    rest = torch.nonzero(x)
    return rest.t_().t_(), rest.sum(), rest


def writes_a_slice_by_a_custom_operator(x: Any) -> Any:
    custom_operators.scale_(x[(x > 1).sum().item() % 2 :], 2.0)
    return x


def attends_to_a_selection(x: Any) -> Any:
    rest = x[x > 1][None]
    return nn.functional.scaled_dot_product_attention(rest, rest, rest)


def looks_at_a_pair(pair: Any, x: Any) -> Any:
    return x * int((pair > 1).sum()), x.sin() if (pair > 1).any() else x


def broadcasts_by_a_number(n: Any) -> Any:
    return torch.ones(2, 3) * torch.full((n.item(),), 2.0)


def ones(n: float = 1) -> torch.Tensor:
    return torch.full((3,), float(n))


def ints(*values: int) -> torch.Tensor:
    return torch.tensor(values)


table = torch.arange(12.0).view(4, 3)
CALLS: dict[Callable[..., Any], list[Call]] = {
    branch: [(ones(),), (ones(-1),), (ones(2),), (ones(-2),)],
    refuses_what_is_not_finite: [(ones(),), (ones(float("nan")),), (ones(3),), (ones(float("inf")),)],
    cut: [(torch.rand(2, 6), ints(*n)) for n in [(2, 3), (1, 3), (4, 1), (5, 2), (6, 1)]],
    writes: [(ones(), ones()), (ones(-3), ones()), (ones(2), ones()), (ones(-1), ones())],
    draws: [(ones(),), (ones(-3),), (ones(),), (ones(-4),)],
    looks_again_and_again: [(ones(),), (ones(4),), (ones(20),), (ones(0.3),), (ones(),)],
    scales: [(ones(),), (ones(2),), (ones(-4),), (ones(1.5),)],
    returns_a_number: [(ones(n),) for n in range(12)],
    compares_a_number: [(ones(n),) for n in (1, 2, -1, 0.1, 5, -3)],
    selects: [(torch.arange(-3.0, n),) for n in (1, 2, 3, -1)],
    returns_a_selection: [(torch.arange(-3.0, n),) for n in (1, 2, 3, -1)],
    reads_a_list: [(torch.arange(6.0), ints(*n)) for n in [(2, 4), (3, 3), (1, 5), (5, 1)]],
    looks_where_it_may_fail: [(table, ints(1, 3)), (table, ints(1, 9)), (table, ints(0, 0))],
    compares_tensors: [(ones(), ones()), (ones(), ones(2)), (ones(), ones(9)), (ones(), ones())],
    validates: [(ones(), ones()), (ones(), ones(2)), (ones(), ones(-1)), (ones(), ones())],
    looks_in_a_gradient: [(ones(),), (ones(-1),), (ones(2),)],
    counts: [(torch.arange(-3.0, n),) for n in (1, 2, 3, -1)],
    connects: [(torch.rand(5, 2, 4), ints(*n)) for n in [(5, 4), (5, 5), (5, 4)]],
    broadcasts_a_selection: [(torch.tensor(x),) for x in ([1.0, 2, 3], [1.0, -2, -3], [2.0, 2, 3], [3.0, -1, -1])],
    writes_after_a_selection: [(torch.tensor(x),) for x in ([1.0, 2, 3], [1.0, -2, -3], [2.0, 2, 3], [3.0, -1, -1])],
    writes_after_a_selection_for_nothing: [(torch.tensor(x),) for x in ([1.0, 2, 3], [1.0, -2, -3], [-2.0, -2, -3])],
    unbinds_a_slice: [(torch.tensor([x, [0.0, 0]]),) for x in ([2.0, 2], [2.0, 0], [0.0, 0], [0, 3.0])],
    broadcasts_by_a_formula: [(torch.tensor([x, [0.0, 0]]),) for x in ([2.0, 2], [2.0, 0], [0.0, 0], [0, 3.0])],
    broadcasts_where_it_is_equal: [(torch.tensor([x, [0.0, 0]]),) for x in ([2.0, 2], [2.0, 0], [0.0, 0], [0, 3.0])],
    turns_a_slice: [(torch.tensor([x, [0.0, 0]]),) for x in ([2.0, 2], [2.0, 0], [0.0, 0], [0, 3.0])],
    turns_a_selection: [(torch.tensor([x, [0.0, 0]]),) for x in ([2.0, 2], [2.0, 0], [0.0, 0], [0, 3.0])],
    writes_a_slice_by_a_custom_operator: [
        (torch.tensor([x, [0.0, 0]]).t(),) for x in ([2.0, 2], [2.0, 0], [0.0, 0], [0, 3.0])
    ],
    attends_to_a_selection: [(torch.tensor(x),) for x in ([2.0, 2], [2.0, 0], [0.0, 0], [0, 3.0])],
    looks_at_a_pair: [
        (TwoTensor(torch.tensor(a), torch.tensor(b)), ones()) for a, b in ((2.0, 2.0), (3.0, 2.0), (0.0, 0.5), (0.0, 0))
    ],
    broadcasts_by_a_number: [(torch.tensor(n),) for n in (3, 1, 3, 1)],
    makes_text: [(ones(n),) for n in (1, 2, 3)],
}


OPTIONS: list[dict[str, Any]] = [{}, {"dynamic": True}, {"fw_compiler": "inductor"}]
# Inductor has random numbers of its own (see `test_no_number_is_drawn_twice`).
CASES = [(fn, options) for fn in CALLS for options in OPTIONS if fn is not draws or "fw_compiler" not in options]


@pytest.mark.parametrize("dynamic", [None, True])
def test_a_size_by_data_that_must_be_known_is_refused_by_name(dynamic: bool | None) -> None:
    with pytest.raises(DataDependentError, match=r"asks for values.*\n  Your line: .*test_looks.py"):
        aot_compile(turns_a_slice, dynamic=dynamic, values="refuse")(torch.ones(2, 2))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("fn", "options"), CASES, ids=lambda x: getattr(x, "__name__", str(x)))
def test_as_in_eager_mode(fn: Callable[..., Any], options: dict[str, Any]) -> None:
    agree(fn, CALLS[fn], **options)


GRADIENTS = [
    branch, scales, writes, selects, returns_a_selection, cut, compares_a_number, looks_again_and_again,
    broadcasts_a_selection, broadcasts_by_a_formula, broadcasts_where_it_is_equal, attends_to_a_selection,
]  # fmt: skip


@pytest.mark.parametrize("partition", ["default", "min_cut"])
@pytest.mark.parametrize("fn", GRADIENTS)
def test_gradients(fn: Callable[..., Any], partition: str) -> None:
    from functorch.compile import min_cut_rematerialization_partition

    partition_fn = None if partition == "default" else min_cut_rematerialization_partition
    agree(fn, CALLS[fn], gradients=True, partition_fn=partition_fn)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("fn", [branch, scales, writes, compares_a_number, selects])
def test_gradients_with_inductor(fn: Callable[..., Any]) -> None:
    agree(fn, CALLS[fn], gradients=True, fw_compiler="inductor")


def test_a_value_is_compiled_for_once() -> None:
    compiled = agree(branch, CALLS[branch] * 3)
    assert len(compiled.recompiles) == 1
    compiled = agree(returns_a_number, CALLS[returns_a_number])
    assert len(compiled.recompiles) == 1  # seen to differ, it is a symbol


def test_nothing_is_written_before_the_values_are_compared() -> None:
    """The graph that runs first expects other values, and each write happens once."""
    compiled = aot_compile(writes)
    for n in (1.0, -3.0, 2.0, -9.0):
        x, y = ones(n), ones(5)
        versions = x._version, y._version
        assert not difference(writes(x.clone(), y.clone()), compiled(x, y))
        assert (x._version, y._version) > versions


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("compiler", ["eager", "inductor"])
def test_no_number_is_drawn_twice(compiler: str) -> None:
    def program(x: Any) -> Any:
        noise = torch.rand(3)
        return noise if x.sum() + noise.sum() > 0 else noise * 2

    compiled = aot_compile(program, fw_compiler=compiler)
    compiled(ones()), compiled(ones(-3))
    states = []
    for n in (1.0, -3.0):
        torch.manual_seed(0)
        first = compiled(ones(n))
        states.append(torch.get_rng_state())
        torch.manual_seed(0)
        assert torch.equal(compiled(ones(n)), first)
    assert torch.equal(*states)


class Counting(nn.Module):
    """Looks at a buffer that it writes, and keeps what it saw."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.register_buffer("steps", torch.zeros(()))
        self.seen: list[float] = []

    def forward(self, x: Any) -> Any:
        self.steps += 1
        y = self.layer(x)
        if self.steps > 2:
            self.seen.append(y.mean().item())
            y = y * 2
        return y


def test_modules() -> None:
    torch.manual_seed(0)
    model = Counting()
    twin = copy.deepcopy(model)
    compiled = aot_compile(twin)
    for _ in range(6):
        x = torch.randn(2, 3)
        for a, b in ((model, model), (twin, compiled)):
            a.zero_grad()
            b(x).sum().backward()
        assert model.steps == twin.steps and not difference(model.seen, twin.seen)
        assert not difference([p.grad for p in model.parameters()], [p.grad for p in twin.parameters()])


@pytest.mark.parametrize("kind", [Int8Weight.from_float, lambda x: TwoTensor(x, x * 2)], ids=["int8", "two"])
def test_wrappers(kind: Any) -> None:
    def program(w: Any, x: Any) -> Any:
        y = x @ w
        inner = y.a if isinstance(y, TwoTensor) else y
        return (y * 2, w) if inner.sum() > 0 else (y - 1, w)

    agree(program, [(torch.eye(3),) * 2, (torch.eye(3), -torch.eye(3)), (torch.eye(3),) * 2])
    weight, compiled = kind(torch.eye(3)), aot_compile(program)
    for x in (torch.eye(3), -torch.eye(3), torch.eye(3) * 2):
        assert not difference(program(weight, x), compiled(weight, x))
    assert len(compiled.recompiles) == 1


def test_sizes_that_differ() -> None:
    compiled = agree(branch, [(torch.full((n,), float(sign)),) for n in range(2, 9) for sign in (1, -1)])
    assert len(compiled.recompiles) == 3  # two values, each with sizes of its own and with symbols


def test_inputs_that_share_memory() -> None:
    def program(x: Any, row: Any) -> Any:
        x.mul_(2)
        if row.sum() > 3:
            row.add_(1)
        return x.t()

    compiled = aot_compile(program)
    for n in (1.0, 0.1, 2.0):
        a, b = torch.full((3, 3), n), torch.full((3, 3), n)
        assert not difference((program(a, a[0]), a), (compiled(b, b[0]), b))


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad, lambda: torch.autocast("cpu", torch.bfloat16)])
def test_modes(mode: Any) -> None:
    def program(x: Any) -> Any:
        return (x @ x) * 2 if (x @ x).sum() > 0 else x @ x + 1

    with mode():
        agree(program, [(torch.eye(3),), (torch.zeros(3, 3),), (torch.eye(3) * 2,)])


def test_nothing_is_kept_of_a_call_that_found_another_value() -> None:
    compiled = agree(branch, CALLS[branch])
    gc.collect()
    gc.disable()
    try:
        for n in (1.0, -1.0, 2.0, -2.0):
            x = torch.full((3,), n)
            gone = weakref.ref(x)
            compiled(x)
            del x
            assert gone() is None
    finally:
        gc.enable()


TOO_MANY: dict[str, Any] = {
    "a number": lambda x: x * int(x.sum()),
    "a branch": lambda x: x * [2, 3, 5, 7, 11, 13, 17][int(x.sum()) % 7],
    "a loop": lambda x: functools.reduce(lambda y, _: y.roll(1) + 1, range(int(x.sum())), x),
    "a key": lambda x: x * {n: n + 1 for n in range(99)}[int(x.sum())],
    "a write": lambda x: (x.add_(int(x.sum())), x * 2)[1],
}


@pytest.mark.parametrize("program", TOO_MANY.values(), ids=TOO_MANY)
def test_for_more_values_than_allowed_the_function_itself_runs_and_says_so_once(program: Any) -> None:
    compiled = aot_compile(program, values_limit=3)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for n in (0, 1, 2, 7, 8, 2, 9, 0):
            ours, theirs = ones(n), ones(n)
            assert torch.equal(compiled(ours), program(theirs)) and torch.equal(ours, theirs)
    (warning,) = [str(each.message) for each in told]
    assert "differs from call to call; 3 are compiled for" in warning and "test_looks.py" in warning
    assert len(compiled.recompiles) == 2


def test_for_a_value_that_is_never_the_same_the_function_itself_runs() -> None:
    torch.library.define("sa_looks_test::clock", "(Tensor x) -> Tensor")
    ticks: list[int] = []

    def tick(x: torch.Tensor) -> torch.Tensor:
        ticks.append(1)
        return torch.tensor(len(ticks) % 2 == 0)

    torch.library.impl("sa_looks_test::clock", "CPU", tick)
    torch.library.register_fake("sa_looks_test::clock", lambda x: torch.empty((), dtype=torch.bool))
    runs: list[int] = []

    def program(x: torch.Tensor) -> torch.Tensor:
        runs.append(1)
        return x if torch.ops.sa_looks_test.clock(x) else x * 2

    compiled = aot_compile(program)
    with pytest.warns(UserWarning, match="otherwise each time") as told:
        results = [compiled(ones()) for _ in range(8)]
    assert len(told) == 1 and {result.sum().item() / ones().sum().item() for result in results} <= {1, 2}
    assert len(compiled.recompiles) <= 2


def test_refused_if_asked_for() -> None:
    with pytest.raises(DataDependentError, match="asks for values"):
        aot_compile(branch, values="refuse")(ones())
    with pytest.raises(DataDependentError, match="asks for values"):
        trace_joint(branch, ones())
    with pytest.raises(SubclassAotError, match="neither"):
        aot_compile(branch, values="no")  # type: ignore[arg-type]


def test_in_backward_it_is_refused() -> None:
    class Clip(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 1

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return gradient / gradient.norm() if gradient.norm() > 1 else gradient

    with pytest.raises(DataDependentError, match="asks for values"):
        aot_compile(Clip.apply)(ones().requires_grad_())


@pytest.mark.filterwarnings("ignore")
def test_after_a_collective_it_is_refused() -> None:
    """It would run once more on the ranks that have other values, or are traced."""
    from torch import distributed
    from torch.distributed import _functional_collectives as collectives

    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        group = distributed.group.WORLD
        agree(lambda x: collectives.wait_tensor(collectives.all_reduce(branch(x), "sum", group)), CALLS[branch])
        with pytest.raises(DataDependentError, match="asks for values"):
            aot_compile(lambda x: branch(collectives.all_reduce(x, "sum", group)))(ones())
    finally:
        distributed.destroy_process_group()


def test_explain_lists_what_was_seen() -> None:
    compiled = agree(branch, CALLS[branch])
    text = compiled.explain()
    assert "reads a value: True (" in text and "reads a value: False (" in text
    assert "return x * 2 if x.sum() > 0 else x - 1" in text
    compiled = agree(compares_a_number, CALLS[compares_a_number], dynamic=True)
    assert "assumed: " in compiled.explain()


def test_a_call_that_eager_mode_answers_although_its_trace_fails() -> None:
    def program(x: Any) -> Any:
        return torch.tensor([len(str(type(x.sum().item())))]) if x.sum() > 0 else x.untouched()

    compiled = aot_compile(program)
    assert torch.equal(compiled(ones()), program(ones()))
    with pytest.raises(AttributeError, match="'Tensor' object has no attribute 'untouched'"):
        compiled(ones(-1))


def test_sizes_of_an_input_that_was_turned_in_place() -> None:
    def program(x: Any) -> Any:
        x.t_()
        parts = x.chunk(2, -1)
        return parts[-1] * 2 if x.sum() > 0 else parts[0] - 1

    for dynamic in (None, True):
        compiled = aot_compile(program, dynamic=dynamic)
        for size in ((2, 3), (2, 3), (4, 5)):
            for value in (1, -1):
                x, y = (torch.full(size, value) for _ in range(2))
                assert torch.equal(compiled(x), program(y)) and x.shape == y.shape


def rows_of_experts(gate: torch.Tensor) -> tuple[torch.Tensor, Any]:
    """Returns the rows in the order of their experts, and how many each expert has."""
    top = gate.argmax(-1)
    counts = torch.zeros(gate.shape[1], dtype=torch.int64).scatter_add(0, top, torch.ones_like(top))
    return top.argsort(stable=True), counts.tolist()


def mixture(x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
    order, counts = rows_of_experts(gate)
    done = [part * (i + 1) for i, part in enumerate(x[order].split(counts))]
    return torch.zeros_like(x).index_add(0, order, torch.cat(done) * gate[order][:, :1])


def mixture_of_products(x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
    order, counts = rows_of_experts(gate)
    done = [part @ torch.full((3, 3), float(i)) for i, part in enumerate(x[order].split(counts))]
    return (torch.cat(done) + x)[order.argsort()]


def in_two_halves(x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
    n = (gate[:, 0] > 0).sum().item()
    first, second = x.split([n, x.shape[0] - n])
    return torch.cat([second, first]) * gate[:, :1]


def padded_again(x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
    order, counts = rows_of_experts(gate)
    return torch.cat([torch.nn.functional.relu(part) for part in x[order].split(counts)]).where(x > 0, x)


def of_columns(x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
    order, counts = rows_of_experts(gate)
    return torch.cat([part.cumsum(1) for part in x.t()[:, order].split(counts, dim=1)], 1) - x.t()


@pytest.mark.parametrize("program", [mixture, mixture_of_products, in_two_halves, padded_again, of_columns])
def test_parts_of_any_sizes_have_the_size_of_the_whole(program: Any) -> None:
    compiled = aot_compile(program)
    torch.manual_seed(0)
    gates = [torch.randn(rows, 3) for rows in (24, 24, 24, 24, 25, 26, 27, 24)]
    for gate in gates:
        for expert in range(3):  # two rows at least: one is a size of its own
            gate[2 * expert : 2 * expert + 2, expert] = 9.0
        x = torch.randn(len(gate), 3)
        torch.testing.assert_close(compiled(x, gate), program(x, gate))
    assert len(compiled.recompiles) <= 2, compiled.recompiles


def test_a_part_that_is_one_row_is_compiled_once() -> None:
    compiled = aot_compile(mixture)
    torch.manual_seed(0)
    for rows, second in ((9, 3), (9, 4), (9, 5), (10, 2), (11, 6), (12, 3), (13, 7)):
        experts = torch.tensor([0] + [1] * second + [2] * (rows - 1 - second))
        x, gate = torch.randn(rows, 3), torch.nn.functional.one_hot(experts, 3).float()
        torch.testing.assert_close(compiled(x, gate), mixture(x, gate))
    assert len(compiled.recompiles) <= 2, compiled.recompiles


def put(x: torch.Tensor, p: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    y = x * 1
    y[mask] = p
    return y


def put_twice(x: torch.Tensor, p: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return put(put(x, p, mask), p * 2, ~mask)


def added(x: torch.Tensor, p: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return x.index_put((mask,), p, accumulate=True)


def one_value(x: torch.Tensor, p: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    y = x * 1
    y[mask, 0] = p.sum()
    return y


def of_a_column(x: torch.Tensor, p: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    y = x.t().contiguous()
    y[:, mask] = p[:, None]
    return y


@pytest.mark.parametrize("program", [put, put_twice, added, one_value, of_a_column])
def test_a_gradient_of_rows_that_depend_on_data(program: Any) -> None:
    compiled = aot_compile(program)
    torch.manual_seed(0)
    for rows in (4, 4, 5, 6):
        x, p = torch.randn(rows, 3, requires_grad=True), torch.randn(3, requires_grad=True)
        mask = torch.arange(rows) % 2 == 0
        got, expected = (torch.autograd.grad(f(x, p, mask).square().sum(), (x, p)) for f in (compiled, program))
        torch.testing.assert_close(got, expected)
