"""`Declaration`: the frozen description of a wrapper class. `wrapper/` writes it; others read it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from dataclasses import field as derived
from enum import Enum
from types import MethodType
from typing import Any, Final, Literal, Protocol

Kind = Literal["tensor", "optional", "sequence", "mapping", "context"]
Fallback = Literal["each", "plain", "error"]
Rule = Callable[..., Any]


class Missing(Enum):
    """The type of `MISSING`."""

    MISSING = "no default"


MISSING: Final = Missing.MISSING
"""Stands where a field has no default."""


@dataclass(frozen=True, slots=True)
class Field:
    """One declared field.

    Args:
        name: The attribute's name.
        kind: What it holds: one tensor, an optional one, several in order, several by name, or context (anything else).
        default: The default value, or `MISSING`.
        annotation: The evaluated annotation.
        is_structure: Whether it says where values are, or what they mean, and is none itself. See `structure`.
    """

    name: str
    kind: Kind
    default: Any
    annotation: Any
    is_structure: bool = False

    @property
    def layout_attribute(self) -> str:
        """Where an instance keeps how many (or which) elements a field of several tensors has."""
        return f"_{self.name}_layout"


@dataclass(frozen=True, slots=True)
class OperatorRule:
    """The rule that an author wrote for operators.

    Args:
        function: Called with the arguments of an operator.
        takes_operator: Whether the operator comes before them.
    """

    function: Rule
    takes_operator: bool = False

    def bound_to(self, operator: object) -> Rule:
        """Returns a function of the arguments alone. It is a bound method, which costs nothing at a call."""
        return MethodType(self.function, operator) if self.takes_operator else self.function


@dataclass(frozen=True, slots=True, eq=False)
class Declaration:
    """The parts of a class that derives from `WrapperTensor`.

    Attributes:
        fields: By name, in order, inherited ones first.
        attributes: What an instance has beside inner tensors: context values, and layouts of fields of several tensors.
        fallback: What serves an operator without a rule.
        views: For each field that says so, how view operators act on it; None where they do not.
        said: Those class keywords that the class statement itself gives; of the others the nearest base counts.
        generated: The methods that the author has not written.
        stand_in: The class of the object that `outer_metadata` is called on, before there is a tensor.
        rules: For operators, and sets of them, those that the class itself has: `implements` adds to them.
        renamed: For names that fields had in files, the fields that they are now.
        is_static: Whether every instance has the same inner tensor names.
    """

    fields: Mapping[str, Field]
    attributes: tuple[str, ...]
    fallback: Fallback
    views: Mapping[str, str] | None
    said: Mapping[str, object]
    generated: frozenset[str]
    stand_in: type
    rules: dict[object, OperatorRule]
    renamed: Mapping[str, str]
    is_static: bool = derived(init=False)

    def __post_init__(self) -> None:
        kinds = {field.kind for field in self.fields.values()}
        object.__setattr__(self, "is_static", kinds <= {"tensor", "context"})

    @staticmethod
    def of(cls: type) -> Declaration | None:
        """Returns the declaration of a class, or None where it is not one that derives from `WrapperTensor`."""
        return getattr(cls, "__wrapper_declaration__", None)

    @property
    def is_told_by_name(self) -> bool:
        """Whether flatten and unflatten are generated, so that fields say what they give and take."""
        return {"__tensor_flatten__", "__tensor_unflatten__"} <= self.generated

    def is_structure(self, name: str) -> bool:
        """Returns whether the inner tensor `name` is structure."""
        return self.fields[self.field_of(name)].is_structure

    def how_viewed(self, name: str) -> str:
        """Returns how views act on the inner tensor `name`; "" where the class says nothing of views."""
        return "" if self.views is None else self.views.get(self.field_of(name), "broadcast")

    @property
    def has_blocks(self) -> bool:
        """Whether views are cut between the blocks that an element of a field stands for."""
        return self.views is not None and "blocks" in self.views.values()

    def field_of(self, name: str) -> str:
        """Returns the field to which the inner tensor `name` belongs."""
        if name in self.fields:
            return name
        return next(field for field in self.fields if name.startswith(field + "_"))

    def named_now(self, name: str) -> str:
        """Returns the present name of an inner tensor or an attribute that an older file calls `name`."""
        if name in self.renamed:
            return self.renamed[name]
        for old, now in self.renamed.items():
            field = self.fields[now]
            if field.kind in ("sequence", "mapping"):
                if name == f"_{old}_layout":
                    return field.layout_attribute
                if name.startswith(old + "_") and name not in self.fields:
                    return now + name.removeprefix(old)
        return name


class Attributes(Protocol):
    """A class method `__wrapper_attributes__`: the attributes of an instance that are no inner tensors."""

    def __call__(self, names: tuple[str, ...], context: object) -> dict[str, object]: ...


def attributes_of(cls: type) -> Attributes | None:
    """Returns the hook that gives the attributes of an instance for its context, so that no constructor runs; or None.

    Any traceable wrapper may offer it as `__wrapper_attributes__`. The class method of a class that derives from
    `WrapperTensor` is generated, unless its author has written how it is made.
    """
    return getattr(cls, "__wrapper_attributes__", None)
