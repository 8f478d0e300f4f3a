"""The errors of operator dispatch: which operator, on what, at which line of the user's, why, and what to write."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from types import CodeType

import torch

from subclass_aot.base import _torch
from subclass_aot.base._stack import user_line
from subclass_aot.base._torch.operators import AnyOperator, Operator, Schema
from subclass_aot.base.operators import kind_of
from subclass_aot.errors import OperatorRuleError, RuleResultError, ShardingError
from subclass_aot.kit.wrapper.kind import Wrapper

_NOT_SHARDED = """FSDP2 cannot carry a {cls}.
  why: {why}.
  Instead: {instead}."""
_OR_HOOKS = (
    ", or make each field a parameter of its own, by subclass_aot.train_fields, or give {cls} both hooks, "
    "fsdp_pre_all_gather and fsdp_post_all_gather, of its own"
)


def no_rule(
    cls: type[Wrapper],
    func: AnyOperator,
    args: Sequence[object],
    kwargs: Mapping[str, object],
    why: str = "",
) -> OperatorRuleError:
    """Returns the error for an operator without a rule, with a stub to paste."""
    why = why or f"no rule along {cls.__name__}'s bases, no fallback (fallback=...) and no to_plain method serve it"
    said = f"No rule for {func} on {cls.__name__}.\n{_call(func, args, kwargs, why)}"
    return OperatorRuleError(f"{said}{_set_of(func)}Write one:\n\n{stub(cls, func)}")


def refused(cls: type[Wrapper], func: AnyOperator, args: Sequence[object], why: str) -> OperatorRuleError:
    """Returns the error for a call that no rule could serve."""
    return OperatorRuleError(f"{func} on {cls.__name__} is refused.\n{_call(func, args, {}, why)}".rstrip())


def other_than_outer(wrapper: torch.Tensor, plain: torch.Tensor) -> OperatorRuleError:
    """Returns the error for a `to_plain` that gives another size or dtype than the class says in `outer_metadata`."""
    cls = type(wrapper).__name__
    return OperatorRuleError(
        f"{cls}.to_plain() gives {plain.dtype} {list(plain.shape)}, and {cls}.outer_metadata() says {wrapper.dtype} "
        f"{list(wrapper.shape)}: operators would have results of another dtype or size.\n"
        f"  at:       {user_line()}\n"
        f"  Instead:  give what outer_metadata() says, as by `.to(self.dtype)`: fields marked with structure() keep\n"
        f"            their dtype where a wrapper is converted, and so does a table that is no field."
    )


def _call(func: AnyOperator, args: Sequence[object], kwargs: Mapping[str, object], why: str) -> str:
    schema = (
        _torch.operators.schema_of(func)
        if _torch.operators.is_overload(func)
        else "a higher-order operator, which has none"
    )
    called = [_describe(arg) for arg in args] + [f"{name}={_describe(arg)}" for name, arg in kwargs.items()]
    return (
        f"  schema:      {schema}\n"
        f"  called with: ({', '.join(called)})\n"
        f"  at:          {user_line()}\n"
        f"  why:         {why}.\n"
    )


def _set_of(func: AnyOperator) -> str:
    """Returns a hint that one rule can serve many operators."""
    kind = kind_of(func)
    return "" if kind is None else f"  or:          one rule for the set sa.ops.{kind.name.lower()} serves it, too.\n"


def declined(error: OperatorRuleError, func: AnyOperator, rule: object) -> OperatorRuleError:
    """Returns the error for an operator that has a rule, which did not want this call, where nothing else serves it."""
    said, ends, _ = str(error).partition("Write one:")
    if not ends or not said.startswith(f"No rule for {func} on "):
        return error  # of another operator, or one that says so already
    said = said.removesuffix(_set_of(func))
    return OperatorRuleError(
        f"{said}The rule {_place_of(rule)} declined: it returned NotImplemented. Have it serve this call, too."
    )


def _place_of(rule: object) -> str:
    """Returns the name of a rule, and the place where it is written."""
    code: CodeType | None = getattr(inspect.unwrap(rule) if callable(rule) else rule, "__code__", None)
    where = repr(rule) if code is None else f"{code.co_filename}:{code.co_firstlineno}"
    return f"{getattr(rule, '__qualname__', rule)} ({where})"


def stub(cls: type[Wrapper], func: AnyOperator) -> str:
    """Returns an empty rule for `func`, to paste and fill in."""
    if not _torch.operators.is_overload(func):
        name = f"torch.ops.higher_order.{func.name()}" if _torch.operators.is_higher_order(func) else str(func)
        params = "*args, **kwargs"
    else:
        name, params = f"torch.ops.{func}", _parameters(_torch.operators.schema_of(func))
    return f"    @{cls.__name__}.implements({name})\n    def _({params}):\n        ...\n"


def _parameters(schema: Schema) -> str:
    params, keyword_only = [], False
    for argument in schema.arguments:
        if argument.kwarg_only and not keyword_only:
            keyword_only = True
            params.append("*")
        default = f"={argument.default_value!r}" if argument.has_default_value() else ""
        params.append(f"{argument.name}{default}")
    return ", ".join(params)


def _describe(value: object) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_describe, value))}]"
    return type(value).__name__ if isinstance(value, torch.Tensor) else f"{value!r:.40}"


def _shown(value: object) -> str:
    if not isinstance(value, torch.Tensor):
        return f"{value!r:.80}"
    return f"{type(value).__name__} of size {list(value.shape)} and {value.dtype}"


def writes_to_dense(cls: type[Wrapper], func: AnyOperator, name: str) -> OperatorRuleError:
    """Returns the error for `dense.add_(wrapper)`: one dense tensor, several results."""
    return OperatorRuleError(
        f"{func} writes to (or views) `{name}`, a dense tensor, and reads a {cls.__name__}.\n"
        f"  at:  {user_line()}\n"
        f'  why: the fallback "each" has one result for every inner tensor, and a dense tensor can hold only one.\n'
        f"Use the operator that makes a new tensor, or write a rule:\n\n{stub(cls, func)}"
    )


def contexts_differ(
    cls: type[Wrapper], func: AnyOperator, name: str, first: object, other: object
) -> OperatorRuleError:
    """Returns the error for two wrappers of one class whose context is not the same."""
    return OperatorRuleError(
        f"{func} on two {cls.__name__} with different context: {name} is {first!r} and {other!r}.\n"
        f"  at:  {user_line()}\n"
        f'  why: the fallback "each" cannot know which of them the result has.\n'
        f"Write a rule:\n\n{stub(cls, func)}"
    )


def layouts_differ(cls: type[Wrapper], func: AnyOperator, first: list[str], other: list[str]) -> OperatorRuleError:
    """Returns the error for two wrappers of one class that do not hold the same inner tensors."""
    return OperatorRuleError(
        f"{func} on two {cls.__name__} that hold different inner tensors: {first} and {other}.\n"
        f"  at:  {user_line()}\n"
        f'  why: the fallback "each" pairs inner tensors by name.\n'
        f"Write a rule:\n\n{stub(cls, func)}"
    )


def answers_differ(cls: type[Wrapper], func: AnyOperator, answers: Mapping[str, object]) -> OperatorRuleError:
    """Returns the error for an operator that gives a number, or so many tensors, and others for each inner tensor."""
    return OperatorRuleError(
        f"{func} on a {cls.__name__} gives one answer, and its inner tensors have several: {answers}.\n"
        f"  at:  {user_line()}\n"
        f'  why: the fallback "each" cannot know which of them is meant.\n'
        f"Ask an inner tensor, or write a rule:\n\n{stub(cls, func)}"
    )


def wrong_result(cls: type[Wrapper], func: Operator, rule: object, expected: str, got: object) -> RuleResultError:
    """Returns the error for a rule that returned something else than the schema promises."""
    if isinstance(got, list | tuple):
        shown = f"a {type(got).__name__} of {len(got)}: ({', '.join(map(_shown, got))})"
    else:
        shown = _shown(got)
    return RuleResultError(
        f"The rule of {cls.__name__} for {func} returned something else than the operator promises.\n"
        f"  rule:     {_place_of(rule)}\n"
        f"  schema:   {_torch.operators.schema_of(func)}\n"
        f"  expected: {expected}\n"
        f"  got:      {shown}"
    )


def not_sharded(wrapper: torch.Tensor, why: str, instead: str, may_have_hooks: bool = True) -> ShardingError:
    """Returns the error for a class of which FSDP2 cannot carry shards, with what to write.

    Args:
        wrapper: The shard.
        why: Why not.
        instead: What to write.
        may_have_hooks: Whether hooks of its own would help.
    """
    cls = type(wrapper).__name__
    instead += _OR_HOOKS.format(cls=cls) if may_have_hooks else ""
    return ShardingError(_NOT_SHARDED.format(cls=cls, why=why, instead=instead))
