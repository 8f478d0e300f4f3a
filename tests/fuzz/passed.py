"""Random programs of numbers, texts and tables that are passed, and are others at each call."""

from __future__ import annotations

import collections
import copy
import dataclasses
import enum
import json
import math
import types
import warnings
from collections.abc import Callable
from typing import Any

import torch
from hypothesis import strategies as st

from subclass_aot import aot_compile
from subclass_aot.base._stack import pass_on_interruption


class Color(enum.Enum):
    """A kind of thing."""

    RED = 1
    BLUE = 2


@dataclasses.dataclass
class Settings:
    """What a step is given."""

    scale: float
    step: int
    name: str
    inner: Any = None


Pair = collections.namedtuple("Pair", "first second")
"""A named tuple."""

WORLD = {
    "torch": torch, "math": math, "json": json, "copy": copy, "dataclasses": dataclasses, "types": types,
    "Color": Color, "Settings": Settings, "Pair": Pair,
}  # fmt: skip
"""The globals of a program."""

NUMBERS = (
    "n", "r", "d['step']", "d['scale']", "s.step", "s.scale", "items[0]", "p.second", "n // 2", "n % 3", "r * n",
    "flag",
)  # fmt: skip
"""What a number is read from."""

OF_NUMBERS = (
    "x = x * {0}", "x = x + {0}", "x = x[: int({0}) % 4 + 1]", "x = x.roll(int({0}))", "x = x.clamp(min={0})",
    "x = x * 2 if {0} > 2 else x - 1", "for _ in range(int({0}) % 3): x = x + 1",
    "x = x + torch.full((3,), {0}).sum()", "x = x * math.sqrt(abs({0}))", "x = x + torch.tensor([{0}, {1}]).sum()",
    "x = x * {{0: 2.0, 1: 3.0}}.get({0}, 4.0)", "x = x * [1.0, 2.0, 3.0][int({0}) % 3]", "x = x + round({0}, 1)",
    "x = x * min({0}, 3) + max({1}, 0.5)", "x = x + int({0} == {1})", "out.append({0})", "out.append(f\"{{{0}}}\")",
    "out.append(str({0}))", "out.append(-{0})", "out.append(({0}, type({0}).__name__))", "out.append({0} + {1})",
    "out.append(bool({0}))", "out.append(hash({0}))", "out.append(isinstance({0}, int))", "out.append([{0}] * 2)",
    "out.append({{{0}: 1}})", "x = x + hash({0}) % 3", "x = torch.add(x, x, alpha=int({0}))",
    "x = x ** (int({0}) % 3)", "x = x + torch.arange(int({0}) % 5).sum()", "x = x + divmod({0}, 3)[1]",
    "x = x * ({0} or 1)", "x = x if {0} in (1, 2, 2.5) else x + 1",
    "x = x.to(torch.float64) * {0}", "x = torch.where(x > {0}, x, {1})", "x = x.new_full((2,), {0}).sum() + x",
    "x = torch.lerp(x, x * 2, float({0}))", "x = torch.nn.functional.dropout(x, min(abs({0}), 1) * 0)",
    "x = x + torch.scalar_tensor({0})", "assert {0} == {0}", "x = x * complex({0}, 0).real", "out.append(int({0}))",
    "x = x + sorted([{0}, {1}, 1])[1]", "x = x + sum([{0}, {1}])", "out.append(float({0}))",
    "x = x * {0} / ({1} + 10)",
    "match {0}:\n        case 1: x = x + 1\n        case int(): x = x + 2\n        case _: x = x + 3",
    "x = x + (1 if {0} <= {1} < 9 else 2)", "out.append(math.floor({0}))", "out.append('%d %s' % ({0}, {1}))",
)  # fmt: skip
"""Statements of numbers."""

VALUES = (
    "t", "color", "d", "d['name']", "d['inner']", "s", "s.name", "s.inner", "items", "items[1:]", "p", "p.first",
    "space",
)  # fmt: skip
"""What may be something else than a number."""

OF_VALUES = (
    "out.append({0})", "out.append(str({0}))", "x = x + len(str({0}))", "out.append({0} == {1})",
    "out.append(copy.copy({0}))", "x = x * 2 if {0} else x + 1", "out.append(isinstance({0}, (str, dict)))",
    "out.append(repr([{0}, {1}]))", "out.append(json.dumps({0}, default=str))", "x = x + (1 if {0} is None else 2)",
    "out.append({0} is {1})", "kept.append({0})", "out.append(copy.deepcopy({0}))",
    "x = x + (2 if {0} in ('a', 'red', None) else 1)",
)  # fmt: skip
"""Statements of values."""

OF_TABLES = (
    "d['step'] += 1", "d['new'] = n", "d['scale'] = r * 2", "d.pop('name', None)", "x = x + len(d)",
    "out.append(list(d))", "out.append(sorted(d))", "x = x + sum(v for v in d.values() if type(v) is float)",
    "out.append({**d})", "out.append(dict(d))", "for k, v in d.items(): out.append((k, v))",
    "x = x * d.get('missing', 2)", "out.append('name' in d)", "d.update(step=n)", "out.append(d | {'more': 1})",
    "d.setdefault('first', t)", "s.step += 1", "s.name = t + '!'", "out.append(dataclasses.replace(s, step=1))",
    "out.append(vars(s))", "out.append(dataclasses.asdict(s))", "s.extra = r",
    "out.append(getattr(s, 'extra', None))", "items.append(n)", "items[0] = r", "x = x + len(items)",
    "for v in items: out.append(v)", "out.append(items[-1])", "first, *rest = items; out.append(rest)",
    "out.append(items + [1])", "items.reverse()", "a, b = p; out.append((b, a))", "out.append(p._replace(first=n))",
    "space.count = getattr(space, 'count', 0) + n", "x = x * space.weight", "out.append(vars(space))",
    "x = x + d['held']", "x = x * s.inner['held'] if isinstance(s.inner, dict) else x", "d['held'] = x.detach()",
    "d['inner']['deep'] = n", "out.append(d['inner']['deep'])", "x = x + d['inner']['deep']", "d.clear()",
    "n = n + 1", "r = r / 2", "x = (lambda step, scale=2, **others: x * step + scale)(**d)",
    "out.append(d.keys() & {'step', 'name'})", "del d['name']",
    "match d:\n        case {'name': 'a'}: x = x + 1\n        case {'step': int(k)}: x = x + k",
    "out.append(type(d).__name__)", "out.append(min(d))", "kept.append(d)", "out.append(d is s.inner)",
    "out.append(d == s.inner)",
)  # fmt: skip
"""Statements of dicts, lists and objects."""


@dataclasses.dataclass(frozen=True)
class DrawnPassed:
    """A program.

    Attributes:
        lines: Its statements.
        changes: Which of `_values` are others at each call; those that are not stay as they are.
        keeps: Whether the same dict, list and objects are passed each time, and are changed between calls.
        kind: The class of the dict.
        requires_grad: Whether its tensor does.
        dynamic: As in `aot_compile`.
    """

    lines: tuple[str, ...]
    changes: frozenset[str]
    keeps: bool
    kind: str
    requires_grad: bool
    dynamic: bool | None

    def function(self, kept: list[Any]) -> Callable[..., Any]:
        """Returns the program; it may append to `kept`."""
        scope: dict[str, Any] = {**WORLD, "__name__": __name__, "kept": kept}
        lines = "\n    ".join(self.lines)
        exec(
            f"def program(x, n, r, d, s, items, p, *, t, flag, color, space):\n    out = []\n    {lines}\n"
            "    return x, out\n",
            scope,
        )
        return scope["program"]  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        about = f"# {sorted(self.changes)} change, kept: {self.keeps}, {self.kind}, grad: {self.requires_grad}"
        return "\n".join([f"{about}, dynamic: {self.dynamic}", *self.lines])


CHANGING = ("step", "scale", "name", "flag", "color", "inner")
"""What may change from call to call."""

KINDS = ("dict", "collections.OrderedDict", "collections.defaultdict", "collections.Counter")
"""Classes of dicts."""


def passed() -> st.SearchStrategy[DrawnPassed]:
    """Draws programs."""
    number, value = st.sampled_from(NUMBERS), st.sampled_from(VALUES)
    line = st.one_of(
        st.builds(str.format, st.sampled_from(OF_NUMBERS), number, number),
        st.builds(str.format, st.sampled_from(OF_VALUES), value, value),
        st.sampled_from(OF_TABLES),
    )
    return st.builds(
        DrawnPassed,
        st.lists(line, min_size=1, max_size=4).map(tuple),
        st.frozensets(st.sampled_from(CHANGING)),
        st.booleans(),
        st.sampled_from(("dict", "dict", *KINDS)),
        st.booleans(),
        st.sampled_from((None, None, None, False, True)),
    )


def check_passed(drawn: DrawnPassed) -> None:
    """Compares calls with eager mode: results, gradients, errors, and what is left in what was passed.

    Args:
        drawn: The program.

    Raises:
        AssertionError: There is a difference.
    """
    expected = run(drawn, lambda f: f)
    got = run(drawn, lambda f: aot_compile(f, dynamic=drawn.dynamic))
    for call, (one, other) in enumerate(zip(expected, got, strict=True)):
        assert other == one, f"call {call}, {drawn}:\n{other}\nin eager mode:\n{one}"


def run(drawn: DrawnPassed, compile_: Callable[[Any], Any]) -> list[Any]:
    """Returns what five calls gave, and left in what was passed."""
    kept: list[Any] = []
    compiled, found = compile_(drawn.function(kept)), []
    held: dict[str, Any] | None = None
    for call in range(5):
        values = _values(drawn, call)
        if held is None or not drawn.keeps:
            held = values
        else:
            _refresh(held, values)
        arguments = {**values, **{name: held[name] for name in ("d", "s", "items", "space")}}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found.append(_called(compiled, arguments, drawn.requires_grad))
        found.append(described({**arguments, "kept": list(kept)}))
    return found


def _called(function: Callable[..., Any], arguments: dict[str, Any], requires_grad: bool) -> Any:
    """Returns all that a call and backward gave, or the class of their error."""
    x = arguments["x"].requires_grad_(requires_grad)
    try:
        result, out = function(**arguments)
        if result.requires_grad and result.is_floating_point():
            result.sum().backward()
    except Exception as error:
        pass_on_interruption(error)
        if isinstance(error, AssertionError):
            return "AssertionError"
        return type(error).__name__, str(error)[:20]
    return described((result, out, x.grad))


def _values(drawn: DrawnPassed, call: int) -> dict[str, Any]:
    """Returns the arguments of a call; what `drawn.changes` names is another at each but the second."""
    index = max(0, call - 1)
    at = {name: index if name in drawn.changes else 0 for name in CHANGING}
    step, scale = (3, 4, 2, 1)[at["step"]], (2.5, 0.5, 3.0, 1.5)[at["scale"]]
    name, inner = (
        ("a", "b", "", "red")[at["name"]],
        ({"deep": 1}, {"deep": 2}, {"deep": 2.5}, {"deep": "a"})[at["inner"]],
    )
    held = torch.tensor([1.0]) + index
    table = eval(drawn.kind, {"collections": collections})()
    _update(table, {"step": step, "scale": scale, "name": name, "inner": dict(inner), "held": held})
    return {
        "x": torch.arange(3.0),
        "n": step,
        "r": scale,
        "d": table,
        "s": Settings(scale, step, name, {"held": held, **inner}),
        "items": [step, name, scale, None],
        "p": Pair(name, scale),
        "t": name,
        "flag": (True, False)[at["flag"] % 2],
        "color": (Color.RED, Color.BLUE)[at["color"] % 2],
        "space": types.SimpleNamespace(weight=scale, label=name, held=held),
    }


def _refresh(held: dict[str, Any], values: dict[str, Any]) -> None:
    """Changes the tables and objects that are passed again to those of another call."""
    _update(held["d"], values["d"])
    held["items"][:] = values["items"]
    vars(held["s"]).update(vars(values["s"]))
    vars(held["space"]).update(vars(values["space"]))


def _update(table: dict[str, Any], values: dict[str, Any]) -> None:
    if isinstance(table, collections.Counter):
        dict.update(table, values)  # its own adds
    else:
        table.update(values)


def described(value: Any, depth: int = 0) -> Any:
    """Returns a value as one that compares by all of it: classes, dtypes, order of keys."""
    if isinstance(value, torch.Tensor):
        return "tensor", str(value.dtype), str(value.tolist()), value.requires_grad
    if isinstance(value, dict):
        return type(value).__name__, [(described(k), described(v, depth + 1)) for k, v in value.items()]
    if isinstance(value, list | tuple):
        return type(value).__name__, [described(v, depth + 1) for v in value]
    if isinstance(value, Settings | types.SimpleNamespace):
        return type(value).__name__, described(vars(value), depth + 1) if depth < 8 else None
    return type(value).__name__, repr(value)
