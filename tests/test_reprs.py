"""What a prompt shows of an object that a public function returns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import subclass_aot as sa


class Refusing(TorchDispatchMode):
    """Refuses operators: what is shown computes nothing."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError(f"{func} runs")


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 4), nn.GELU())


def called(compiled: Any, *args: object) -> Any:
    compiled(*args)
    return compiled


def joint() -> sa.Joint:
    return sa.trace_joint(net(), torch.ones(2, 4))


def report(batch: int = 64) -> Any:
    return sa.profile(net(), torch.empty(batch, 4), optimizer=torch.optim.AdamW, device="H100")


def in_a_block() -> Any:
    layer = nn.Linear(4, 4)
    with sa.profile(layer) as found:
        layer(torch.ones(2, 4)).sum().backward()
    return found


def loaded(folder: Path) -> Any:
    called(sa.aot_compile(net()), torch.ones(2, 4)).save(folder / "x.sa")
    return sa.load_compiled(folder / "x.sa", trust=True)


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def a_compiler() -> Any:
    def of_mine(graph: Any, inputs: Any) -> Any:
        return graph

    return of_mine


SHOWN: dict[str, tuple[Callable[[Path], Any], str]] = {
    "function": (lambda _: sa.aot_compile(double), '<compiled function double by "eager": 0 signatures>'),
    "called": (
        lambda _: called(sa.aot_compile(double), torch.ones(2)), '<compiled function double by "eager": 1 signature>'
    ),
    "module": (lambda _: sa.aot_compile(net()), '<compiled module Sequential by "eager": 0 signatures>'),
    "by inductor": (
        lambda _: sa.aot_compile(double, fw_compiler=sa.inductor()),
        "<compiled function double by inductor: 0 signatures>",
    ),
    "by a function": (
        lambda _: sa.aot_compile(double, fw_compiler=a_compiler()),
        "<compiled function double by of_mine: 0 signatures>",
    ),
    "loaded": (loaded, '<compiled function Sequential by "eager": 0 signatures>'),
    "backend": (lambda _: sa.inductor(), "<Backend inductor>"),
    "joint": (lambda _: joint(), "<joint graph of Sequential: 4 inputs, 3 outputs, 15 nodes>"),
    "compiled joint": (
        lambda _: sa.compile_joint(joint()), "<compiled joint graph of Sequential: 4 inputs, 3 outputs, 15 nodes>"
    ),
    "bound joint": (
        lambda _: sa.compile_joint(joint()).bind(net()),
        "<compiled joint graph of Sequential: 4 inputs, 3 outputs, 15 nodes>",
    ),
    "stages": (
        lambda _: sa.aot_compile(net()).stages(torch.ones(2, 4)),
        "<Stages recorded, functional, joint, forward, backward, code>",
    ),
    "report": (lambda _: report(), "<Report: peak ... on H100 SXM, optimizer by ..., test_reprs.py:...>"),
    "report of a block": (lambda _: in_a_block(), "<Report: peak ..."),
    "timeline": (lambda _: report().timeline, "<Timeline: ... allocations, ... events, ... operators>"),
    "block": (lambda _: sa.profile(net()), "<Profiled <Report: peak ... B, before>>"),
    "times": (lambda _: report().seconds(), "Times(seconds=..., by_bound={...}, by_phase={...}, mfu=...)"),
    "formula": (lambda _: report().formula(), "<Formula: peak = ..., products = ..."),
    "check": (
        lambda _: sa.profile(nn.Linear(64, 64), torch.empty(8, 64)).check(),
        "<Check on cpu: as predicted, peak ..., predicted ...>",
    ),
    "device": (lambda _: sa.devices.device_of("H100"), "Device('H100 SXM')"),
    "missing rules": (lambda _: sa.missing_meta(net(), torch.ones(2, 4)), "MissingRules(rules=(), stopped='')"),
    "meta tensor": (lambda _: sa.to_meta(net())[0].weight, "MetaTensor([4, 4], float32, cpu, requires_grad=True)"),
    "wrapper": (
        lambda _: sa.TwoTensor(torch.ones(2), torch.ones(2)), "TwoTensor(float32[2], a=float32[2], b=float32[2])"
    ),
    "weights": (
        lambda _: sa.tensors.weights_of(sa.quantize_(nn.Sequential(nn.Linear(64, 64)), sa.Int8Weight)),
        "<Weights: 1 Int8Weight, 1 dense, 4,608 bytes>",
    ),
    "plan": (lambda _: sa.FlattenPlan.of([torch.ones(2), 3]), "<FlattenPlan of args: 2 values>"),
}  # fmt: skip


def parts_of(expected: str) -> Iterator[str]:
    yield from (part for part in expected.split("...") if part)


@pytest.mark.filterwarnings("ignore")  # torch's profiler, in a check
@pytest.mark.parametrize("name", SHOWN)
def test_it_is_one_line_that_computes_nothing(name: str, tmp_path: Path) -> None:
    make, expected = SHOWN[name]
    made = make(tmp_path)
    with Refusing():
        shown = repr(made)
    assert "\n" not in shown and " at 0x" not in shown and len(shown) < 250
    rest = shown
    for part in parts_of(expected):
        assert part in rest, shown
        rest = rest.partition(part)[2]
    assert "..." in expected or shown == expected
    assert repr(made) == shown


def test_texts_are_shown_as_they_are_printed() -> None:
    compiled: Any = sa.aot_compile(net())
    assert repr(compiled.source) == str(compiled.source)
    compiled(torch.ones(2, 4))
    for text in (compiled.explain(), compiled.source):
        assert repr(text) == str(text) and "\n" in text
