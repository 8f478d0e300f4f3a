"""The fallback "plain": an operator without a rule runs on what the wrappers stand for, the results of `to_plain()`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.base._torch.operators import AnyOperator, Operator
from subclass_aot.base.later import Later
from subclass_aot.base.operators import effects_of
from subclass_aot.kit.declaration import Declaration
from subclass_aot.kit.wrapper.kind import Wrapper
from subclass_aot.kit.wrapper.layout.shared_fields import base_of
from subclass_aot.kit.wrapper.serve import errors
from subclass_aot.kit.wrapper.serve.dense import dense, where_it_lies

_aten = torch.ops.aten


def plain_handler(cls: type[Wrapper], func: AnyOperator) -> Callable[..., Any]:
    """Returns the operator `func` on dense copies of the wrappers among its arguments.

    A wrapper that is written to takes the new value through its `copy_`, so its class needs `from_plain`, also in the
    lists of `_foreach_` and `_fused_` operators, as optimizers have them. A view of a dense copy would not alias its
    base: it is one that reads through the wrapper.

    Args:
        cls: The wrapper class.
        func: The operator.

    Returns:
        A function that is called as the operator is.
    """
    if func in _COUNTING:
        return _COUNTING[func]
    if not _torch.operators.is_overload(func) or not (effects_of(func).viewed or effects_of(func).written):
        return lambda *args, **kwargs: func(*_plain(args), **(_plain(kwargs) if kwargs else kwargs))
    effects = effects_of(func)
    viewed, targets = effects.viewed, effects.written

    def handler(*args: Any, **kwargs: Any) -> Any:
        bound = effects.bind(args, kwargs)
        if _is_wrapper(bound.get(viewed)):
            by_itself = bool(args) and args[0] is bound[viewed] and not _has_tensors((args[1:], kwargs))
            if not by_itself or effects.returns != ("tensor",):
                why = "it is a view, and a view of the dense copy that to_plain() makes would not alias its base"
                raise errors.no_rule(cls, func, args, kwargs, why)
            return read_through(func, bound[viewed], args[1:], kwargs)
        written = [(name, wrapper) for name in targets for wrapper in _wrappers_in(bound.get(name))]
        if written and torch.Tag.inplace_view in func.tags:
            raise errors.no_rule(cls, func, args, kwargs, "it changes the sizes or strides of the tensor it is given")
        for name, wrapper in written:
            if not hasattr(wrapper, "from_plain"):
                why = f"it writes to `{name}`, and {type(wrapper).__name__} has no from_plain to take the new value"
                raise errors.no_rule(cls, func, args, kwargs, why)
        if not written:
            return func(*_plain(args), **_plain(kwargs))
        if effects.lists and _overlap([wrapper for _, wrapper in written]):
            return _one_by_one(handler, bound)
        plain = {name: (_empty if name in effects.overwrites else _plain)(value) for name, value in bound.items()}
        func(**plain)
        for name in targets:
            _take_in(bound.get(name), plain.get(name))
        returned = tuple(bound[name] for name in effects.returned)
        return returned[0] if len(returned) == 1 else returned or None

    return handler


def _as_strided_copy(self: Any, *args: Any, **kwargs: Any) -> Any:
    return _plain(_aten.as_strided.default(self, *args, **kwargs)).clone()


def _as_strided_scatter(self: Any, src: Any, *args: Any, **kwargs: Any) -> Any:
    return _aten.as_strided_scatter.default(_plain(self, where_it_lies), _plain(src), *args, **kwargs)


_COUNTING: dict[AnyOperator, Callable[..., Any]] = {
    _aten.as_strided_copy.default: _as_strided_copy,
    _aten.as_strided_scatter.default: _as_strided_scatter,
}
"""Operators that count from where a storage begins, which no dense copy has."""


def _overlap(wrappers: list[torch.Tensor]) -> bool:
    """Returns whether two wrappers may be, or be views of, the same."""
    wholes = [base if (base := _torch.autograd.base_of(wrapper)) is not None else wrapper for wrapper in wrappers]
    wholes = [base if (base := base_of(whole)[0]) is not None else whole for whole in wholes]
    return len({id(whole) for whole in wholes}) < len(wholes)


def _one_by_one(handler: Callable[..., Any], bound: dict[str, Any]) -> Any:
    """Returns an operator on lists, for each position in turn: what is written at one may be read at the next."""
    length = max(len(value) for value in bound.values() if isinstance(value, list | tuple) and _has_tensors(value))
    lists = {name for name, value in bound.items() if isinstance(value, list | tuple) and len(value) == length}
    returned = [
        handler(**{name: [value[i]] if name in lists else value for name, value in bound.items()})
        for i in range(length)
    ]
    return [element for each in returned for element in each] if returned[0] is not None else None


def read_through(func: Operator, base: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Returns the view `func(base, *args, **kwargs)`, or the views, as tensors of the class `ViewOf`."""
    return make_view(func, base, args, kwargs)


make_view: Later[..., Any] = Later("view_of")
"""Makes such a view. `ViewOf` is a wrapper itself, so `view_of.py` imports this file."""


def plain_tangent(tensor: Any) -> Any:
    """Returns a gradient like `tensor`: dense where its operators run on `to_plain()`, inside wrappers too.

    Else as the hook `__coerce_tangent_metadata__` of its class has it.
    """
    if not _torch.wrappers.is_traceable_wrapper_subclass(tensor):
        return tensor
    cls: Any = type(tensor)
    declaration = Declaration.of(cls)
    if declaration is not None and declaration.fallback == "plain":
        with torch.no_grad():  # the kind of a gradient, and not a function of the tensor
            return plain_tangent(cls.to_plain(tensor))
    if hasattr(tensor, "__coerce_tangent_metadata__"):
        tensor = tensor.__coerce_tangent_metadata__()
    names, context = tensor.__tensor_flatten__()
    inner = {name: getattr(tensor, name) for name in names}
    plain = {name: plain_tangent(value) for name, value in inner.items()}
    if all(plain[name] is inner[name] for name in names):
        return tensor
    fresh = {name: plain[name] if plain[name] is not inner[name] else inner[name].clone() for name in names}
    return type(tensor).__tensor_unflatten__(fresh, context, tensor.size(), tensor.stride())


def _is_wrapper(value: object) -> bool:
    return isinstance(value, torch.Tensor) and hasattr(value, "__wrapper_state__") and hasattr(value, "to_plain")


def _has_tensors(value: object) -> bool:
    if isinstance(value, list | tuple | dict):
        return any(map(_has_tensors, value.values() if isinstance(value, dict) else value))
    return isinstance(value, torch.Tensor)


def _wrappers_in(value: object) -> list[Any]:
    """Returns the wrapper that an argument is, or those in a list."""
    if isinstance(value, list | tuple):
        return [wrapper for element in value for wrapper in _wrappers_in(element)]
    return [value] if _is_wrapper(value) else []


def _take_in(written: Any, dense: Any) -> None:
    """Gives wrappers the new values of the dense tensors that stood for them."""
    if isinstance(written, list | tuple):
        for one, other in zip(written, dense, strict=True):
            _take_in(one, other)
    elif _is_wrapper(written):
        written.copy_(dense)


def _plain(value: Any, one: Callable[[Any], torch.Tensor] = dense) -> Any:
    """Returns an argument with `one` of each wrapper in it."""
    if type(value) in _AS_THEY_ARE:
        return value
    if isinstance(value, list | tuple):
        return type(value)([x if type(x) in _AS_THEY_ARE else _plain(x, one) for x in value])
    if isinstance(value, dict):
        return {key: _plain(element, one) for key, element in value.items()}
    return one(value) if _is_wrapper(value) else value


_AS_THEY_ARE = frozenset({torch.Tensor, torch.dtype, torch.device, type(None), bool, int, float, str})
"""Types of most arguments: none of them is a wrapper, or holds one."""


def _empty(value: Any) -> Any:
    """Returns what takes the place of an argument that is written and not read.

    The fields may be memory that nobody has written, as those of `empty_like`, which `to_plain` need not accept.
    """
    return _plain(value, _empty_for)


def _empty_for(wrapper: torch.Tensor) -> torch.Tensor:
    size, stride = wrapper.size(), wrapper.stride()
    options: Any = {"dtype": wrapper.dtype, "device": wrapper.device}
    return torch.empty(size, **options) if 0 in stride else torch.empty_strided(size, stride, **options)
