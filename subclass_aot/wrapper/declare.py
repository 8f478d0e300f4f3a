"""What happens when a wrapper class is defined: declarations are read, checked, and turned into generated methods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from subclass_aot.errors import DefinitionError
from subclass_aot.wrapper import construct, messages
from subclass_aot.wrapper.fields import Field, read_fields
from subclass_aot.wrapper.outer import outer_rule, stand_in
from subclass_aot.wrapper.serialize import allow_loading

_AUTHORS = ("__new__", "__init__", "__tensor_flatten__", "__tensor_unflatten__")
_FALLBACKS = ("each", "plain", "error")
_VIEWS = ("broadcast", "keep")


def declare(cls: Any, fallback: Any, views: Any, caller_locals: Mapping[str, Any]) -> None:
    """Completes a class that derives from `WrapperTensor`.

    Args:
        cls: The class.
        fallback: The class keyword `fallback`.
        views: The class keyword `views`.
        caller_locals: The names that the class statement can see besides its module's.

    Raises:
        DefinitionError: The class statement is wrong.
    """
    written = {name for base in cls.__mro__[: cls.__mro__.index(torch.Tensor) - 1] for name in _AUTHORS
               if name in vars(base) and name not in vars(base).get("_generated", ())}  # fmt: skip
    inherited: dict[str, Field] = {}
    for base in reversed(cls.__mro__[1 : cls.__mro__.index(torch.Tensor)]):
        inherited.update(vars(base).get("_fields", {}))
    cls._fields = read_fields(cls, inherited, caller_locals)
    cls._handlers, cls._rules, cls._known = {}, {}, set()
    _check_recipes(cls, fallback, views)
    rule = outer_rule(cls)
    if rule is not None and not callable(rule):
        raise DefinitionError(messages.OUTER_NOT_CALLABLE.format(cls=cls.__name__, value=rule))
    for field in cls._fields.values():
        if field.kind in ("sequence", "mapping"):
            setattr(cls, field.name, construct.element_property(field))
        elif field.kind == "optional":
            setattr(cls, field.name, None)
    cls._attribute_names = tuple(
        field.name if field.kind == "context" else field.layout_attribute
        for field in cls._fields.values()
        if field.kind in ("context", "sequence", "mapping")
    )
    cls._stand_in = stand_in(cls)
    _generate(cls, written)
    allow_loading(cls)


def _generate(cls: Any, written: set[str]) -> None:
    """Adds what the author has not written; `_generated` tells it apart from what an author of a base has."""
    generated: dict[str, Any] = {}
    if "__new__" not in written:
        generated["__new__"] = staticmethod(construct.constructor(cls))
    if "__tensor_flatten__" not in written:
        generated["__tensor_flatten__"] = construct.flattener(cls)
    if "__tensor_unflatten__" not in written:
        generated["__tensor_unflatten__"] = classmethod(construct.unflattener(cls))
    generated["__wrapper_attributes__"] = None if written else classmethod(construct.attributes(cls))
    cls._generated = frozenset(generated)
    for name, method in generated.items():
        setattr(cls, name, method)


def _check_recipes(cls: Any, fallback: Any, views: Any) -> None:
    if fallback is not None and fallback not in _FALLBACKS:
        raise DefinitionError(messages.UNKNOWN_FALLBACK.format(cls=cls.__name__, value=fallback))
    if fallback == "plain" and not hasattr(cls, "to_plain"):
        raise DefinitionError(messages.PLAIN_WITHOUT_METHOD.format(cls=cls.__name__))
    if fallback is not None:
        cls._fallback = fallback
    elif "to_plain" in vars(cls) and cls._fallback == "error":
        cls._fallback = "plain"
    if views is None:
        return
    rules = {} if views == "broadcast" else views
    tensors = {name for name, field in cls._fields.items() if field.kind != "context"}
    if not isinstance(rules, Mapping) or not set(rules) <= tensors or not set(rules.values()) <= set(_VIEWS):
        raise DefinitionError(messages.UNKNOWN_VIEWS.format(cls=cls.__name__, value=views))
    cls._views = dict(rules)
