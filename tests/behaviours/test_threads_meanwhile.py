"""What other threads find of a model, a list or an optimizer while one thread traces a function that reads it."""

from __future__ import annotations

import copy
import io
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import subclass_aot as sa
from tests.meanwhile import FOUND, noted_elsewhere


class Mixed(nn.Module):
    """Has tensors in attributes, lists and dicts, beside its parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.scale = torch.full((4,), 2.0)
        self.held = {"shift": [torch.arange(4.0), torch.ones(4)]}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * self.scale + self.held["shift"][0] + self.held["shift"][1]


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LSTM(4, 4, num_layers=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)[0]


class Quantized(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(sa.Int8Weight.from_float(torch.randn(4, 4)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(x, self.weight)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "norms": lambda: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Sequential(nn.GELU())).eval(),
    "attributes": Mixed, "recurrent": Recurrent, "gru": lambda: nn.Sequential(nn.GRU(4, 4)), "wrapper": Quantized,
    "tied": lambda: nn.Sequential(*[nn.Linear(4, 4)] * 2),
}  # fmt: skip


def saved(model: nn.Module, x: torch.Tensor) -> Any:
    data = io.BytesIO()
    torch.save(model.state_dict(), data)
    data.seek(0)
    return torch.load(data, weights_only=True)


def pickled(model: nn.Module, x: torch.Tensor) -> Any:
    data = io.BytesIO()
    torch.save(model, data)
    data.seek(0)
    return torch.load(data, weights_only=False)(x)


def evaluated(model: nn.Module, x: torch.Tensor) -> Any:
    with torch.no_grad():
        return model(x)


def copied(model: nn.Module, x: torch.Tensor) -> Any:
    made = copy.deepcopy(model)
    assert all(type(module._parameters) is dict for module in made.modules())
    return made(x), copy.copy(model).state_dict()


def averaged(model: nn.Module, x: torch.Tensor) -> Any:
    average = torch.optim.swa_utils.AveragedModel(copy.deepcopy(model))
    average.update_parameters(model)
    average.update_parameters(model)
    return (
        [type(p) for p in model.parameters()],
        dict(average.named_buffers()),
        [p.numel() for p in average.parameters()],
    )


def differentiated(model: nn.Module, x: torch.Tensor) -> Any:
    if not all(map(torch.is_floating_point, model.parameters())):
        return None
    return torch.autograd.grad(model(x)[0].sum(), [p for p in model.parameters() if p.requires_grad])


def attributes(model: nn.Module, x: torch.Tensor) -> Any:
    held = [x for each in model.modules() for x in vars(each).values() if isinstance(x, torch.Tensor)]
    return [(x.clone().tolist(), x.data_ptr() != 0, repr(x), x.grad, x.detach().sum().item()) for x in held]


OBSERVERS = [saved, pickled, evaluated, copied, averaged, differentiated, attributes]


def same(one: Any, other: Any) -> None:
    torch.testing.assert_close(one, other, rtol=0, atol=1e-6)


@pytest.mark.filterwarnings("ignore:RNN module weights")
@pytest.mark.parametrize("observe", OBSERVERS)
@pytest.mark.parametrize("name", MODELS)
def test_other_threads_find_the_model_as_it_is(name: str, observe: Callable[..., Any]) -> None:
    torch.manual_seed(0)
    model, x = MODELS[name](), torch.randn(3, 4)
    own = x.clone()

    def program(x: torch.Tensor) -> torch.Tensor:
        y = model(x)
        noted_elsewhere(lambda: observe(model, own))
        return y + model(x)

    expected, inside = observe(model, own), sa.aot_compile(program)
    FOUND.clear()
    result = inside(x)
    seen = list(FOUND)
    if observe is differentiated and name == "wrapper":
        assert [g.to_plain().tolist() if hasattr(g, "to_plain") else g.tolist() for g in seen[0]] == [
            g.to_plain().tolist() if hasattr(g, "to_plain") else g.tolist() for g in expected
        ]
    elif observe is attributes or observe is averaged:
        assert str(seen[0]) == str(expected)
    else:
        same(_plain(seen[0]), _plain(expected))
    same(_plain(result), _plain(model(x) * 2))
    assert all(type(each._parameters) is dict and type(each._buffers) is dict for each in model.modules())


def _plain(value: Any) -> Any:
    """Gives the values of wrappers."""
    if isinstance(value, dict):
        return {key: _plain(x) for key, x in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(x) for x in value]
    return value.to_plain() if hasattr(value, "to_plain") else value


def test_what_other_threads_write_stays() -> None:
    model, shared, x = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)), [torch.zeros(2)], torch.randn(3, 2)
    fresh = nn.Parameter(torch.full((2, 2), 7.0))
    now, done = threading.Event(), threading.Event()

    def write() -> None:
        now.wait()
        with torch.no_grad():
            model[0].bias.fill_(3)
            shared[0].add_(5)
        model[0].weight = fresh
        model[1].register_buffer("more", torch.ones(1))
        done.set()

    def program(x: torch.Tensor) -> torch.Tensor:
        y = model(x) + shared[0]
        now.set()
        done.wait()
        return y

    version, thread = shared[0]._version, threading.Thread(target=write)
    thread.start()
    sa.aot_compile(program)(x)
    thread.join()
    assert model[0].weight is fresh and model[0].bias.tolist() == [3, 3] and model[1].more.tolist() == [1]
    assert shared[0].tolist() == [5, 5] and shared[0]._version == version + 1


def test_an_optimizer_is_saved_meanwhile() -> None:
    model, x = nn.Linear(2, 2), torch.randn(3, 2)
    optimizer = torch.optim.AdamW(model.parameters())

    def save() -> Any:
        data = io.BytesIO()
        torch.save(optimizer.state_dict(), data)
        data.seek(0)
        return torch.load(data, weights_only=True)

    def step(x: torch.Tensor) -> None:
        if torch.compiler.is_compiling() and optimizer.state:
            noted_elsewhere(save)
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    step(x)
    expected = save()
    sa.aot_compile(step)(x)
    same(FOUND[0], expected)


def _all_together(seconds: float) -> dict[str, int]:
    """Counts what threads do that save, load, evaluate, average, copy and train models while others compile them."""
    torch.manual_seed(0)
    models = [make() for make in MODELS.values()]
    x, is_over, counts, failures = torch.randn(3, 4), threading.Event(), dict[str, int](), list[str]()
    expected = {(i, f): f(model, x) for i, model in enumerate(models) for f in OBSERVERS}

    def again(name: str, turn: Callable[[int], object]) -> None:
        i = 0
        while not is_over.is_set():
            try:
                turn(i)
            except Exception as error:
                failures.append(f"{name}, {i}: {type(error).__name__}: {error}")
                return
            counts[name] = counts.get(name, 0) + 1
            i += 1
            time.sleep(1e-4)

    def observing(observe: Callable[..., Any]) -> Callable[[int], None]:
        def turn(i: int) -> None:
            i %= len(models)
            found, wanted = observe(models[i], x), expected[i, observe]
            if observe in (attributes, averaged):
                assert [str(y)[:40] for y in found] == [str(y)[:40] for y in wanted]
            else:
                same(_plain(found), _plain(wanted))

        return turn

    def compiling(i: int) -> None:
        model = models[i % len(models)]
        compiled = sa.aot_compile(model, dynamic=False)
        own = torch.cat([x] * (1 + i // len(models) % 5))
        found, wanted = compiled(own), model(own)
        same(_plain(found), _plain(wanted))
        result = found[0] if isinstance(found, tuple) else found
        result.sum().backward()

    named = [(f.__name__, observing(f)) for f in OBSERVERS] + [("compiles", compiling), ("compiles too", compiling)]
    threads = [threading.Thread(target=again, args=each) for each in named]
    for thread in threads:
        thread.start()
    time.sleep(seconds)
    is_over.set()
    for thread in threads:
        thread.join()
    assert not failures, "\n".join(failures)
    return counts


@pytest.mark.filterwarnings("ignore:RNN module weights")
def test_nine_threads_together() -> None:
    counts = _all_together(3)
    assert counts["saved"] > 10 and counts["compiles"] > 0


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:RNN module weights")
def test_nine_threads_together_for_two_minutes() -> None:
    counts = _all_together(120)
    assert counts["saved"] > 500 and counts["compiles"] > 50
