"""A walk over the tree of a wrapper, for what runs once. What runs at each call is generated: see `emit.py`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from subclass_aot.kit.flatten.metas import ContainerMeta, InnerMeta, SubclassCreationMeta


def walk(value: object, meta: InnerMeta, path: str = "") -> Iterator[tuple[str, Any, InnerMeta]]:
    """Yields a value and all that is inside of it, outer ones first: its path, itself, and its meta.

    Args:
        value: A value.
        meta: What it is described as.
        path: What leads to it.

    >>> import torch
    >>> from subclass_aot.tensors import TwoTensor
    >>> from subclass_aot.kit.flatten import create_subclass_meta
    >>> x = TwoTensor(torch.ones(2), torch.ones(2))
    >>> [path for path, part, meta in walk(x, *create_subclass_meta([x]), path="x")]
    ['x', 'x.a', 'x.b']
    """
    yield path, value, meta
    if isinstance(meta, SubclassCreationMeta):
        for name, inner in meta.attrs.items():
            yield from walk(getattr(value, name), inner, path + meta.step(name))
    elif isinstance(meta, ContainerMeta):
        elements: Any = value
        for key, inner in meta.items.items():
            yield from walk(elements[key], inner, path + meta.step(key))
