"""A handler of signals that comes while a call is compiled finds what it would find before the call."""

from __future__ import annotations

import copy
import io
import signal
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

import optree
import pytest
import torch

import subclass_aot as sa
from subclass_aot.testing import difference
from tests.interrupting import Lines

# A signal may come while Python frees an object, or in a callback of its collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


class Net(torch.nn.Module):
    """Has a wrapper, a buffer that is written, tensors in a list and in a dict, and draws."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(3, 3)
        self.norm = torch.nn.BatchNorm1d(3)
        self.weight = torch.nn.Parameter(sa.TwoTensor(torch.rand(3), torch.rand(3)))
        self.register_buffer("steps", torch.zeros(()))
        self.held = {"shift": [torch.arange(3.0)]}
        self.counter = torch.zeros(())
        self.seen, self.stops = 0, False
        self.optimizer = torch.optim.SGD(self.linear.parameters(), 0.1, momentum=0.9)
        self.linear(torch.ones(1, 3)).sum().backward()
        self.optimizer.step()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.steps.add_(1)
        self.seen += 1
        y = torch.nn.functional.dropout(self.norm(self.linear(x)), 0.5) * self.counter.add(1)
        self.kept = y.detach()
        return y * (self.weight * 2).a + self.held["shift"][0] * (0 if self.stops else 1)


def stored(value: object) -> Any:
    data = io.BytesIO()
    torch.save(value, data)
    data.seek(0)
    return torch.load(data, weights_only=False)


def loaded(value: object) -> Any:
    data = io.BytesIO()
    torch.save(value, data)
    data.seek(0)
    with torch.serialization.safe_globals([sa.TwoTensor]):
        return torch.load(data, weights_only=True)


def counts(net: Net) -> Any:
    net.counter.add_(1)
    return net.counter.clone()


def raises_a_flag(net: Net) -> None:
    net.stops = True
    net.held["shift"].append(torch.ones(3))


def evaluates(net: Net) -> Any:
    with torch.no_grad():
        return copy.deepcopy(net).eval()(torch.ones(2, 3))


def trains(net: Net) -> None:
    net.linear(torch.ones(2, 3)).sum().backward()
    net.optimizer.step()


ACTIONS: dict[str, Callable[[Net], Any]] = {
    "saves what it has": lambda net: loaded({k: v for k, v in net.state_dict().items() if k != "weight"}),
    "saves with wrappers": lambda net: stored(net.state_dict()),
    "saves it whole": lambda net: list(stored(net).state_dict().values()),
    "saves its optimizer": lambda net: loaded(net.optimizer.state_dict()),
    "saves a list": lambda net: loaded([net.held, net.counter]),
    "copies": lambda net: [*copy.deepcopy(net).state_dict().values(), *copy.deepcopy(net.held["shift"])],
    "evaluates": evaluates, "counts": counts, "flags": raises_a_flag, "draws": lambda net: torch.randn(3),
    "trains": trains,
    "compiles": lambda net: sa.aot_compile(lambda x: net.linear(x) * net.counter)(torch.ones(1, 3)).detach(),
}  # fmt: skip


def different(expected: Any, got: Any) -> list[str]:
    (mine, one), (its, other) = optree.tree_flatten(expected), optree.tree_flatten(got)
    return [said for x, y in zip(mine, its, strict=True) if (said := difference(x, y))] + ["structure"] * (one != other)


class Signal(Lines):
    """Has a handler do something at a line, and go on."""

    def __init__(self, at: Any, action: Callable[[], Any]) -> None:
        super().__init__(at)
        self.action, self.found = action, list[Any]()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.found.append(self.action())


def call(compile: Callable[[Any], Any], action: Any, at: Any, rows: int = 2) -> tuple[Any, Any]:
    """Calls a model once, with a signal at a line, and goes backward; in eager mode the handler runs first."""
    net = Net()
    run = compile(net)
    torch.manual_seed(1)
    found = [] if at is not None else [action(net)]
    x = torch.ones(rows, 3)
    signals = Signal(-1 if at is None else at, lambda: action(net))
    with signals:
        result = run(x)
    result.sum().backward()
    state = {**net.state_dict(), "held": net.held, "counter": net.counter, "seen": net.seen, "stops": net.stops}
    gradients = [p.grad for p in net.parameters()]
    outcome = result.detach(), copy.deepcopy(state), gradients, net.kept, torch.rand(3)
    return [*found, *signals.found], (outcome, signals)


def places(action: Any, many: int) -> list[tuple[str, int]]:
    for _ in range(2):  # what is remembered for good is by the second time
        _, (_, signals) = call(sa.aot_compile, action, -1)
    lines = [line for line in signals.first if not line[0].startswith("<")]  # generated code has a number each time
    return [lines[(i * 2 + 1) * len(lines) // (2 * many)] for i in range(many)]


@pytest.mark.parametrize("name", ACTIONS)
def test_a_handler_that_comes_while_a_call_is_compiled(name: str) -> None:
    action = ACTIONS[name]
    expected, (wanted, _) = call(lambda net: net, action, None)
    for at in places(action, 6):
        found, (outcome, signals) = call(sa.aot_compile, action, at)
        assert len(found) == 1 and "subclass_aot" in signals.where, signals.where
        after_all = name in ("counts", "flags", "draws", "trains") and "/runtime/" in signals.where
        if not after_all:
            assert not different([expected, wanted], [found, outcome]), signals.where


def test_random_alarms_that_save() -> None:
    """Each file has all data, whenever the alarm comes."""
    files: list[Any] = []
    net = Net()
    names = "linear.weight", "norm.running_mean", "steps"

    def save(number: int, frame: FrameType | None) -> None:
        files.append(({k: v for k, v in loaded({n: net.state_dict()[n] for n in names}).items()}, net.seen))

    before = signal.signal(signal.SIGALRM, save)
    try:
        for number in range(12):
            torch._dynamo.reset()
            compiled = sa.aot_compile(net, dynamic=number % 3 == 0)
            signal.setitimer(signal.ITIMER_REAL, 0.001 + 0.003 * number)
            compiled(torch.ones(2 + number % 3, 3)).sum().backward()
            signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert len(files) > 3
    for saved, _ in files:
        assert all(type(x) is torch.Tensor for x in saved.values())
        assert saved["linear.weight"].equal(net.linear.weight)


def test_a_timer_that_rings_all_the_time_does_not_keep_it_from_its_end() -> None:
    count = 0

    def tick(number: int, frame: FrameType | None) -> None:
        nonlocal count
        count += 1

    net = torch.nn.Sequential(*[torch.nn.Linear(3, 3) for _ in range(30)])
    before = signal.signal(signal.SIGALRM, tick)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
        result = sa.aot_compile(net)(torch.ones(2, 3))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert count > 2 and result.equal(net(torch.ones(2, 3)))


def test_an_alarm_ends_a_trace_that_hangs() -> None:
    """Also where signals came before that one."""

    def alarm(number: int, frame: FrameType | None) -> None:
        ticks.append(time.monotonic())
        if len(ticks) == 3:
            raise TimeoutError("too long")

    def hangs(x: Any) -> Any:
        while True:
            x = x + 1

    ticks: list[float] = []
    before = signal.signal(signal.SIGALRM, alarm)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
        with pytest.raises(TimeoutError, match="too long"):
            sa.aot_compile(hangs)(torch.ones(2))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_program_that_catches_everything() -> None:
    """The trace is not what counts then."""

    def step(x: Any) -> Any:
        try:
            signal.raise_signal(signal.SIGUSR1)
        except BaseException:
            return x - 1
        return x + 1

    found: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: found.append(number))
    try:
        assert sa.aot_compile(step)(torch.ones(2)).tolist() == [2, 2] and found
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_handler_that_the_program_sets_itself_stays() -> None:
    mine: list[Any] = []

    def handler(number: int, frame: FrameType | None) -> None:
        mine.append(number)

    def step(x: Any) -> Any:
        signal.signal(signal.SIGUSR1, handler)
        return x + 1

    before = signal.signal(signal.SIGUSR1, lambda number, frame: None)
    try:
        sa.aot_compile(step)(torch.ones(2))
        assert signal.getsignal(signal.SIGUSR1) is handler
    finally:
        signal.signal(signal.SIGUSR1, before)
