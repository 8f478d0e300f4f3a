"""Version counters of a tensor and of the tensors inside it.

A write through a wrapper moves the wrapper's counter only: its inner tensors are written below autograd. A write to an
inner tensor by its own name moves that tensor's counter only.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from subclass_aot import _torch
from subclass_aot.flatten import (
    AbsentMeta,
    ContainerMeta,
    InnerMeta,
    OpaqueMeta,
    PlainTensorMeta,
    SubclassCreationMeta,
    attribute,
    element,
)


def versions(tensor: torch.Tensor, meta: InnerMeta) -> dict[str, int]:
    """Returns the version of every tensor in a tree, by the path that leads to it; the outermost is at `""`.

    >>> import torch
    >>> versions(torch.ones(2).mul_(2), PlainTensorMeta(0))
    {'': 1}
    """
    return dict(_versions(tensor, meta, ""))


def _versions(value: object, meta: InnerMeta, path: str) -> Iterator[tuple[str, int]]:
    match meta:
        case SubclassCreationMeta():
            assert isinstance(value, torch.Tensor)
            yield path, _torch.version_of(value)
            for name, inner in meta.attrs.items():
                yield from _versions(getattr(value, name), inner, path + attribute(name))
        case ContainerMeta():
            assert isinstance(value, list | tuple | dict)
            for key, inner in meta.items.items():
                yield from _versions(value[key], inner, path + element(key))
        case PlainTensorMeta():
            if isinstance(value, torch.Tensor):
                yield path, _torch.version_of(value)
        case AbsentMeta() | OpaqueMeta():
            pass
