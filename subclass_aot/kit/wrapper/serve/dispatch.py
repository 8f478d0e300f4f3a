"""From an operator that reached a wrapper class to the function that serves it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from enum import Enum
from typing import Any, cast

import torch
from torch import is_inference_mode_enabled

from subclass_aot.base import _torch
from subclass_aot.base._torch.operators import AnyOperator, Operator
from subclass_aot.base.operators import effects_of
from subclass_aot.kit.wrapper.kind import Wrapper
from subclass_aot.kit.wrapper.layout.shared_fields import set_origin
from subclass_aot.kit.wrapper.layout.views import ALIKE, ALIKE_ALONG, is_view
from subclass_aot.kit.wrapper.serve import errors, kernels, rules
from subclass_aot.kit.wrapper.serve.builtin import FIELD_BY_FIELD, NEW, built_in, new_of_each
from subclass_aot.kit.wrapper.serve.check import checked
from subclass_aot.kit.wrapper.serve.each import each_handler
from subclass_aot.kit.wrapper.serve.namespaces import handler_of_namespace
from subclass_aot.kit.wrapper.serve.plain import plain_handler
from subclass_aot.kit.wrapper.serve.writing import writing_rules
from subclass_aot.kit.wrapper.serve.written_parts import run_on_copy_if_shared

Handler = Callable[..., Any]


class ServedBy(Enum):
    """The ways to serve an operator of a class without a rule of the author's."""

    PARTS = "the operators that it is made of"
    COLLECTIVE = "each inner tensor, or what the wrappers stand for"
    EACH = "each inner tensor"
    BUILT_IN = "built in"
    PLAIN = "to_plain"
    NONE = "nothing"


def handler_for(cls: type[Wrapper], func: AnyOperator) -> Handler:
    """Finds what serves the operator `func` on wrappers of `cls`, and keeps it until a rule is added.

    The first of these that applies:

    1. A rule that the author gave with `implements`: the class's own, then those of its bases along the MRO. One that
       returns NotImplemented passes the operator on to the next. What it returns is checked against the schema.
    2. For one that writes (`mul_`, `out=`): such a rule for the operator that returns what it writes, and `copy_`.
    3. A composite operator is decomposed into what it is made of, and those arrive here one by one. (Autograd has
       usually done that before; in inference mode, and below another wrapper, it has not. So a program meets the same
       rules either way.)
    4. Collectives of `torch.distributed` run on every inner tensor, or on what the wrappers stand for.
    5. For a class with `fallback="each"`: the operator on every inner tensor; views, if it declares `views=`, by 6.
    6. The built-in rules: `detach`, `alias`, `clone`, `_to_copy`, `copy_`, `empty_like`, `new_zeros`,
       ... and the views, in the way that `views=` declares for each field.
    7. For a class with `to_plain` (unless it says `fallback="error"`): the operator on what the wrappers stand for.
    8. What an operator with a kernel, as `mish_backward`, would be made of if it had none.
    9. An `OperatorRuleError`, with a stub to paste.

    Args:
        cls: The wrapper class.
        func: The operator.

    Returns:
        A function that is called as the operator is.
    """
    handler = cls.__dict__["_handlers"][func] = _find(cls, func)
    if is_each(cls, func):
        kernels.serve(cls, func)
    elif is_view_of_each(cls, func):
        kernels.serve(cls, func, is_view=True, along=ALIKE_ALONG.get(func, -1))
    return handler


def is_each(cls: type[Wrapper], func: AnyOperator) -> bool:
    """Returns whether an operator is served by nothing but itself, on each inner tensor.

    Args:
        cls: The wrapper class.
        func: The operator.

    >>> from subclass_aot import Int8Weight, TwoTensor
    >>> is_each(TwoTensor, torch.ops.aten.mm.default), is_each(Int8Weight, torch.ops.aten.mm.default)
    (True, False)
    """
    if rules.along_mro(cls, func) or writing_rules(cls, func):
        return False
    by = served_by(cls, func)
    if by is ServedBy.BUILT_IN:
        return func in FIELD_BY_FIELD
    return by is ServedBy.EACH and func not in NEW


def is_view_of_each(cls: type[Wrapper], func: AnyOperator) -> bool:
    """Returns whether an operator is a view that is the same on each field, if the fields line up with the wrapper.

    Some name a dim, along which each field has to be as long as the wrapper: see `ALIKE_ALONG`.

    Args:
        cls: The wrapper class.
        func: The operator.

    >>> from subclass_aot import Int8Weight
    >>> aten = torch.ops.aten
    >>> is_view_of_each(Int8Weight, aten.t.default), is_view_of_each(Int8Weight, aten.expand.default)
    (True, False)
    """
    is_alike = func in ALIKE or func in ALIKE_ALONG
    if not is_alike or rules.along_mro(cls, func) or served_by(cls, func) is not ServedBy.BUILT_IN:
        return False
    declaration = cls.__wrapper_declaration__
    return all(declaration.how_viewed(name) == "broadcast" for name in declaration.fields)


def handler_for_views(cls: type[Wrapper], func: AnyOperator, of: type[Wrapper]) -> Handler:
    """Finds what serves `func` on wrappers of `cls` that are views of those of another class: first, the rules of that.

    Args:
        cls: The class of the views.
        func: The operator.
        of: The class of what they are views of.

    Returns:
        A function that is called as the operator is.
    """
    handlers = of.__dict__["_handlers"]
    if (cls, func) not in handlers:
        handlers[cls, func] = _find(of, func, lambda: cls._handlers.get(func) or handler_for(cls, func))
    return handlers[cls, func]  # type: ignore[no-any-return]


def _find(cls: type[Wrapper], func: AnyOperator, otherwise: Callable[[], Handler] | None = None) -> Handler:
    handler = functools.cache(otherwise or (lambda: _without_rules(cls, func)))
    written = [run_on_copy_if_shared(cls, func, rule) for rule in rules.along_mro(cls, func)]
    written += writing_rules(cls, func)
    for rule in reversed(written):
        handler = functools.cache(functools.partial(checked, cls, func, rule, handler))
    of_fields = (
        is_view(func) and served_by(cls, func) is ServedBy.BUILT_IN and not cls.__wrapper_declaration__.has_blocks
    )
    runs_code_of_authors = written or hasattr(cls, "to_plain") and not of_fields
    found = _torch.dispatch.resolving_conj_and_neg(handler()) if runs_code_of_authors else handler()
    return _counting_writes(func, found) if _torch.operators.is_overload(func) and _writes_lists(func) else found


def _writes_lists(func: Operator) -> bool:
    return func.name().startswith("aten::_foreach_") and bool(effects_of(func).written)


def _counting_writes(func: Operator, handler: Handler) -> Handler:
    """Returns `handler`, changed to count its writes into lists: kernels do that in torch, and wrappers reach none."""

    @functools.wraps(handler)
    def counting(*args: Any, **kwargs: Any) -> Any:
        out = handler(*args, **kwargs)
        bound = effects_of(func).bind(args, kwargs)
        written = [tensor for name in effects_of(func).written for tensor in bound.get(name) or ()]
        torch.autograd.graph.increment_version([tensor for tensor in written if not tensor.is_inference()])
        return out

    return counting


def served_by(cls: type[Wrapper], func: AnyOperator) -> ServedBy:
    """Returns how an operator is served that no rule of the author serves.

    Args:
        cls: The wrapper class.
        func: The operator.
    """
    if _torch.operators.is_overload(func) and _torch.operators.can_decompose(func):
        return ServedBy.PARTS
    if handler_of_namespace(cls, func) is not None:
        return ServedBy.COLLECTIVE
    declares_this_view = cls.__wrapper_declaration__.views is not None and is_view(func)
    if cls.__wrapper_declaration__.fallback == "each" and not declares_this_view:
        return ServedBy.EACH
    if _torch.operators.is_overload(func) and built_in(cls, func) is not None:
        return ServedBy.BUILT_IN
    if cls.__wrapper_declaration__.fallback == "plain":
        return ServedBy.PLAIN
    return ServedBy.PARTS if _torch.operators.is_overload(func) and _torch.operators.has_parts(func) else ServedBy.NONE


def _without_rules(cls: type[Wrapper], func: Any) -> Handler:
    match served_by(cls, func):
        case ServedBy.PARTS:
            handler: Handler = _torch.dispatch.decomposition(func)
        case ServedBy.COLLECTIVE:
            handler = cast(Handler, handler_of_namespace(cls, func))
        case ServedBy.EACH:
            handler = new_of_each(cls, func) if func in NEW else each_handler(cls, func)
        case ServedBy.BUILT_IN:
            handler = cast(Handler, built_in(cls, func))
        case ServedBy.PLAIN:
            handler = plain_handler(cls, func)
        case ServedBy.NONE:
            handler = lambda *args, **kwargs: _refuse(cls, func, args, kwargs)  # noqa: E731
    return handler


def _refuse(cls: type[Wrapper], func: AnyOperator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    raise errors.no_rule(cls, func, args, kwargs)


def knows(cls: type[Wrapper], types: tuple[type, ...]) -> bool:
    """Returns whether `cls` may serve an operator on arguments of these types.

    It may not where one of them is another wrapper class that is neither related nor in `cls.accepts`: then that
    class is called. Subclasses that stand for one tensor (fake, functional, meta tensors, parameters) are never in the
    way.
    """
    if types in cls.__dict__["_known"]:
        return True
    for other in types:
        if (
            hasattr(other, "__tensor_flatten__")
            and not issubclass(other, (cls, *cls.accepts))
            and not issubclass(cls, other)
        ):
            return False
    cls.__dict__["_known"].add(types)
    return True


@_torch.dynamo.below_dynamo
def dispatch(
    cls: type[Wrapper],
    func: AnyOperator,
    types: tuple[type[torch.Tensor], ...],
    args: tuple[Any, ...] = (),
    kwargs: dict[str, Any] | None = None,
    of: type[Wrapper] | None = None,
) -> Any:
    """Returns the body of `__torch_dispatch__`; of views, `of` is the class of the whole, where its rules go first."""
    if len(types) > 1 and not knows(cls, types):
        return NotImplemented
    try:
        handler = cls._handlers[func]
    except KeyError:
        handler = handler_for(cls, func)
    if of is not None:
        handler = handler_for_views(cls, func, of)
    if is_inference_mode_enabled():
        return _in_inference_mode(func, handler, args, kwargs or {})
    return handler(*args, **kwargs) if kwargs else handler(*args)


def _in_inference_mode(func: AnyOperator, handler: Handler, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Runs a handler so that views of an ordinary tensor are ordinary in inference mode, too: they share its
    counter.
    """
    if not _torch.operators.is_overload(func) or not (viewed := effects_of(func).viewed):
        return handler(*args, **kwargs)
    base = effects_of(func).bind(args, kwargs)[viewed]
    if not base.is_inference():
        with torch.inference_mode(False), torch.no_grad():
            return handler(*args, **kwargs)
    view = handler(*args, **kwargs)
    if args and args[0] is base:
        set_origin(view, base, func, args[1:], kwargs)
    return view
