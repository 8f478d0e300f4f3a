"""Defines wrapper classes: reads and checks declarations, and generates methods of them."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.errors import DefinitionError
from subclass_aot.kit.declaration import Declaration, Field
from subclass_aot.kit.wrapper.declare import construct, gradients, messages
from subclass_aot.kit.wrapper.declare.fields import read_fields
from subclass_aot.kit.wrapper.declare.outer import outer_rule, stand_in, take_rule_of_old_name
from subclass_aot.kit.wrapper.kind import Wrapper
from subclass_aot.kit.wrapper.serialize import allow_loading

_AUTHORS = ("__new__", "__init__", "__tensor_flatten__", "__tensor_unflatten__")
_HOOKS = ("fsdp_pre_all_gather", "fsdp_post_all_gather")
_FALLBACKS = ("each", "plain", "error")
_VIEWS = ("broadcast", "blocks", "keep")


def declare(cls: type[Wrapper], given: Mapping[str, object], caller_locals: Mapping[str, object]) -> None:
    """Completes a class that derives from `WrapperTensor`.

    Args:
        cls: The class.
        given: The class keywords `fallback`, `views` and `renamed`; None for one that the class statement has not.
        caller_locals: The names that the class statement can see besides its module's.

    Raises:
        DefinitionError: The class statement is wrong.
    """
    written = _written(cls)
    inherited: dict[str, Field] = {}
    keywords: dict[str, Any] = {"fallback": "error", "views": None}
    renamed: dict[str, str] = {}
    for base in _declared_bases(cls):
        inherited.update(base.fields)
        keywords.update(base.said)
        renamed.update(base.renamed)
    fields = read_fields(cls, inherited, caller_locals)
    said = _said(cls, fields, given["fallback"], given["views"], keywords["fallback"])
    renamed.update(_renamed(cls, fields, given["renamed"]))
    take_rule_of_old_name(cls)
    rule = outer_rule(cls)
    if rule is not None and not callable(rule):
        raise DefinitionError(messages.OUTER_NOT_CALLABLE.format(cls=cls.__name__, name="outer_metadata", value=rule))
    for field in fields.values():
        if inspect.isdatadescriptor(getattr(torch.Tensor, field.name, None)):
            setattr(cls, field.name, construct.held_property(field))
        elif field.kind in ("sequence", "mapping"):
            setattr(cls, field.name, construct.element_property(field))
        elif field.kind == "optional":
            setattr(cls, field.name, None)
    methods = [name for name in _METHODS if name not in written]
    cls._handlers, cls._known, cls._field_maps = {}, set(), {}
    cls.__wrapper_declaration__ = Declaration(
        fields=fields,
        attributes=tuple(
            field.name if field.kind == "context" else field.layout_attribute
            for field in fields.values()
            if field.kind in ("context", "sequence", "mapping")
        ),
        **{**keywords, **said},
        said=said,
        generated=frozenset(methods),
        stand_in=stand_in(cls),
        rules={},
        renamed=renamed,
    )
    if inspect.isfunction(vars(cls).get("to_plain")):
        cls.to_plain = gradients.differentiable(vars(cls)["to_plain"])  # type: ignore[attr-defined]
    for name in methods:
        setattr(cls, name, _METHODS[name](cls))
    for name in _HOOKS:
        if inspect.isfunction(vars(cls).get(name)):
            _torch.dynamo.below_dynamo(vars(cls)[name])
    cls.__wrapper_attributes__ = None if written else classmethod(construct.attributes(cls))
    allow_loading(cls)


_METHODS: Mapping[str, Any] = {
    "__new__": lambda cls: staticmethod(construct.constructor(cls, gradients.construct)),
    "__tensor_flatten__": lambda cls: construct.flattener(cls),
    "__tensor_unflatten__": lambda cls: classmethod(construct.unflattener(cls)),
}
"""For each method that a class needs and its author may write: what generates it."""


def _written(cls: type[Wrapper]) -> set[str]:
    """Returns the methods that the author of a class, or of a base of it, has written."""
    bases = cls.__mro__[: cls.__mro__.index(torch.Tensor) - 1]  # `WrapperTensor` itself declares nothing
    found: set[str] = set()
    for base in bases:
        own: Declaration | None = vars(base).get("__wrapper_declaration__")
        generated = frozenset() if own is None else own.generated
        found.update(name for name in _AUTHORS if name in vars(base) and name not in generated)
    return found


def _declared_bases(cls: type) -> Iterator[Declaration]:
    """Yields the declarations of the bases of a class, the nearest last."""
    for base in reversed(cls.__mro__[1 : cls.__mro__.index(torch.Tensor)]):
        if "__wrapper_declaration__" in vars(base):
            yield vars(base)["__wrapper_declaration__"]


def _said(
    cls: type, fields: Mapping[str, Field], fallback: object, views: object, inherited: object
) -> dict[str, object]:
    """Returns the class keywords that a class statement gives, checked; `to_plain` stands for `fallback="plain"`."""
    if fallback is not None and fallback not in _FALLBACKS:
        raise DefinitionError(messages.UNKNOWN_FALLBACK.format(cls=cls.__name__, value=fallback))
    if fallback == "plain" and not hasattr(cls, "to_plain"):
        raise DefinitionError(messages.PLAIN_WITHOUT_METHOD.format(cls=cls.__name__))
    said: dict[str, object] = {}
    if fallback is not None:
        said["fallback"] = fallback
    elif "to_plain" in vars(cls) and inherited == "error":
        said["fallback"] = "plain"
    if views is None:
        return said
    tensors = {name for name, field in fields.items() if field.kind != "context"}
    rules = {} if views == "broadcast" else dict.fromkeys(tensors, views) if views == "blocks" else views
    if not isinstance(rules, Mapping) or not set(rules) <= tensors or not set(rules.values()) <= set(_VIEWS):
        raise DefinitionError(messages.UNKNOWN_VIEWS.format(cls=cls.__name__, value=views))
    return {**said, "views": dict(rules)}


def _renamed(cls: type, fields: Mapping[str, Field], renamed: object) -> Mapping[str, str]:
    """Returns the class keyword `renamed`, checked: names that no field has, for fields."""
    if renamed is None:
        return {}
    if not isinstance(renamed, Mapping) or not set(renamed.values()) <= set(fields) or set(renamed) & set(fields):
        raise DefinitionError(messages.WRONG_RENAMED.format(cls=cls.__name__, value=renamed))
    return renamed
