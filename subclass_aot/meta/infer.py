"""Infers the specs of an operator's results from its arguments: from a cache where possible."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import nullcontext
from contextvars import ContextVar
from typing import Any

import optree
import torch

from subclass_aot.base import _torch
from subclass_aot.base._stack import pass_on_interruption, user_line
from subclass_aot.base._torch.operators import Operator, OperatorPacket
from subclass_aot.base.operators import effects_of, out_of_place, runs_once, without_out
from subclass_aot.errors import DataDependentError, TraceError
from subclass_aot.meta.fake_kernels import ShapeByData, find_shape_by_data
from subclass_aot.meta.kernel_errors import check_by_kernel, error_of_kernel, is_checked
from subclass_aot.meta.rule_results import checked, of_written, without_rule
from subclass_aot.meta.rules.elementwise import laid_out
from subclass_aot.meta.spec import Spec, indexed, native_device
from subclass_aot.meta.symbols import current_symbols, solver_in
from subclass_aot.meta.unbacked import unbacked_rule

_META = torch.device("meta")

_TWO_DEVICES = """{operator}: Expected all tensors to be on the same device, but found at least two devices, \
{first} and {second}!
  Your line:  {line}
  Instead: move one of them, as in x.to({first!s})."""

_DATA_DEPENDENT = """{operator} asks for values, and a traced tensor has none.
  Your line:  {line}
  The result's {what} depends on the data, so the program cannot be traced past this point.
  Instead: compute it outside the traced function and pass the result as an argument, or use an operator whose
  result has a fixed shape (torch.where instead of x[mask], torch.nonzero_static instead of torch.nonzero)."""

_ITSELF = "its only kernel is the one that has its effect, and it would run while the program is traced"

_WRONG_CAST = """{operator} gives {result}, which can't be cast to the {target} of the tensor it writes into.
  Your line:  {line}
  Instead: use the operator that returns a new tensor, or convert the other argument."""


def infer(func: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Runs an operator on tensors without data.

    Args:
        func: The operator overload.
        args: Positional arguments, every tensor replaced by its `Spec`.
        kwargs: Keyword arguments, likewise.

    Returns:
        The operator's result, every tensor replaced by its `Spec`. Written arguments that are returned appear
        with the spec they have afterwards.

    Raises:
        DataDependentError: The result's shape, or a Python result, depends on values.
        ShapeRuleError: Neither this library nor torch knows the shape of the result.
        TraceError: An in-place operator computes a type that its target cannot hold.
    """
    resized = _resized(func, args, kwargs)
    if resized is not None:
        return resized
    device = _result_device(args, kwargs)
    if device.type != "cpu" and torch.Tag.pointwise in func.tags and _torch.operators.is_inplace(func):
        _refuse_cast(func, args, kwargs)
    _refuse_two_devices(func, args, kwargs)
    with _torch.dispatch.disable_current_modes():
        tree: Any = optree.tree_map(_blank, (args, kwargs), none_is_leaf=True)  # type: ignore[arg-type]
    meta_args, meta_kwargs = _on_meta(func, *tree)
    if isinstance(meta_kwargs.get("generator"), torch.Generator):
        meta_kwargs["generator"] = None  # a generator of another device than meta is refused, and nothing is drawn
    if meta_kwargs.get("pin_memory"):
        meta_kwargs["pin_memory"] = False
    symbols = current_symbols()
    symbolic = symbols is not None or solver_of_call(args, kwargs) is not None
    outer = _device.set(device)
    try:
        with (
            _torch.dispatch.disable_current_modes(),
            torch.no_grad(),
            _torch.dispatch.python_dispatcher() if symbolic else nullcontext(),
            _torch.postponed.without_slow_imports(),
        ):
            if device.type == "cpu" and is_checked(func, args, kwargs):
                check_by_kernel(func, meta_args, meta_kwargs)
            try:
                if func in _checks:
                    _checks[func](*meta_args, **meta_kwargs)
                out = call_on_meta(func, meta_args, meta_kwargs)
                if func in _corrections and func not in _rules:
                    out = _corrections[func](out, *meta_args, **meta_kwargs)
                elif func not in _rules:
                    out = laid_out(func, meta_args, meta_kwargs, out, casts=device.type == "cpu")
            except Exception as error:  # of torch's rule, or of one of ours
                pass_on_interruption(error)
                if device.type != "cpu":
                    raise
                raise error_of_kernel(func, meta_args, meta_kwargs, error) from None
    finally:
        _device.reset(outer)
    return optree.tree_map(lambda x: Spec.of(x, device) if isinstance(x, torch.Tensor) else x, out, none_is_leaf=True)


def _resized(func: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Returns the specs of tensors of another size that are given as `out=`, after the operator; None if all have the
    right size.

    They have the metadata of new results. Torch's shape functions say packed, and know no symbolic sizes there.
    """
    fresh = None if effects_of(func).data_dependent else without_out(func)
    names = [name for _, name in effects_of(func).writes]
    outs = [kwargs.get(name) for name in names]
    if fresh is None or not all(type(out) is Spec for out in outs):
        return None
    new = infer(fresh, args, {name: value for name, value in kwargs.items() if name not in names})
    pairs: Any = list(zip(outs, new if type(new) is tuple else (new,), strict=True))
    if all(out.size == like.size for out, like in pairs):
        return None
    found = tuple([
        out if out.size == like.size else Spec.make(like.size, like.stride, out.offset, out.dtype, out.device)
        for out, like in pairs
    ])  # fmt: skip
    return found if type(new) is tuple else found[0]


def solver_of_call(*values: object) -> Any:
    """Returns the solver of the symbolic numbers among the arguments of an operator; None if every number is known."""
    for value in values:
        if isinstance(value, Spec):
            solver = value.solver
        elif isinstance(value, list | tuple):
            solver = solver_of_call(*value)
        elif isinstance(value, dict):
            solver = solver_of_call(*value.values())
        else:
            solver = solver_in((value,))
        if solver is not None:
            return solver
    return None


def register_meta(op: Operator | OperatorPacket) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declares the shape function of an operator.

    An operator of your own needs none where it has a `torch.library.register_fake`, which is used. This is for
    operators of others: those of torch that have no kernel on the device `meta`, or one that is wrong.

    Args:
        op: An operator (`torch.ops.mylib.op`), or one overload of it.

    Returns:
        A decorator for a function that has the operator's parameters, receives tensors without data (on the device
        `meta`) and returns tensors without data. A rule registered later replaces one registered before, and goes
        before torch's own.

    >>> @register_meta(torch.ops.aten.frexp.Tensor)
    ... def _(x):
    ...     return x.new_empty(x.shape), x.new_empty(x.shape, dtype=torch.int32)
    """

    def register(rule: Callable[..., Any]) -> Callable[..., Any]:
        overloads = [getattr(op, name) for name in op.overloads()] if hasattr(op, "overloads") else [op]
        for overload in overloads:
            _rules[overload] = rule
        forget_rules()
        return rule

    return register


def forget_rules() -> None:
    """Empties the caches of what followed from rules, after these have changed."""
    for forget in on_new_rule:
        forget()


def has_rule_of_user(func: Operator) -> bool:
    """Returns whether a rule says what an operator gives that is none of this library's, and none of torch's."""
    rule = _rules.get(func)
    return rule is not None and not str(getattr(rule, "__module__", "")).startswith(
        ("subclass_aot.meta.", "subclass_aot.cost.")
    )


def corrects(*funcs: Operator, on_each_device: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declares what differs in the results of operators from what torch says of them without data.

    Args:
        *funcs: The operators.
        on_each_device: Whether on other devices than the CPU, too.

    Returns:
        A decorator for a function that is given what torch says, on meta, and the arguments of the operator, and
        returns the result. A rule that is registered for the operator goes before both.
    """

    def register(correct: Callable[..., Any]) -> Callable[..., Any]:
        def on_cpu(found: Any, *args: Any, **kwargs: Any) -> Any:
            return correct(found, *args, **kwargs) if result_device().type == "cpu" else found

        _corrections.update(dict.fromkeys(funcs, correct if on_each_device else on_cpu))
        return correct

    return register


def checks(*funcs: Operator) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Declares what kernels of operators check, and torch's rules for shapes do not.

    Args:
        *funcs: The operators.

    Returns:
        A decorator for a function that is given the arguments of the operator, on meta, and raises an error.
    """

    def register(check: Callable[..., None]) -> Callable[..., None]:
        _checks.update(dict.fromkeys(funcs, check))
        return check

    return register


def result_device() -> torch.device:
    """Returns the device of the result, for a shape function that must know it. Its arguments say `meta`."""
    return _device.get()


_rules: dict[Any, Callable[..., Any]] = {}
_corrections: dict[Any, Callable[..., Any]] = {}
_checks: dict[Any, Callable[..., None]] = {}
_device: ContextVar[torch.device] = ContextVar("device")
on_new_rule: list[Callable[[], None]] = []
"""Called after a rule was registered, or an operator was found to depend on data: caches of results forget."""


def call_on_meta(func: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Returns a registered rule, else torch's meta kernel, else a decomposition of torch's, else an error."""
    rule = _rules.get(func)
    if rule is not None:
        return checked(func, rule, rule(*args, **kwargs))
    symbols = current_symbols()
    unbacked = unbacked_rule(func) if symbols is not None else None
    if unbacked is not None:
        return unbacked(symbols, *args, **kwargs)
    try:
        return _without_effect(func, args, kwargs) if runs_once(func) else func(*args, **kwargs)
    except (NotImplementedError, RuntimeError, _torch.operators.DataDependentOutput) as error:
        if isinstance(error, DataDependentError):
            raise
        if effects_of(func).data_dependent:
            raise asks_for_values(func) from None
        if find_shape_by_data(func, _call_inside, args, kwargs):
            forget_rules()
            raise ShapeByData(*asks_for_values(func).args) from None
        if not isinstance(error, NotImplementedError) and "no fake impl" not in str(error):  # a custom operator's
            raise
        if not _torch.operators.schema_of(func).returns:  # it writes its arguments, whose shapes stay
            return None
        written = of_written(func, args, kwargs)
        if written is not None and without_out(func) is None:
            return written if len(written) > 1 else written[0]
        reason = str(error).strip().splitlines()[0]
    decomposition = _torch.operators.decomposition_of(func)
    if decomposition is not None:
        return decomposition(*args, **kwargs)
    outs = tuple(kwargs.get(name) for _, name in effects_of(func).writes)
    if without_out(func) is not None and all(isinstance(out, torch.Tensor) for out in outs):
        return outs if len(outs) > 1 else outs[0]  # of the size of new results: see `_resized`
    return without_rule(func, reason, args, kwargs)


def _without_effect(func: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Calls the kernel without data of an operator that has an effect, also where no tensor leads to it.

    Raises:
        NotImplementedError: There is none.
    """
    if not _torch.operators.has_meta_kernel(func):
        raise NotImplementedError(_ITSELF)
    return _torch.operators.call_meta_kernel(func, args, kwargs)


def _call_inside(func: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Runs an operator on meta tensors in a rule that somebody else wrote."""
    return call_on_meta(func, *_on_meta(func, args, kwargs))


def _on_meta(func: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Returns arguments such that the result is on meta."""
    if any(isinstance(a, torch.device) for a in args):
        return tuple([_META if isinstance(a, torch.device) else a for a in args]), kwargs
    return args, {**kwargs, "device": _META} if "device" in kwargs or _torch.operators.is_factory(func) else kwargs


def _refuse_cast(func: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Refuses to put a float into an int tensor, as kernels do; torch's shape functions do not check it.

    On the CPU the kernel itself is asked: Note [Errors of kernels].
    """
    target = args[0].dtype
    if target.is_complex or target.is_floating_point and not any(s.dtype.is_complex for s in _specs_in(args)):
        return
    overload = out_of_place(func)
    result = infer(overload, args, kwargs) if overload is not None else None
    if type(result) is Spec and not torch.can_cast(result.dtype, target):
        raise TraceError(_WRONG_CAST.format(operator=func, result=result.dtype, target=target, line=user_line()))


def _blank(x: object) -> Any:
    """Returns a meta tensor for a spec, other values as they are."""
    if type(x) is not Spec:
        return x
    if type(x.offset) is int and x.offset == 0:
        return torch.empty_strided(x.size, x.stride, dtype=x.dtype, device=_META)
    return torch.empty(x.extent, dtype=x.dtype, device=_META).as_strided(x.size, x.stride, x.offset)


def _result_device(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Returns the device of the result: `device=` if given, else that of the first tensor that is not a 0-dim CPU
    scalar. One on `meta` claims nothing where another one claims a device.
    """
    asked = kwargs.get("device") or next((a for a in args if isinstance(a, torch.device)), None)
    if asked is not None:
        return indexed(asked)
    scalar = unclaimed = None
    for x in _specs_in((*args, *kwargs.values())):
        if x.device.type == "meta":
            unclaimed = x if unclaimed is None or x.size else unclaimed
        elif x.size or x.device.type != "cpu":
            return x.device
        else:
            scalar = x
    if unclaimed is not None and (scalar is None or unclaimed.size):
        return unclaimed.device
    return scalar.device if scalar is not None else torch.get_default_device()


def _refuse_two_devices(func: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Refuses what kernels refuse: tensors on two devices. CPU scalars may be anywhere, and indices on the CPU, too.

    Where hardware is there, the program has met its error.
    """
    found: dict[torch.device, None] = {}
    for value in (*args, *kwargs.values()):
        for x in _specs_in((value,)):
            is_free = x.device.type == "cpu" and (not x.size or isinstance(value, list | tuple) and func in _INDEXING)
            if x.device.type != "meta" and not is_free:
                found[x.device] = None
    if len(found) < 2 or func in _BETWEEN_DEVICES or func.namespace != "aten":
        return
    if all(native_device(device) == device for device in found) or func.name().startswith("aten::_foreach"):
        return
    first, second, *_ = found
    raise TraceError(_TWO_DEVICES.format(operator=func, first=first, second=second, line=user_line()))


_aten = torch.ops.aten
_INDEXING = frozenset({_aten.index.Tensor, _aten._unsafe_index.Tensor, _aten.index_put.default,
                       _aten.index_put_.default, _aten._index_put_impl_.default,
                       _aten._unsafe_index_put.default})  # fmt: skip
_BETWEEN_DEVICES = frozenset(
    getattr(packet, name)
    for packet in (_aten.copy_, _aten.copy, _aten.set_, _aten._copy_from, _aten._pack_padded_sequence, _aten._ctc_loss,
                   _aten.tensor_split, _aten._cudnn_rnn)
    for name in packet.overloads()
)  # fmt: skip
"""Operators that take tensors of several devices."""


def _specs_in(values: Iterable[object]) -> Any:
    for x in values:
        if type(x) is Spec:
            yield x
        elif isinstance(x, list | tuple):
            yield from _specs_in(x)


def asks_for_values(func: Operator) -> DataDependentError:
    """Returns the error for an operator whose result, or the shape of it, depends on unknown values."""
    what = "shape" if effects_of(func).shape_by_data else "value"
    error = DataDependentError(_DATA_DEPENDENT.format(operator=func, line=user_line(), what=what))
    error.operator = func
    return error
