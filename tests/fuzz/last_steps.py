"""Random programs that end with a view that has a gradient of its own: alone, with what it is a view of, and twice."""

from __future__ import annotations

import dataclasses

from hypothesis import strategies as st

from tests.fuzz.programs import Program, programs
from tests.fuzz.templates import FUNCTIONS

RESULTS = (
    "w",
    "{0}, w",
    "w, {0}",
    "w, {1}",
    "w.view_as(w)",
    "w[..., :1]",
    "w, {0}.view_as({0})",
    "w, w.detach()",
    "w + 1, w",
)
"""What such a program returns, of the view `w`, of what that is made of, and of the same made once more."""


@st.composite
def last_steps(draw: st.DrawFn, everything: bool = False) -> Program:
    """Programs with one more step, whose result is returned.

    Args:
        draw: Hypothesis gives it.
        everything: As of `programs`.
    """
    program: Program = draw(programs(max_statements=3, everything=everything))
    last, step = draw(st.sampled_from(program.results)), draw(st.sampled_from(FUNCTIONS))
    operand = last if last.isidentifier() else "x0"
    lazy = program.mode != "inference"  # where wrappers are given conjugates whole
    results = draw(st.sampled_from([*RESULTS, *["w.conj(), {0}.mH"] * lazy])).format(operand, step.format(operand))
    statements = (*program.statements, (f"w = {step.format(operand)}", False))
    later = dataclasses.replace(program.later, after=draw(st.sampled_from(["", program.later.after])))
    return dataclasses.replace(program, statements=statements, results=tuple(_split(results)), later=later)


def _split(results: str) -> list[str]:
    """Returns the expressions in a tuple of them, of which none has a comma outside of brackets."""
    found, depth = [""], 0
    for letter in results:
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and not depth:
            found.append("")
        else:
            found[-1] += letter
    return [each.strip() for each in found]
