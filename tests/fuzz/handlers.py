"""Random programs over state that a handler of signals interrupts: it finds data, and changes nothing by coming."""

from __future__ import annotations

import copy
import dataclasses
import io
import signal
from collections.abc import Callable
from types import FrameType
from typing import Any

import optree
import torch
from hypothesis import strategies as st

from subclass_aot.engine.compile import aot_compile
from subclass_aot.meta import MetaTensor
from subclass_aot.testing.compare import dense_leaves
from tests.fuzz.state import Call, DrawnState, check_state, states


class _Noted:
    """What a handler does with a module, and has to show for it.

    Attributes:
        came: How often it came.
        count: A tensor that counts it.
        saved: What it has read and saved, in the order in which it came.
    """

    def __init__(self) -> None:
        self.came = 0
        self.count = torch.zeros((), dtype=torch.int64)
        self.saved: list[Any] = []
        self.generator = torch.Generator().manual_seed(3)


def _saves(net: Any, noted: _Noted) -> None:
    data = io.BytesIO()
    torch.save(net.state_dict(), data)
    data.seek(0)
    noted.saved.append(torch.load(data, weights_only=False))


def _evaluates(net: Any, noted: _Noted) -> None:
    with torch.no_grad():
        noted.saved.append((net.p * 2).sum() + net.b.sum())


DOES: dict[str, Callable[[Any, _Noted], None]] = {
    "saves": _saves,
    "evaluates": _evaluates,
    "copies": lambda net, noted: noted.saved.append([net.b.clone(), copy.deepcopy(net.p), copy.deepcopy(net.kept)]),
    "counts": lambda net, noted: (noted.count.add_(1), None)[1],
    "draws": lambda net, noted: noted.saved.append(torch.rand(2, generator=noted.generator)),
    "compiles": lambda net, noted: noted.saved.append(aot_compile(lambda x: x * 2)(torch.ones(2))),
}
"""What a handler does; nothing of it is in what the program reads."""


@dataclasses.dataclass(frozen=True)
class DrawnHandler:
    """A program over state, and a handler.

    Attributes:
        program: The program.
        does: What the handler does.
        after: When the signal comes, in milliseconds after the beginning of each call.
    """

    program: DrawnState
    does: str
    after: tuple[float, ...]


def check_handler(drawn: DrawnHandler) -> bool:
    """Runs a program compiled, with signals, and in eager mode without any, and compares as `check_state` does.

    Args:
        drawn: What was drawn.

    Returns:
        Whether all of it ran, and was not refused by name.

    Raises:
        AssertionError: There is a difference, or the handler has found a tensor without data.
    """
    noted, number = _Noted(), iter(range(len(drawn.program.calls)))
    own = DOES[drawn.does]

    def interrupted(net: Any) -> Callable[[Any], Any]:
        compiled = aot_compile(net, dynamic=drawn.program.dynamic)

        def handler(number: int, frame: FrameType | None) -> None:
            noted.came += 1
            own(net, noted)

        def call(x: Any) -> Any:
            before = signal.signal(signal.SIGALRM, handler)
            signal.setitimer(signal.ITIMER_REAL, drawn.after[next(number) % len(drawn.after)] / 1000)
            try:
                return compiled(x)
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
                signal.signal(signal.SIGALRM, before)

        return call

    ran = check_state(dataclasses.replace(drawn.program, blocks=False), interrupted)
    if drawn.does == "counts":
        assert noted.count == noted.came, f"{noted.count} of {noted.came} signals are counted"
    elif drawn.does == "draws":
        expected = torch.rand(2 * noted.came, generator=torch.Generator().manual_seed(3))
        assert not noted.came or torch.equal(torch.cat(noted.saved), expected), "the handler has drawn other numbers"
    else:
        assert len(noted.saved) == noted.came, f"{len(noted.saved)} of {noted.came} handlers came to their end"
    for found in optree.tree_leaves(noted.saved):
        for leaf in dense_leaves(found) if isinstance(found, torch.Tensor) else ():
            assert not isinstance(leaf, MetaTensor) and leaf.device.type == "cpu", f"without data: {leaf!r}"
            leaf.sum().item()
    return ran


EXAMPLE = DrawnHandler(DrawnState(("self.n += 1", "self.b.add_(1)"), (Call(), Call())), "counts", (1,))


@st.composite
def handlers(draw: st.DrawFn) -> DrawnHandler:
    """Draws programs over state with signals at random times."""
    program = draw(states())
    after = draw(st.lists(st.sampled_from((0.1, 0.5, 1, 2, 3, 5, 8, 13, 21)), min_size=1, max_size=3))
    return DrawnHandler(program, draw(st.sampled_from(sorted(DOES))), tuple(after))
