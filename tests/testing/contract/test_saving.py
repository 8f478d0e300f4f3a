"""Clauses 37 and 38, on classes with one mistake each."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.testing.contract.classes import OURS, Held, Scaled, aten, broken, held, scaled

ONLY = (37, 38)


class ForgetsNote(Scaled):
    note: str = ""

    def from_plain(self, plain: torch.Tensor) -> Any:
        return ForgetsNote(plain / self.scale, self.scale.clone(), self.note)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _forgetful, (self.codes, self.scale, self.requires_grad)


def _forgetful(codes: torch.Tensor, scale: torch.Tensor, requires_grad: bool) -> Any:
    return ForgetsNote(codes, scale).requires_grad_(requires_grad)


class SharedCopy(Scaled):
    def __deepcopy__(self, memo: Any) -> Any:
        return SharedCopy(self.codes, self.scale).requires_grad_(self.requires_grad)


class KeepsDtype(Held):
    """`to` forgets the dtype that is asked for."""

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is aten._to_copy.default:
            return cls(args[0].held.clone())
        return super().__torch_dispatch__(func, types, args, kwargs)


@pytest.mark.parametrize("name", OURS)
def test_our_classes(name: str) -> None:
    assert broken(OURS[name][0], ONLY) == {}


def test_right_class() -> None:
    assert broken(scaled(Scaled), ONLY) == {}


@pytest.mark.parametrize(
    ("make", "name", "says"),
    [
        (lambda: ForgetsNote(torch.randn(4, 6), torch.rand(4, 1), "a"), "pickle", "names and context are"),
        (scaled(SharedCopy), "copy.deepcopy", "it shares memory with the tensor"),
        (held(KeepsDtype), "Module.to(dtype)", "it has torch.float32, not torch.float64, and nothing was said"),
    ],
)
def test_one_mistake(make: Any, name: str, says: str) -> None:
    assert says in broken(make, ONLY)[name]


def test_a_class_by_hand() -> None:
    """`weights_only` does not know it, and `.data =` leaves its inner tensors as they were."""
    found = broken(held(Held), ONLY)
    assert set(found) == {"torch.save", "torch.load(mmap=True)", "state_dict", "data"}
    assert "UnpicklingError" in found["torch.save"] and found["data"].startswith("the tensor has wrong values")
