"""Random programs over state that raise at a random line: what they did before is done, as in eager mode."""

from __future__ import annotations

import dataclasses
import functools
import traceback
import warnings
from collections.abc import Callable
from typing import Any

import torch
from hypothesis import strategies as st

from subclass_aot.doors.blocks import compile_blocks
from subclass_aot.engine.compile import aot_compile
from subclass_aot.errors import SubclassAotError
from tests.fuzz.state import HOOKS, KEPT, READS, WRITES, Call, DrawnState, Run, compare

RAISES = (
    "raise ValueError(self.n)", "self.table['absent']", "1 // 0", "self.nothing", "assert not 1, 'said'",
    "y @ torch.ones(7, 7)", "y.view(5, 5)", "next(iter(()))", "self.child.forward()", "y.add_('a')",
    "raise ExceptionGroup('two', [ValueError(1), KeyError(2)])", "raise type('Own', (BaseException,), {})(self.n)",
    "raise GeneratorExit", "[] [3]", "torch.cat([])", "torch.nn.functional.linear(y, self.p, y, y)",
)  # fmt: skip
"""Statements that raise."""

WHEN = (
    "{0}", "if self.n % 2: {0}", "if 'k' in self.table: {0}", "if x.shape[0] > 2: {0}", "if x.sum() < 1: {0}",
    "exec(compile(\"try:\\n    {0}\\nfinally: self.log.append(2)\", 'finally', 'exec'))",
)  # fmt: skip
"""When one does; or what happens on the way out."""

DOES = (
    "self.kept = torch.rand(3)", "y = torch.nn.functional.dropout(y, 0.5)", "(self.p * 2).sum().backward()",
    "self.p.grad = None", "self.p.data.mul_(0.5)", "self.log.append(torch.randn(()))",
    "(self.w * 2).a.sum().backward() if torch.is_grad_enabled() else None",
    "torch.optim.SGD([self.p], 0.1).step()", "self.b.normal_()", "self.kept.detach().mul_(2)",
)  # fmt: skip
"""Lines that do what a trace alone undoes."""


@dataclasses.dataclass(frozen=True)
class DrawnRaise(DrawnState):
    """A program over state in which a line may raise."""


def check_raising(drawn: DrawnState, compiler: Callable[[Any], Callable[..., Any]] | None = None) -> bool:
    """Runs a program compiled and in eager mode, and compares errors, results, gradients and state after each call.

    Args:
        drawn: The program.
        compiler: Compiles a module; `aot_compile` with "eager" where it is left out.

    Returns:
        Whether all of it ran: False, if it was refused by name.

    Raises:
        AssertionError: There is a difference.
    """
    compilers = compile_blocks if drawn.blocks else aot_compile
    eager, compiled = (
        Run(drawn, made) for made in (lambda net: net, compiler or functools.partial(compilers, dynamic=drawn.dynamic))
    )
    for number, call in enumerate(drawn.calls):
        given = []
        for run in (eager, compiled):
            torch.manual_seed(number)
            try:
                run.prepare(call)
                given.append(_outcome(run, call))
            except SubclassAotError:
                return False
            given[-1]["draws"] = torch.rand(3)
        if "error" in given[0] and given[0]["error"][0] is None:
            return False
        compare(*given, f"call {number}")
        compare(eager.state(), compiled.state(), f"call {number}")
    return True


def _outcome(run: Run, call: Call) -> dict[str, Any]:
    """Returns what a call gives, or raises, and where."""
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message="(.|\n)*the function itself ran")
            result = run.call(run.x)
    except SubclassAotError:
        raise
    except UserWarning as error:
        raise AssertionError(str(error)) from error
    except (Exception, GeneratorExit) as error:
        return _described(error, run)
    except BaseException as error:
        if type(error).__name__ != "Own":
            raise
        return _described(error, run)
    try:
        for time in range(call.backward if result.requires_grad else 0):
            result.sum().backward(retain_graph=time + 1 < call.backward)
    except RuntimeError as error:
        return {"error": (None, type(error).__name__)}
    return {"result": result.detach(), "requires_grad": result.requires_grad}


def _described(error: BaseException, run: Run) -> dict[str, Any]:
    lines = [(frame.f_code.co_name, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    mine = [place for place in lines if place[0] in ("forward", "count", "note")]
    return {"error": (type(error).__name__, str(error), mine, error.__context__ is None)}


@st.composite
def raises(draw: st.DrawFn) -> DrawnRaise:
    """Draws programs over state with a line that raises, or may."""

    def some(kinds: tuple[str, ...], most: int) -> list[str]:
        return draw(st.lists(st.sampled_from(kinds), max_size=most))

    lines = draw(st.permutations(some(READS, 2) + some(WRITES, 2) + some(KEPT, 1) + some(HOOKS, 1) + some(DOES, 2)))
    at = draw(st.integers(0, len(lines)))
    lines.insert(at, draw(st.sampled_from(WHEN)).format(draw(st.sampled_from(RAISES))))
    calls = st.builds(
        Call,
        before=st.lists(st.sampled_from(("self.n += 1", "self.table['k'] = 1")), max_size=1).map(tuple),
        rows=st.sampled_from((2, 2, 3, 4)),
        requires_grad=st.booleans(),
        backward=st.sampled_from((0, 1)),
    )
    drawn = draw(st.lists(calls, min_size=2, max_size=4))
    dynamic, blocks = draw(st.sampled_from((None, None, True))), draw(st.sampled_from((False, False, True)))
    return DrawnRaise(tuple(lines), tuple(drawn), dynamic, blocks)
