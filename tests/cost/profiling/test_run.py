"""Profiles against real runs: what torch's own allocator and counter say."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

import subclass_aot as sa
from subclass_aot.cost.profiling.allocator import real_peak
from subclass_aot.cost.profiling.parts import tensors_in
from subclass_aot.cost.profiling.without_data import without_data
from subclass_aot.errors import ProfileError


class Residual(nn.Module):
    def __init__(self, checkpointed: bool = False) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64), nn.Dropout(0.1)) for _ in range(4)
        )
        self.checkpointed = checkpointed

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = x + (checkpoint(block, x, use_reentrant=False) if self.checkpointed else block(x))
        return x


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(500, 64)
        self.layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), 2)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.layers(self.table(words)) @ self.table.weight.t()  # tied


def twice(model: nn.Module, x: torch.Tensor, optimizer: torch.optim.Optimizer) -> None:
    for part in x.chunk(2):
        model(part).sum().backward()
    optimizer.step()


def casted(model: nn.Module, x: torch.Tensor, optimizer: torch.optim.Optimizer) -> None:
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(x).float().square().mean()
    loss.backward()
    optimizer.step()


def one_step(model: nn.Module, x: torch.Tensor, optimizer: torch.optim.Optimizer) -> None:
    F.mse_loss(model(x), torch.zeros_like(x)).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()


def summed(model: nn.Module, x: torch.Tensor, optimizer: torch.optim.Optimizer) -> None:
    model(x).sum().backward()
    optimizer.step()


PROGRAMS: dict[str, tuple[Callable[[], nn.Module], Callable[[], torch.Tensor], Callable[..., None]]] = {
    "residual": (Residual, lambda: torch.randn(64, 64), one_step),
    "checkpointed": (lambda: Residual(True), lambda: torch.randn(64, 64), one_step),
    "accumulated": (Residual, lambda: torch.randn(64, 64), twice),
    "words": (Words, lambda: torch.randint(0, 500, (8, 16)), summed),
    "autocast": (Residual, lambda: torch.randn(64, 64), casted),
    "int8": (lambda: sa.quantize_(Residual(), sa.Int8Weight), lambda: torch.randn(64, 64), summed),
    "lora": (
        lambda: sa.quantize_(Residual(), lambda w: sa.LoraWeight.beside(w, 4)), lambda: torch.randn(64, 64), summed
    ),
    "pooled": (
        lambda: nn.Sequential(nn.AvgPool1d(2), nn.Linear(32, 8), nn.Softmax(-1)), lambda: torch.randn(64, 64), summed
    ),
}  # fmt: skip


def held(tensors: list[torch.Tensor]) -> int:
    storages = [part.untyped_storage() for part in tensors_in(tensors)]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW([p for p in model.parameters() if p.requires_grad])


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_peak_and_the_products_are_those_of_a_real_run(name: str) -> None:
    make, data, step = PROGRAMS[name]
    model, x = make(), data()
    report = sa.profile(step, model, x, optimizer_of(model))
    assert all(p.grad is None for p in model.parameters())  # nothing of the user's is changed

    real = copy.deepcopy(model)
    with sa.profile(real) as of_real:
        step(real, x, optimizer_of(real))
    real = copy.deepcopy(model)
    optimizer = optimizer_of(real)
    peak = real_peak(lambda: step(real, x, optimizer), held([*real.parameters(), *real.buffers(), x]))
    assert report.peak == pytest.approx(peak, rel=0.002, abs=2048)
    assert of_real.peak == pytest.approx(peak, rel=0.01, abs=2048)

    counter: Any = FlopCounterMode(display=False)
    with counter:
        step(copy.deepcopy(model), x, optimizer_of(copy.deepcopy(model)))
    own = report.flops(by="operator")
    attention = sum(n for name, n in own.items() if "for_cpu" in name)
    assert report.flops() == of_real.flops()
    if name != "lora":  # of which torch counts the product of its two parts, and not what runs instead
        assert report.flops() - attention == counter.get_total_flops()
    assert not report.uncounted


@pytest.mark.parametrize("name", PROGRAMS)
def test_owners_add_up_to_what_is_held_at_any_moment(name: str) -> None:
    make, data, step = PROGRAMS[name]
    model = make()
    report = sa.profile(step, model, data(), optimizer_of(model))
    curve = report.timeline.curve()
    for by in ("kind", "module", "operator", "line", "name", "phase"):
        assert sum(report.owners(by).values()) == report.peak
        for event in range(0, len(curve), 17):
            assert sum(report.owners(by, event).values()) == curve[event]
    kinds = report.owners("kind", "end")
    assert set(kinds) <= {"parameter", "input", "gradient", "optimizer"}
    assert report.parameters == kinds["parameter"] and report.optimizer_state == kinds["optimizer"]


def test_a_module_is_run_as_in_training_or_inference() -> None:
    model, x = Residual(), torch.randn(64, 64)
    trained = sa.profile(model, x, optimizer=torch.optim.SGD)
    assert trained.flops("backward") > trained.flops("forward") == sa.profile(model.eval(), x).flops()
    with torch.no_grad():
        assert sa.profile(model, x).saved == 0
    assert trained.saved > 0 and trained.gradients == trained.parameters


def test_a_model_of_any_size_on_a_device_that_is_not_there() -> None:
    with sa.meta("cuda:0"):
        model = nn.Sequential(nn.Linear(10**5, 10**5), nn.ReLU(), nn.Linear(10**5, 10**5))
        with sa.profile(model, device="H100", memory="80GiB") as report:
            model(torch.ones(10**6, 10**5)).sum().backward()
    assert report.flops("forward") == 2 * 2 * 10**16 and report.fits is False
    assert report.owners()["parameter"] == 2 * 4 * 10**10 + 2 * 400_384  # biases, in blocks of 512 bytes
    assert "H100" in str(report) and "it does not fit" in str(report)


def test_claims_of_a_device_move_everything_there() -> None:
    report = sa.profile(Residual(), torch.randn(64, 64), device="cuda:1")
    assert {each.device for each in report.timeline.allocations} == {torch.device("cuda:1")}


def test_states_that_are_there_before_are_the_optimizers() -> None:
    model, x = Residual(), torch.randn(64, 64)
    optimizer = optimizer_of(model)
    one_step(model, x, optimizer)
    first = sa.profile(one_step, model, x, optimizer)
    assert first.owners("kind", 0)["optimizer"] == first.optimizer_state > 2 * first.parameters


def test_reads_of_values_are_refused_or_assumed_and_listed() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x.sin() if bool((x > 0).all()) else x

    with pytest.raises(sa.errors.DataDependentError, match="assume=True"):
        sa.profile(program, torch.randn(3))
    report = sa.profile(program, torch.randn(3), assume=True)
    assert len(report.assumed) == 1 and "test_run.py" in report.assumed[0] and "assumed" in str(report)


def test_what_cannot_be_copied_is_named() -> None:
    class Held(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2))
            self.generator = (i for i in range(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.weight

    with pytest.raises(ProfileError, match="generator"):
        sa.profile(Held(), torch.ones(2))


def test_an_optimizer_beside_a_function_is_refused() -> None:
    with pytest.raises(ProfileError, match="pass it to your step"):
        sa.profile(torch.sin, torch.ones(2), optimizer=torch.optim.SGD)


def test_attributes_of_optimizers_are_copied() -> None:
    class Counting(torch.optim.SGD):
        def __init__(self, params: Any) -> None:
            super().__init__(params, 0.1)
            self.scale = 3.0

        def step(self, closure: Any = None) -> None:  # type: ignore[override]
            for group in self.param_groups:
                for p in group["params"]:
                    p.data.add_(p.grad, alpha=-self.scale)

    model = nn.Linear(3, 3)
    assert sa.profile(summed, model, torch.ones(2, 3), Counting(model.parameters())).peak > 0
    assert torch.optim.LBFGS in {type(x) for x in without_data((torch.optim.LBFGS(model.parameters()),), None)}


def test_backward_runs_in_the_thread_that_listens() -> None:
    """On a GPU autograd has a thread of its own, in which nobody would hear it."""
    enabled = torch._C._is_multithreading_enabled
    with sa.profile(nn.Linear(2, 2)):
        assert not enabled()
    assert enabled()


@pytest.mark.usefixtures("fresh_dynamo")
@pytest.mark.parametrize("fullgraph", [False, True])
def test_what_torch_compile_made_runs_as_in_eager_mode(fullgraph: bool) -> None:
    def loss(x: torch.Tensor) -> torch.Tensor:
        return x.square().mean()

    def program(model: nn.Module, x: torch.Tensor, loss: Any = loss) -> None:
        loss(model(x)).backward()

    model, x = nn.Linear(8, 8), torch.randn(4, 8)
    expected = sa.profile(program, model, x)
    report = sa.profile(program, model, x, torch.compile(loss, fullgraph=fullgraph))
    assert report.peak == expected.peak and report.flops() == expected.flops()
    assert expected.compiled == [] and "loss(model(x)).backward()" in report.compiled[0]
    assert "as eager mode       what torch.compile made: " in str(report)
    real = model(x).square().mean()  # a compiled function is itself again
    assert torch.equal(torch.compile(loss, backend="eager")(model(x)), real)
