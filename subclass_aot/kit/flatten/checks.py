"""The slow side of generated code: what it calls once a comparison on the good path failed."""

from __future__ import annotations

from typing import Any, NoReturn

import torch

from subclass_aot.base._torch.wrappers import is_traceable_wrapper_subclass
from subclass_aot.errors import LeafCountError, PlanError


def wrong_class(value: object, planned: type, where: str) -> NoReturn:
    """Raises for a value of another class than planned."""
    raise PlanError(f"{where}: planned as {_name(planned)}, got {_name(type(value), planned)}.\n{WHY_CLASSES_COUNT}")


def not_exactly_tensor(value: object, planned: type, where: str) -> None:
    """Lets through what is another class than planned and still one leaf of the same kind; raises for the rest."""
    if is_traceable_wrapper_subclass(value) or isinstance(value, torch.Tensor) != issubclass(planned, torch.Tensor):
        wrong_class(value, planned, where)


def wrong_container(value: Any, planned: type, keys: Any, where: str) -> NoReturn:
    """Raises for a list, tuple or dict of inner tensors that is not as planned."""
    parts: Any = value  # the comparison below would narrow it to `object`
    if type(value) is not planned:
        wrong_class(value, planned, where)
    got, expected = (list(parts), list(keys)) if planned is dict else (len(parts), len(keys))
    what = "keys" if planned is dict else "length"
    raise PlanError(f"{where}: planned as a {planned.__name__} of {what} {expected}, got {got}.\n{WHY_CLASSES_COUNT}")


def wrong_value_count(values: object, planned: int, where: str) -> PlanError:
    """Returns the error for another number of values than planned."""
    return PlanError(
        f"{where}: planned for {planned} values, got {_count(values)}.\nMake a plan for each list of values."
    )


def wrong_leaf_count(leaves: object, planned: int, where: str) -> LeafCountError:
    """Returns the error for another number of leaves than planned."""
    return LeafCountError(
        f"{where}: planned for {planned} leaves, got {_count(leaves)}.\n"
        "Give every leaf that `unwrap` returned, in its order; see `plan.index_map.slots` for what each one is."
    )


def wrong_leaf(leaf: Any, planned: type, dtype: torch.dtype | None, where: str) -> None:
    """Raises for a leaf of another kind or dtype than planned; accepts other classes of dense tensors."""
    not_exactly_tensor(leaf, planned, where)
    if dtype is not None and leaf.dtype is not dtype:
        raise PlanError(
            f"{where}: planned as a leaf of {dtype}, got {leaf.dtype}.\n"
            "Are the leaves in the order of `unwrap`? To change a dtype, convert the wrapper and make a new plan."
        )


def tensor_instead_of_value(leaf: object, kind: str, where: str) -> NoReturn:
    """Raises for a tensor where the flat list has a size, a stride or an opaque value."""
    raise PlanError(f"{where}: planned as {kind}, got {_name(type(leaf))}.\nAre the leaves in the order of `unwrap`?")


def no_tensor(leaf: object, where: str) -> NoReturn:
    """Raises for what is no tensor in the place of an inner one."""
    got = "None" if leaf is None else f"an object of type {_name(type(leaf))}"
    raise PlanError(f"{where}: planned as an inner tensor, got {got}.\nAre the leaves in the order of `unwrap`?")


WHY_CLASSES_COUNT = (
    "A plan is made for one tree of classes; make a new one, `FlattenPlan.of(values)`, for values of another."
)


def _name(cls: type, other: type | None = None) -> str:
    """Returns the name of `cls`, with its module where `other` is another class of that name."""
    ambiguous = other is not None and other is not cls and other.__name__ == cls.__name__
    return f"{cls.__module__}.{cls.__qualname__}" if ambiguous else cls.__name__


def _count(values: object) -> str:
    return str(len(values)) if hasattr(values, "__len__") else f"an object of type {type(values).__name__}"
