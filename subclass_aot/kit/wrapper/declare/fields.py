"""Fields of a class statement, read from the annotations."""

from __future__ import annotations

import collections.abc
import inspect
import sys
import types
import typing
from collections.abc import Mapping
from typing import Any

import torch

from subclass_aot.base._stack import pass_on_interruption
from subclass_aot.errors import DefinitionError
from subclass_aot.kit.declaration import MISSING, Field, Kind
from subclass_aot.kit.wrapper.declare import messages

_SEQUENCES = (list, tuple, collections.abc.Sequence)
_MAPPINGS = (dict, collections.abc.Mapping)
_MUTABLE = (list, dict, set, bytearray, collections.abc.MutableSequence, collections.abc.MutableMapping)
_RESERVED = {"outer", "outer_metadata", "to_plain", "from_plain", "from_tangent", "accepts"}
_ONE = ("tensor", "optional", "context")
_GIVEN_UP = frozenset(
    "values indices crow_indices col_indices ccol_indices row_indices real imag mean std var median mode min max sum "
    "where log exp sign angle".split()
)
"""Names of `torch.Tensor` that a field may have: what torch does with a tensor of the class goes without them."""


class _Structure:
    """The result of `structure`."""

    def __repr__(self) -> str:
        return "structure()"


def structure() -> Any:
    """Marks a tensor field that says where values are, or what they mean: a mask, offsets, a lookup table.

    Operators that compute values leave it as it is: `zeros_like(t)`, `t * 0` and the state of optimizers have the
    structure of `t`, each a copy of its own. Views, `clone`, `to` and `copy_` act on it as on other fields, but for the
    dtype, which stays. Of any other operator nobody knows what it does to structure, so it wants a rule.

    Returns:
        What to write in the place of a default: `mask: torch.Tensor = structure()`. The constructor wants the field.

    >>> from subclass_aot import WrapperTensor
    >>> class Masked(WrapperTensor, fallback="each"):
    ...     content: torch.Tensor
    ...     mask: torch.Tensor = structure()
    >>> zeros = torch.zeros_like(Masked(torch.ones(2), torch.tensor([True, False])))
    >>> zeros.content, zeros.mask
    (tensor([0., 0.]), tensor([ True, False]))
    """
    return _Structure()


def read_fields(cls: type, inherited: Mapping[str, Field], caller_locals: Mapping[str, Any]) -> dict[str, Field]:
    """Returns the fields of `cls`: inherited ones first, in order, then its own.

    Args:
        cls: The class that is being defined.
        inherited: The fields of its bases, nearest base last.
        caller_locals: The names that the class statement can see besides its module's.

    Returns:
        Fields by name.

    Raises:
        DefinitionError: The declarations cannot work.
    """
    fields = dict(inherited)
    for name, annotation in inspect.get_annotations(cls).items():
        annotation = _evaluate(cls, name, annotation, caller_locals)
        if typing.ClassVar in (annotation, typing.get_origin(annotation)):
            continue
        fields[name] = _field(cls, name, annotation, cls.__dict__.get(name, MISSING), name in inherited)
    _check_together(cls, fields)
    return fields


def _evaluate(cls: type, name: str, annotation: object, caller_locals: Mapping[str, Any]) -> Any:
    """Turns the string that `from __future__ import annotations` leaves into what it says."""
    if not isinstance(annotation, str):
        return annotation
    module = vars(sys.modules[cls.__module__]) if cls.__module__ in sys.modules else {}
    try:
        return eval(annotation, dict(module), dict(caller_locals))
    except Exception as error:  # an annotation may run any code
        pass_on_interruption(error)
        if any(word in annotation for word in ("Tensor", "torch", "ClassVar")):
            raise DefinitionError(
                messages.UNREADABLE.format(cls=cls.__name__, name=name, annotation=annotation, error=error)
            ) from error
        return object  # a name that exists only for type checkers: whatever it is, it is not a tensor


def _field(cls: type, name: str, annotation: object, default: object, redeclared: bool) -> Field:
    kind = _kind(cls, name, annotation)
    is_taken = not redeclared and hasattr(_base(cls), name) and not (name in _GIVEN_UP and kind in _ONE)
    if name in _RESERVED or name.startswith("__") or is_taken:
        raise DefinitionError(messages.NAME_TAKEN.format(cls=cls.__name__, name=name))
    is_structure = isinstance(default, _Structure)
    if is_structure:
        if kind == "context":
            raise DefinitionError(messages.STRUCTURE_OF_CONTEXT.format(cls=cls.__name__, name=name))
        delattr(cls, name)
        default = MISSING
    if kind == "optional":
        if default is not None and default is not MISSING:
            raise DefinitionError(messages.TENSOR_DEFAULT.format(cls=cls.__name__, name=name))
        default = default if default is None else MISSING
    elif kind != "context":
        if default is not MISSING:
            raise DefinitionError(messages.TENSOR_DEFAULT.format(cls=cls.__name__, name=name))
    elif default is not MISSING:
        _check_context_default(cls, name, default)
    return Field(name, kind, None if is_structure and kind == "optional" else default, annotation, is_structure)


def _base(cls: type) -> type:
    """Returns the `WrapperTensor` at the root of `cls`, whose names (and `torch.Tensor`'s) are taken."""
    return cls.__mro__[cls.__mro__.index(torch.Tensor) - 1]


def _kind(cls: type, name: str, annotation: object) -> Kind:
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Annotated, typing.Final):
        return _kind(cls, name, args[0])
    if _is_tensor(annotation):
        return "tensor"
    if origin in (typing.Union, types.UnionType) and type(None) in args:
        if all(_is_tensor(arg) for arg in args if arg is not type(None)):
            return "optional"
    elif origin in _SEQUENCES and _is_tensor(args[0]) and (origin is not tuple or args[1:] == (...,)):
        return "sequence"
    elif origin in _MAPPINGS and args[0] is str and _is_tensor(args[1]):
        return "mapping"
    if _mentions_tensor(annotation):
        raise DefinitionError(
            messages.TENSOR_IN_CONTEXT.format(cls=cls.__name__, name=name, annotation=_text(annotation))
        )
    if (origin or annotation) in _MUTABLE:
        raise DefinitionError(messages.MUTABLE_CONTEXT.format(cls=cls.__name__, name=name, value=_text(annotation)))
    return "context"


def _is_tensor(annotation: object) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, torch.Tensor)


def _mentions_tensor(annotation: object) -> bool:
    return _is_tensor(annotation) or any(_mentions_tensor(arg) for arg in typing.get_args(annotation))


def _text(annotation: object) -> str:
    return annotation.__name__ if isinstance(annotation, type) and not typing.get_args(annotation) else str(annotation)


def _check_context_default(cls: type, name: str, default: object) -> None:
    if isinstance(default, torch.Tensor):
        raise DefinitionError(
            messages.TENSOR_IN_CONTEXT.format(cls=cls.__name__, name=name, annotation="a tensor as default")
        )
    if isinstance(default, _MUTABLE):
        raise DefinitionError(messages.MUTABLE_CONTEXT.format(cls=cls.__name__, name=name, value=repr(default)))
    try:
        hash(default)
    except TypeError as error:
        raise DefinitionError(
            messages.UNHASHABLE_CONTEXT.format(cls=cls.__name__, name=name, value=repr(default))
        ) from error


def _check_together(cls: type, fields: Mapping[str, Field]) -> None:
    if all(field.kind == "context" for field in fields.values()):
        raise DefinitionError(messages.NO_TENSOR_FIELD.format(cls=cls.__name__))
    with_default = ""
    for field in fields.values():
        if field.default is not MISSING:
            with_default = field.name
        elif with_default:
            raise DefinitionError(messages.DEFAULT_ORDER.format(cls=cls.__name__, name=field.name, before=with_default))
    for field in fields.values():
        if field.kind in ("sequence", "mapping"):
            for other in fields:
                if other.startswith(field.name + "_"):
                    raise DefinitionError(messages.ELEMENT_NAME.format(cls=cls.__name__, name=other, field=field.name))
