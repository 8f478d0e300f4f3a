"""Sparse gradients of embeddings, against eager mode: entries, optimizers, and what dense gradients add to them."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

import subclass_aot as sa
from subclass_aot.cost.profiling.allocator import real_peak
from subclass_aot.errors import DataDependentError, TraceError
from subclass_aot.subjects.sparse import SparseGradient


class Tied(nn.Module):
    """The weight is used once as a table and once as a matrix, so its gradient is dense."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(10, 3, sparse=True)

    def forward(self, index: torch.Tensor) -> torch.Tensor:
        return self.table(index) @ self.table.weight.t()


class Twice(Tied):
    def forward(self, index: torch.Tensor) -> torch.Tensor:
        return self.table(index).sin() * self.table(index + 1)  # type: ignore[no-any-return]


class Mixed(Tied):
    """Has a dense gradient, too, and a second result."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3, 2)

    def forward(self, index: torch.Tensor) -> Any:
        return self.head(self.table(index)), self.table(index + 2)


MODELS = {
    "embedding": (lambda: nn.Embedding(10, 3, sparse=True), 1),
    "sum of a bag": (lambda: nn.EmbeddingBag(10, 3, sparse=True, mode="sum"), 2),
    "mean of a bag": (lambda: nn.EmbeddingBag(10, 3, sparse=True), 2),
    "padded": (lambda: nn.Embedding(10, 3, sparse=True, padding_idx=3), 1),
    "padded, from the end": (lambda: nn.Embedding(10, 3, sparse=True, padding_idx=-9), 1),
    "sum of a padded bag": (lambda: nn.EmbeddingBag(10, 3, sparse=True, mode="sum", padding_idx=2), 2),
    "mean of a padded bag": (lambda: nn.EmbeddingBag(10, 3, sparse=True, padding_idx=3), 2),
    "tied": (Tied, 1),
    "twice": (Twice, 1),
    "mixed": (Mixed, 1),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("compiler", ["eager", "inductor"])
def test_training(name: str, dynamic: bool | None, compiler: str) -> None:
    make, dims = MODELS[name]
    eager = make()
    model = copy.deepcopy(eager)
    compiled = sa.aot_compile(model, dynamic=dynamic, fw_compiler=compiler)
    optimizers = [_optimizers(m) for m in (eager, model)]
    for index in ([1, 2, 2], [0, 5, 7], [3, 3, 3, 1, 4, 0]):
        given = torch.tensor([index] * dims)[0:2] if dims == 2 else torch.tensor(index)
        for function, optimizer in zip((eager, compiled), optimizers, strict=True):
            result = function(given)
            first = result[0] if isinstance(result, tuple) else result  # the other has no gradient
            first.sin().sum().backward()
            for part in optimizer:
                part.step()
        for expected, got in zip(eager.parameters(), model.parameters(), strict=True):
            assert expected.grad is not None and got.grad is not None
            assert expected.grad.layout == got.grad.layout and torch.allclose(expected, got)
            if expected.grad.is_sparse:
                assert torch.equal(expected.grad.coalesce().indices(), got.grad.coalesce().indices())
            assert torch.allclose(expected.grad.to_dense(), got.grad.to_dense())
            expected.grad = got.grad = None


def _optimizers(model: nn.Module) -> list[torch.optim.Optimizer]:
    sparse = [] if type(model) is Tied else [p for n, p in model.named_parameters() if "head" not in n]
    dense = [p for p in model.parameters() if not any(p is s for s in sparse)]
    return [torch.optim.SparseAdam(sparse) for _ in range(bool(sparse))] + [
        torch.optim.SGD(dense, 0.1) for _ in range(bool(dense))
    ]


def test_a_gradient_computed_inside() -> None:
    def program(weight: Any, index: Any) -> Any:
        rows = nn.functional.embedding(index, weight, sparse=True)
        return torch.autograd.grad(rows.sin().sum(), weight)[0] * 2

    weight, index = torch.rand(5, 3, requires_grad=True), torch.tensor([1, 1, 3])
    expected, got = program(weight, index), sa.aot_compile(program)(weight, index)
    assert got.is_sparse and torch.equal(expected.to_dense(), got.to_dense())


def test_without_data() -> None:
    table = sa.to_meta(nn.Embedding(10**6, 64, sparse=True))
    with sa.meta():
        index = torch.zeros(10**9, dtype=torch.int64)
    table(index).sum().backward()
    gradient = table.weight.grad
    assert isinstance(gradient, SparseGradient) and gradient.shape == (10**6, 64)
    assert gradient.indices_.shape == (1, 10**9) and gradient.values_.shape == (10**9, 64)


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("index", [[1, 2], [2, 2], [0, 1, 2, 9, 2], [[2, 1], [9, 2]], []])
def test_entries_of_padding(index: Any, dynamic: bool | None) -> None:
    """They are not there: each entry is where it is in eager mode."""
    table = nn.Embedding(10, 3, sparse=True, padding_idx=2)
    given = torch.tensor(index, dtype=torch.int64)
    found = []
    for function in (table, sa.aot_compile(table, dynamic=dynamic)):
        function(given).sin().sum().backward()
        found.append(table.weight.grad)
        table.weight.grad = None
    expected, got = found
    assert expected._indices().equal(got._indices()) and expected._values().equal(got._values())
    assert expected.is_coalesced() == got.is_coalesced()


def test_padding_of_one_of_two_tables() -> None:
    def program(weight: Any, index: Any) -> Any:
        rows = nn.functional.embedding(index, weight, padding_idx=0, sparse=True)
        others = nn.functional.embedding(index, weight, sparse=True)
        gradient = torch.autograd.grad((rows.sin() * others).sum(), weight)[0]
        return gradient, gradient * 2, gradient.to_dense()

    weight, index = torch.rand(5, 3, requires_grad=True), torch.tensor([0, 1, 4, 0, 1])
    for expected, got in zip(program(weight, index), sa.aot_compile(program)(weight, index), strict=True):
        assert expected.layout == got.layout and torch.allclose(expected.to_dense(), got.to_dense())


def test_a_mask_in_a_hook_is_no_padding() -> None:
    """Hooks run while autograd is at the embedding, too."""

    def program(weight: Any, index: Any) -> Any:
        rows = nn.functional.embedding(index, weight, padding_idx=0, sparse=True)
        rows.register_hook(lambda gradient: gradient * gradient[gradient > 0].sum())
        return torch.autograd.grad((rows * rows).sum(), weight)[0].to_dense()

    weight, index = torch.rand(5, 3, requires_grad=True), torch.tensor([0, 1, 4, 0, 1])
    assert torch.allclose(program(weight, index), sa.aot_compile(program)(weight, index))


def test_a_step_of_an_optimizer_inside() -> None:
    def program(weight: Any, index: Any) -> Any:
        rows = nn.functional.embedding(index, weight, sparse=True)
        (gradient,) = torch.autograd.grad(rows.sin().sum(), weight)
        assert gradient.is_sparse
        with torch.no_grad():
            weight.add_(gradient, alpha=-0.1)
        return gradient.to_dense() * 2

    index = torch.tensor([1, 1, 3])
    first, second = (torch.ones(5, 3, requires_grad=True) for _ in range(2))
    assert torch.equal(program(first, index), sa.aot_compile(program)(second, index))
    assert torch.equal(first, second)


def test_what_has_no_rule_is_refused_by_name() -> None:
    """Eager has a kernel for sparse tensors, which gives a sparse one."""

    def program(weight: Any, index: Any) -> Any:
        rows = nn.functional.embedding(index, weight, sparse=True)
        return torch.autograd.grad(rows.sum(), weight)[0].sin()  # this line

    with pytest.raises(TraceError, match=r"aten.sin.default has no rule for a sparse gradient(.|\n)*this line"):
        sa.aot_compile(program)(torch.ones(5, 3, requires_grad=True), torch.tensor([1, 3]))


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.SparseAdam])
@pytest.mark.parametrize("zeros", [True, False])
@pytest.mark.parametrize("dynamic", [None, False])
def test_gradients_that_are_there_when_it_is_traced_again(optimizer: Any, zeros: bool, dynamic: bool | None) -> None:
    """Those of earlier steps, to which autograd adds those of the next."""
    eager = nn.Embedding(10, 3, sparse=True)
    model = copy.deepcopy(eager)
    for function, table in ((eager, eager), (sa.aot_compile(model, dynamic=dynamic), model)):
        steps = optimizer(table.parameters(), 0.1)
        for length in (3, 4, 4, 7):
            if zeros:
                steps.zero_grad(set_to_none=False)
            function(torch.arange(length)).sin().sum().backward()
            steps.step()
    assert eager.weight.grad is not None and model.weight.grad is not None
    assert torch.allclose(eager.weight, model.weight)
    assert torch.allclose(eager.weight.grad.to_dense(), model.weight.grad.to_dense())


def test_a_sparse_gradient_that_the_function_reads_is_refused_by_its_place() -> None:
    table = nn.Embedding(10, 3, sparse=True)
    optimizer = torch.optim.SGD(table.parameters(), 0.1)

    def step(index: torch.Tensor) -> None:
        optimizer.zero_grad()
        table(index).sum().backward()
        optimizer.step()

    compiled, index = sa.aot_compile(step), torch.tensor([1, 4])
    compiled(index)
    with pytest.raises(TraceError, match=r"\.grad is a tensor of the layout torch.sparse_coo(.*\n)+.*zero_grad"):
        compiled(index)
    optimizer.zero_grad()  # as the message says
    compiled(index)


@pytest.mark.parametrize("read", ["coalesce", "indices", "values"])
def test_what_a_gradient_is_once_coalesced(read: str) -> None:
    """How many entries are left depends on the data."""

    def program(weight: Any, index: Any) -> Any:
        rows = nn.functional.embedding(index, weight, sparse=True)
        (gradient,) = torch.autograd.grad(rows.sum(), weight)
        return getattr(gradient, read)()

    with pytest.raises(TraceError, match="coalesce has no rule for a sparse gradient"):
        sa.aot_compile(program)(torch.rand(5, 3, requires_grad=True), torch.tensor([1, 1]))


OPTIMIZERS: dict[str, Any] = {
    "SparseAdam": torch.optim.SparseAdam,
    "Adagrad": lambda ps: torch.optim.Adagrad(ps, lr_decay=0.1),
    "SGD": lambda ps: torch.optim.SGD(ps, 0.1, momentum=0.9),
}


@pytest.mark.filterwarnings("ignore:Sparse")  # as Adagrad makes some
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_run_without_data(name: str) -> None:
    """Where indices are known, what is kept of a gradient is, too."""

    def step(table: nn.Module, optimizer: torch.optim.Optimizer, index: torch.Tensor) -> None:
        table(index).square().mean().backward()
        optimizer.step()

    table, index = nn.Embedding(3000, 64, sparse=True), torch.randint(0, 3000, (32, 64))
    optimizer = OPTIMIZERS[name](table.parameters())
    states = [x for state in optimizer.state.values() for x in state.values() if isinstance(x, torch.Tensor)]
    base = sum(x.nbytes for x in (table.weight, index, *states))
    report = sa.profile(step, table, optimizer, index)
    assert not report.assumed
    real = real_peak(lambda: step(table, optimizer, index), base)
    assert report.peak == pytest.approx(real, rel=0.005)


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("device", ["cpu", "cuda:0", "H100"])
@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("cls", [nn.Embedding, nn.EmbeddingBag])
def test_gradients_accumulate_on_any_claim(cls: Any, name: str, device: str) -> None:
    with sa.meta(device) as assumed:
        table, index = cls(100, 8, sparse=True), torch.zeros(4, 6, dtype=torch.long)
        optimizer = OPTIMIZERS[name](table.parameters())
        for _ in range(2):
            table(index).square().mean().backward()
            table(index).square().mean().backward()
            grad = table.weight.grad
            assert grad.is_sparse and grad.device == table.weight.device and grad.is_cuda == (device != "cpu")
            assert grad._nnz() == 48 and grad.clone().values_ is not grad.values_
            optimizer.step()
            optimizer.zero_grad()
    assert not list(assumed)


def test_how_many_entries_are_kept_is_assumed() -> None:
    def step(table: nn.Module, optimizer: torch.optim.Optimizer, index: torch.Tensor) -> None:
        table(index).square().mean().backward()
        optimizer.step()

    table = nn.Embedding(3000, 64, sparse=True)
    known = table, torch.optim.SparseAdam(table.parameters()), torch.randint(0, 3000, (9000,))
    assert sa.profile(step, *known).assumed == []  # words that are there are counted
    args = *known[:2], torch.empty(9000, dtype=torch.int64, device="meta")
    with pytest.raises(DataDependentError, match="how many"):
        sa.profile(step, *args)
    few, many = (sa.profile(step, *args, assume=True, fraction=fraction) for fraction in (0.1, 1.0))
    assert few.bytes_moved("optimizer") < many.bytes_moved("optimizer") and "is 900:" in few.assumed[0]


@pytest.mark.filterwarnings("ignore:Sparse")  # torch calls its own layouts beta
@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
def test_sparse_arguments_are_refused_by_their_place(layout: torch.layout) -> None:
    x = torch.eye(3).to_sparse(layout=layout)  # type: ignore[call-overload]
    with pytest.raises(TraceError, match=rf"args\[0\]\[0\] is a tensor of the layout {layout}"):
        sa.aot_compile(lambda x: x[0] * 2)([x])
