"""Contexts, and classes by hand that are taken apart wrong: one mistake each, which the docstrings say."""

from __future__ import annotations

from typing import Any

import torch

from tests.testing.contract.classes import Held


class NoEquality:
    """A context that is equal to nothing but itself.

    Clauses:
        15 equality
    Also: 16, 37, 39
    """

    def __deepcopy__(self, memo: Any) -> Any:
        return self


class HashByIdentity:
    """A context whose hash is that of the object.

    Clauses:
        17 hash
    """

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HashByIdentity)

    __hash__ = object.__hash__


class TensorAnswer:
    """A context whose `==` gives a tensor.

    Clauses:
        15 equality
    """

    def __eq__(self, other: object) -> Any:
        return torch.ones(1, dtype=torch.bool)


torch.serialization.add_safe_globals([NoEquality, HashByIdentity, TensorAnswer])


class Strict(Held):
    """Its guard does not hold for its own context.

    Clauses:
        18 metadata guard
    """

    @classmethod
    def __metadata_guard__(cls, before: Any, now: Any) -> bool:
        return bool(before != now)


class Restless(Held):
    """Its hash for caches is another at each call.

    Clauses:
        19 stable hash
    """

    count = 0

    def _stable_hash_for_caching(self) -> str:
        Restless.count += 1
        return str(Restless.count)


class Cloning(Held):
    """Unflatten copies what it is given.

    Clauses:
        12 no copies
    """

    @classmethod
    def __tensor_unflatten__(cls, inner: dict[str, Any], context: Any, size: Any, stride: Any) -> Any:
        return cls(inner["held"].clone(), context)


class OwnSize(Held):
    """Unflatten makes what it always was, whatever it is given.

    Clauses:
        11 other sizes
    Also: 10, 12
    """

    @classmethod
    def __tensor_unflatten__(cls, inner: dict[str, Any], context: Any, size: Any, stride: Any) -> Any:
        return cls(inner["held"][:4], context)


class Dense(Held):
    """Unflatten gives the inner tensor.

    Clauses:
        7 protocol
        10 round trip
    Also: 5
    """

    @classmethod
    def __tensor_unflatten__(cls, inner: dict[str, Any], context: Any, size: Any, stride: Any) -> Any:
        return inner["held"]


class ForgetsNote(Held):
    """Unflatten forgets the context.

    Clauses:
        10 round trip
    """

    @classmethod
    def __tensor_unflatten__(cls, inner: dict[str, Any], context: Any, size: Any, stride: Any) -> Any:
        return cls(inner["held"], "")


class NoneInside(Held):
    """An inner tensor that is absent has a name.

    Clauses:
        8 names
    Also: 5
    """

    absent = None

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        return ["held", "absent"], self.note


class Asking(Held):
    """Flatten computes.

    Clauses:
        14 flatten is direct
    """

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        torch.sum(self.held)
        return ["held"], self.note


class OtherNames(Held):
    """The order of its names is another at each call.

    Clauses:
        9 stable order
    Also: 10, 37, 39
    """

    count = 0

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        OtherNames.count += 1
        return ["held", "second"][:: 1 if OtherNames.count % 2 else -1], self.note

    second = property(lambda self: self.held, lambda self, value: setattr(self, "held", value))
