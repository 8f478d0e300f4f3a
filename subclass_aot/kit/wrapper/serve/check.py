"""An author's rule, held to what the operator's schema promises."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from subclass_aot.base import _torch, hooks
from subclass_aot.base._torch.operators import AnyOperator, Operator
from subclass_aot.base.codegen import Source
from subclass_aot.base.operators import Effects, effects_of
from subclass_aot.errors import OperatorRuleError
from subclass_aot.kit.wrapper.kind import Wrapper
from subclass_aot.kit.wrapper.layout.shared_fields import may_share, set_origin_if_shared
from subclass_aot.kit.wrapper.layout.views import OF_ALL_ELEMENTS
from subclass_aot.kit.wrapper.serve import kernels
from subclass_aot.kit.wrapper.serve.errors import declined, wrong_result
from subclass_aot.kit.wrapper.serve.expected_results import ExpectedResults

Rule = Callable[..., Any]


def checked(
    cls: type[Wrapper],
    func: AnyOperator,
    rule: Callable[..., Any],
    otherwise: Callable[[], Callable[..., Any]],
) -> Callable[..., Any]:
    """Returns `rule` with a generated check of its result; a view also comes to share its base's outer storage.

    Args:
        cls: The class for which the rule was found.
        func: The operator.
        rule: The author's function.
        otherwise: Finds what serves the operator when the rule returns NotImplemented.

    Returns:
        A function that is called as the operator is.
    """
    if not _torch.operators.is_overload(func):
        return lambda *args, **kwargs: _or_else(func, rule, rule(*args, **kwargs), otherwise, args, kwargs)
    effects = effects_of(func)
    source = Source(
        f"{cls.__name__}_{func}",
        "*args, **kwargs",
        f"The rule of {cls.__name__} for {func}, and a check of its result.",
    )
    source.line(f"out = {source.const(rule, 'rule')}(*args, **kwargs)")
    with source.block("if out is NotImplemented:"):
        or_else = source.const(functools.partial(_or_else, func, rule), "or_else")
        source.line(f"return {or_else}(out, {source.const(otherwise, 'otherwise')}, args, kwargs)")
    raised = {"wrong_result": wrong_result, "Class": cls, "func": func, "rule": rule}
    wrong, *details = [source.const(value, name) for name, value in raised.items()]
    tensor = source.const(torch.Tensor, "Tensor")

    def refuse(condition: str, expected: str) -> None:
        with source.block(f"if {condition}:"):
            source.line(f"raise {wrong}({', '.join(details)}, {expected!r}, out)")

    if effects.returned:
        _check_returned(source, effects, refuse)
    elif effects.viewed:
        _check_view(source, func, effects, cls, refuse)
    elif effects.returns == ("tensor",):
        refuse(f"type(out) is not {tensor} and not isinstance(out, {tensor})", "a tensor")
    elif len(effects.returns) > 1:
        refuse(
            f"type(out) not in (tuple, list) or len(out) != {len(effects.returns)}",
            f"a tuple of {len(effects.returns)}",
        )
    elif effects.returns == ("list",):
        refuse("type(out) not in (tuple, list)", "a list of tensors")
    elif not effects.returns:
        refuse("out is not None", "None")
    is_new = effects.pure and not effects.composite and "tensor" in effects.returns
    if not effects.returned and {"tensor", "list"} & set(effects.returns):
        mismatch = source.const(_mismatch_of(cls, func, is_new), "mismatch")
        source.line(f"expected = {mismatch}(out, args, kwargs)")
        with source.block("if expected:"):
            source.line(f"raise {wrong}({', '.join(details)}, expected, out)")
    source.line("return out")
    return source.build()


def _mismatch_of(cls: type[Wrapper], func: Operator, is_new: bool) -> Callable[..., str]:
    """Returns a function of a rule's result and its arguments: it says what was expected instead; "" if that was
    given.
    """
    mismatch: Callable[..., str] = ExpectedResults(func).mismatch
    if is_new:
        mismatch = functools.partial(_mismatch_or_old, mismatch)
    if hooks.kernels is None:
        return mismatch
    accepted: Callable[..., str] = hooks.kernels.Accepted(mismatch, cls, kernels.is_read_plainly)
    return accepted


def _mismatch_or_old(
    mismatch: Callable[..., str], out: object, args: tuple[object, ...], kwargs: dict[str, object]
) -> str:
    expected = mismatch(out, args, kwargs)
    if not expected and any(out is argument for argument in args):
        return "a new tensor, as a clone of what it was given"
    return expected


def _or_else(
    func: AnyOperator,
    rule: Rule,
    out: object,
    otherwise: Callable[[], Rule],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Returns what a rule returned; where it declined, what the operator gives without it."""
    if out is not NotImplemented:
        return out
    try:
        return otherwise()(*args, **kwargs)
    except OperatorRuleError as error:
        raise declined(error, func, rule) from None


def _argument(source: Source, effects: Effects, name: str, hint: str) -> str:
    position = list(effects.parameters).index(name)
    variable = source.fresh(hint)
    source.line(f"{variable} = args[{position}] if len(args) > {position} else kwargs[{name!r}]")
    return variable


def _check_returned(source: Source, effects: Effects, refuse: Callable[[str, str], None]) -> None:
    arguments = [_argument(source, effects, name, "written") for name in effects.returned]
    if len(arguments) == 1:
        refuse(f"out is not {arguments[0]}", f"`{effects.returned[0]}` itself, the tensor that it writes to")
        return
    refuse(f"type(out) not in (tuple, list) or len(out) != {len(arguments)}", f"a tuple of {len(arguments)}")
    for position, (argument, name) in enumerate(zip(arguments, effects.returned, strict=True)):
        refuse(
            f"out[{position}] is not {argument}", f"`{name}` itself at position {position}, a tensor that it writes to"
        )


def _check_view(
    source: Source, func: AnyOperator, effects: Effects, cls: type[Wrapper], refuse: Callable[[str, str], None]
) -> None:
    base = _argument(source, effects, effects.viewed, "base")
    alias = source.const(_torch.wrappers.alias_outer_storage, "alias_outer_storage")
    what = f"a view of the {cls.__name__} `{effects.viewed}`: a tensor of its class that shares its inner storage"
    if effects.returns == ("list",):
        refuse(
            f"type(out) not in (tuple, list) or not all(type(view) is type({base}) for view in out)",
            f"a list, each {what}",
        )
        with source.block("for view in out:"):
            source.line(f"{alias}(view, {base})")
    else:
        refuse(f"type(out) is not type({base})", what)
        source.line(f"{alias}(out, {base})")
    if next(iter(effects.parameters)) == effects.viewed:
        note_origin = source.const(set_origin_if_shared, "set_origin_if_shared")
        shares = f" and {may_share(base)}" if func in OF_ALL_ELEMENTS else ""
        with source.block(f"if args{shares}:"):
            source.line(f"{note_origin}(out, {base}, {source.const(func, 'func')}, args[1:], kwargs)")
