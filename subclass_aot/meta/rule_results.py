"""What a shape rule returns: what is checked of it, and what is written where there is none."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple

import torch

from subclass_aot.base import _torch
from subclass_aot.base._stack import user_line
from subclass_aot.base._torch.operators import Operator
from subclass_aot.base.operators import argument_at, effects_of
from subclass_aot.errors import ShapeRuleError

_NO_RULE = """{operator} has no rule that tells the shape of its result.
  Schema:     {schema}
  Your line:  {line}
  Torch says: {reason}
  Write the rule (it receives tensors without data and returns {kind}):

{lines}"""

_WRONG_RESULT = """The shape rule of {operator} returns {found}, and the operator returns {kind}.
  Schema:     {schema}
  The rule:   {place}
  Your line:  {line}
  Write instead:

{lines}"""

_STUB = """      @subclass_aot.register_meta(torch.ops.{operator})
      def _({parameters}):
          return {results}"""


class MissingRule(NamedTuple):
    """An operator without a shape rule.

    Attributes:
        operator: The operator.
        line: Where the program calls it first.
        lines: The rule to write.
    """

    operator: Operator
    line: str
    lines: str


noted: ContextVar[list[MissingRule] | None] = ContextVar("noted", default=None)
"""While it is a list, operators without a rule are noted there, and their results are guessed."""


def without_rule(func: Operator, reason: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Guesses what an operator without a rule returns, if it is to be noted.

    Args:
        func: The operator.
        reason: Why torch has no shape for it.
        args: Its arguments, on meta.
        kwargs: Its keyword arguments.

    Returns:
        Tensors like the first tensor among the arguments.

    Raises:
        ShapeRuleError: It is not to be noted. The error has the rule to write.
    """
    missing = noted.get()
    if missing is not None:
        missing.append(MissingRule(func, user_line(), _lines(func)))
        return _guessed(func, args, kwargs)
    raise ShapeRuleError(_NO_RULE.format(reason=reason, **_described(func)))


def of_written(func: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...] | None:
    """Returns the results of an operator that returns nothing but arguments that it writes, whose sizes stay; else
    None.
    """
    places = effects_of(func).returns_written
    if not places or any(place is None for place in places):
        return None
    return tuple(argument_at(place, args, kwargs) for place in places if place is not None)


def checked(func: Operator, rule: Callable[..., Any], result: Any) -> Any:
    """Returns what a rule returned.

    Raises:
        ShapeRuleError: It is not what the schema of the operator says.
    """
    kinds = _kinds(func)
    if len(kinds) == 1:
        fits = _fits(kinds[0], result)
    else:
        fits = not kinds or isinstance(result, tuple | list) and len(result) == len(kinds) and all(
            value is None or _fits(kind, value) for kind, value in zip(kinds, result, strict=True)
        )  # fmt: skip
    if fits:
        return result
    code = getattr(inspect.unwrap(rule), "__code__", None)  # a partial, or an object that is called, has none
    place = repr(rule) if code is None else f'File "{code.co_filename}", line {code.co_firstlineno}'
    raise ShapeRuleError(_WRONG_RESULT.format(found=_named(result), place=place, **_described(func)))


def _kinds(func: Operator) -> list[str]:
    return [str(each.type) for each in _torch.operators.schema_of(func).returns]


def _fits(kind: str, value: object) -> bool:
    match kind:
        case "Tensor":
            return isinstance(value, torch.Tensor)
        case "Optional[Tensor]":
            return value is None or isinstance(value, torch.Tensor)
        case "List[Tensor]":
            return isinstance(value, list | tuple) and all(isinstance(x, torch.Tensor) for x in value)
        case _:
            return value is not None and not isinstance(value, torch.Tensor)


_WORDS = {"Tensor": "a tensor", "Optional[Tensor]": "a tensor or None", "List[Tensor]": "a list of tensors"}


def _named(result: object) -> str:
    """Returns words for what a rule returned."""
    if isinstance(result, tuple | list):
        kind = "a list" if isinstance(result, list) else "a tuple"
        return f"{kind} of {len(result)}: {', '.join(map(_named, result))}" if result else f"{kind} of none"
    return "a tensor" if isinstance(result, torch.Tensor) else "None" if result is None else f"{result!r}"


def _described(func: Operator) -> dict[str, Any]:
    kinds = [_WORDS.get(kind, f"a value of the type {kind}") for kind in _kinds(func)]
    kind = f"a tuple of {len(kinds)}: {', '.join(kinds)}" if len(kinds) > 1 else kinds[0] if kinds else "nothing"
    schema = _torch.operators.schema_of(func)
    return {"operator": func, "schema": schema, "line": user_line(), "kind": kind, "lines": _lines(func)}


def _lines(func: Operator) -> str:
    """Returns the rule to write for an operator."""
    schema = _torch.operators.schema_of(func)
    parameters = [f"{a.name}={a.default_value!r}" if a.has_default_value() else a.name for a in schema.arguments]
    if any(a.kwarg_only for a in schema.arguments):
        parameters.insert([a.kwarg_only for a in schema.arguments].index(True), "*")
    new = "torch.empty(..., device='meta')"
    for argument in reversed(schema.arguments):
        if "Tensor" in str(argument.type):
            new = f"{argument.name}{'[0]' * ('List' in str(argument.type))}.new_empty(...)"
    results = [
        place[1] if place is not None else _result_to_write(kind, new)
        for kind, place in zip(_kinds(func), effects_of(func).returns_written, strict=True)
    ]
    comment = "the result's shape" if len(results) == 1 else "the shape of each result"
    return _STUB.format(operator=func, parameters=", ".join(parameters), results=f"{', '.join(results)}  # {comment}")


def _result_to_write(kind: str, new: str) -> str:
    if kind == "List[Tensor]":
        return f"[{new}]"
    return new if "Tensor" in kind else "..."


def _guessed(func: Operator, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Returns a result of the right kind: tensors like the first that is given, packed, and written arguments."""
    given = [
        x
        for value in (*args, *kwargs.values())
        for x in (value if isinstance(value, list | tuple) else [value])
        if isinstance(x, torch.Tensor)
    ]
    found: list[Any] = []
    for kind, place in zip(_kinds(func), effects_of(func).returns_written, strict=True):
        like = given[0].new_empty(given[0].shape) if given else torch.empty(0, device="meta")
        if place is not None:
            found.append(argument_at(place, tuple(args), kwargs))
        else:
            found.append([like] if kind == "List[Tensor]" else like if "Tensor" in kind else 0)
    return found[0] if len(found) == 1 else tuple(found)
