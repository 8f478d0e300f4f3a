"""Version counters of a tensor and of the tensors inside it.

A write through a wrapper moves the wrapper's counter only: its inner tensors are written below autograd. A write to an
inner tensor by its own name moves that tensor's counter only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from subclass_aot.flatten import ContainerMeta, PlainTensorMeta, SubclassCreationMeta, attribute, element


def versions(tensor: Any, meta: Any) -> dict[str, int]:
    """The version of every tensor in a tree, by the path that leads to it; the outermost is at `""`.

    >>> import torch
    >>> versions(torch.ones(2).mul_(2), PlainTensorMeta(0))
    {'': 1}
    """
    return dict(_versions(tensor, meta, ""))


def _versions(value: Any, meta: Any, path: str) -> Iterator[tuple[str, int]]:
    if isinstance(meta, SubclassCreationMeta):
        yield path, value._version
        for name, inner in meta.attrs.items():
            yield from _versions(getattr(value, name), inner, path + attribute(name))
    elif isinstance(meta, ContainerMeta):
        for key, inner in meta.items.items():
            yield from _versions(value[key], inner, path + element(key))
    elif isinstance(meta, PlainTensorMeta) and meta.is_tensor:
        yield path, value._version
