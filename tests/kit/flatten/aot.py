"""Torch's own flattening of wrappers, the oracle of these tests, in the one form that all torches can be brought to.

From 2.14 on torch gives the symbolic sizes of *inner plain* tensors slots of their own, behind each of them. Here they
have none, as in torch before: whoever has the tensor can ask it for its sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch._functorch._aot_autograd import schemas, subclass_utils
from torch._functorch._aot_autograd.descriptors import DummyAOTInput, SubclassSizeAOTInput, SubclassStrideAOTInput


def unwrap(values: Sequence[Any]) -> list[Any]:
    """The leaves of `values` with the slots of symbolic sizes, as torch orders them."""
    places: list[Any] = [DummyAOTInput(i) for i, _ in enumerate(values)]
    leaves, descriptors = subclass_utils.unwrap_tensor_subclasses(list(values), places, append_symints=True)
    plain = set(descriptors)  # a wrapper is no leaf, so what is here and has sizes is a plain tensor
    return [
        leaf
        for leaf, descriptor in zip(leaves, descriptors, strict=True)
        if not (isinstance(descriptor, SubclassSizeAOTInput | SubclassStrideAOTInput) and descriptor.base in plain)
    ]


def create_subclass_meta(values: Sequence[Any], count_symints: bool = True) -> list[Any]:
    """What torch notes of each value, with positions and counts that leave out the sizes of inner plain tensors."""
    metas: list[Any] = subclass_utils.create_subclass_meta(list(values), count_symints=count_symints)
    start = 0
    for meta in metas:
        start = _renumber(meta, start)
    return metas


def _renumber(meta: Any, start: int) -> int:
    if not isinstance(meta, schemas.SubclassCreationMeta):
        return start + 1
    own = meta.arg_count - sum(getattr(inner, "arg_count", 1) for inner in meta.attrs.values())
    meta.flat_tensor_start_idx = start
    for inner in meta.attrs.values():
        start = _renumber(inner, start)
    meta.arg_count = start + own - meta.flat_tensor_start_idx
    return start + own
