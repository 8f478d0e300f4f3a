"""Random programs of texts of tensors, and of tuples, numbers and texts with attributes."""

from __future__ import annotations

import collections
import copy  # noqa: F401  # which statements name
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st

from subclass_aot import aot_compile


class Record(collections.namedtuple("Record", "first second")):
    """A named tuple with attributes."""


class Row(tuple[Any, ...]):
    """A tuple with attributes."""


class Whole(int):
    """A whole number with attributes."""


class Real(float):
    """A number with attributes."""


class Word(str):
    """A text with attributes."""


KINDS = ("Record(x + 1, 2)", "Record(1, 2)", "Row([x * 2, x])", "Whole(3)", "Real(1.5)", "Word('word')")
"""What makes a value, of a tensor."""

TENSORS = ("x", "x * 2", "x.sum()", "x.argmax()", "(x > 1)", "(x > 1).any()", "x.reshape(1, -1)", "x.long()", "x[:1]")
"""What texts are made of."""

TEXTS = (
    "out.append(str({0}))", "out.append(f'{{{0}}}')", "out.append('%s' % ({0},))", "out.append(repr([{0}, {1}]))",
    "out.append({{str({0}): 1}})", "out.append(','.join(map(str, [{0}, {1}])))", "out.append(f'{{{0}!r:>30}}')",
    "x = x * 2 if len(str({0})) % 2 else x + 1", "x = x.sin() if f'{{{0}}}' < f'{{{1}}}' else x.cos()",
    "v.text = f'{{{0}}}'",
)  # fmt: skip
"""Statements that make a text."""

ATTRIBUTES = (
    "v.n = getattr(v, 'n', 0) + 1", "v.t = {0}", "v.k = getattr(v, 'k', 1) * 2", "out.append(getattr(v, 't', None))",
    "x = x * getattr(v, 'k', 1)", "x = x + v.t if hasattr(v, 't') and v.t.dtype is x.dtype else x", "out.append(v)",
    "v.__dict__.pop('t', None)", "w = copy.copy(v); w.of = v; w.t = {0}; out += [w, w]", "v.held = [{0}]",
    "held.append(v)", "out.append(v is held[0])", "v.child = Whole(2); v.child.t = {0}",
)  # fmt: skip
"""Statements that read or change the attributes of a value."""


@dataclass(frozen=True)
class DrawnValues:
    """A program.

    Attributes:
        kind: What makes the value that it is given.
        lines: Its statements.
        requires_grad: Whether its tensor does.
        dynamic: As in `aot_compile`.
    """

    kind: str
    lines: tuple[str, ...]
    requires_grad: bool
    dynamic: bool | None

    def function(self) -> Any:
        """Returns the program, of a tensor, a value and a list that holds it."""
        names: dict[str, Any] = {**globals(), "__name__": "drawn"}
        lines = "\n    ".join(self.lines)
        exec(f"def program(x, v, held):\n    out = []\n    {lines}\n    return x, out", names)
        return names["program"]

    def calls(self) -> list[tuple[Any, ...]]:
        """Makes the arguments of calls: the first twice, then those of other values, attributes and sizes."""
        found = []
        for i in (0, 0, 1, 2):
            x = (torch.arange(3.0 + i // 2) - i).requires_grad_(self.requires_grad)
            value = eval(self.kind, globals(), {"x": x.detach()})
            if i == 1:
                value.k = 3
            if i == 2:
                value.t = x.detach() + 1
            found.append((x, value, [value]))
        return found

    def __repr__(self) -> str:
        about = f"# v = {self.kind}, x requires grad: {self.requires_grad}, dynamic: {self.dynamic}"
        return "\n".join([about, *self.lines])


def values() -> st.SearchStrategy[DrawnValues]:
    """Draws programs."""
    tensor = st.sampled_from(TENSORS)
    line = st.builds(str.format, st.sampled_from((*TEXTS, *ATTRIBUTES)), tensor, tensor)
    lines = st.lists(line, min_size=1, max_size=5).map(tuple)
    return st.builds(DrawnValues, st.sampled_from(KINDS), lines, st.booleans(), st.sampled_from((None, True)))


def check_values(drawn: DrawnValues) -> None:
    """Compares calls of a program with eager mode.

    Args:
        drawn: What was drawn.

    Raises:
        AssertionError: There is a difference.
    """
    program, compiled = drawn.function(), aot_compile(drawn.function(), dynamic=drawn.dynamic)
    for one, other in zip(drawn.calls(), drawn.calls(), strict=True):
        assert described((compiled(*other), other), other[1]) == described((program(*one), one), one[1])


def described(value: Any, given: object, depth: int = 0) -> Any:
    """Says all of a result, and where in it the value is that was given."""
    if isinstance(value, torch.Tensor):
        return "tensor", value.dtype, value.tolist(), value.requires_grad
    if isinstance(value, dict):
        return {key: described(part, given, depth + 1) for key, part in value.items()}
    parts = [described(part, given, depth + 1) for part in value] if isinstance(value, list | tuple) else repr(value)
    beside = described(vars(value), given, depth + 1) if hasattr(value, "__dict__") and depth < 8 else None
    return type(value).__name__, parts, value is given, beside
