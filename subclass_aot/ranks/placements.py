"""A `DTensor` of wrappers as a wrapper of `DTensor`s, of which each may be written and read alone; and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from subclass_aot.base import _torch
from subclass_aot.errors import ShardingError
from subclass_aot.kit.declaration import Declaration
from subclass_aot.kit.wrapper.layout.field_map import CannotFollow, share_of

_REFUSED = """{place} is a DTensor of {cls}, whose parts cannot be written one by one.
  why: {why}.
  Instead: save {place}.to_local(), each rank its own, or {place}.full_tensor(){more}."""


class Mesh(Protocol):
    """The ranks among which a tensor is cut."""

    def size(self, mesh_dim: int | None = None) -> int: ...


class Distributed(Protocol):
    """The attributes that are read of a `DTensor`."""

    @property
    def device_mesh(self) -> Mesh: ...
    @property
    def placements(self) -> Sequence[object]: ...
    @property
    def shape(self) -> torch.Size: ...
    def stride(self) -> tuple[int, ...]: ...
    def to_local(self) -> torch.Tensor: ...


def of_distributed(distributed: Distributed, place: str = "tensor") -> Any:
    """Returns the wrapper of `DTensor`s that a `DTensor` of wrappers is; nothing is copied.

    A leaf that has the rows (or columns) in which the tensor is cut is cut alike; one that all of them share, as a
    scale of rows where columns are cut, is the same on each rank: `Replicate()`.

    Args:
        distributed: The tensor.
        place: Its name, for errors.

    Raises:
        ShardingError: The class does not say how it is cut, or it is not cut in this way.
    """
    mesh, placements, shape = distributed.device_mesh, tuple(distributed.placements), tuple(distributed.shape)
    return _apart(distributed.to_local(), shape, placements, mesh, place)


def within_distributed(wrapper: torch.Tensor, like: Distributed) -> Any:
    """Returns the `DTensor` of wrappers, placed as `like`, of which `wrapper` has the `DTensor`s.

    Args:
        wrapper: What `of_distributed` gave for a tensor like `like`, or holds other values.
        like: A `DTensor` of wrappers.
    """
    local = _mapped(wrapper, tuple(like.to_local().shape), _local)
    mesh, shape, stride = like.device_mesh, like.shape, like.stride()
    cls: Any = type(like)
    return cls.from_local(local, mesh, like.placements, run_check=False, shape=shape, stride=stride)


def _local(leaf: Any) -> torch.Tensor:
    return leaf.to_local()  # type: ignore[no-any-return]


def _apart(local: torch.Tensor, shape: tuple[int, ...], placements: Sequence[object], mesh: Mesh, place: str) -> Any:
    from torch.distributed.tensor import DTensor

    where: Any = mesh
    inner: dict[str, torch.Tensor] = {}
    for name, leaf in _inner(local).items():
        size, placed = list(leaf.shape), []
        for i, placement in enumerate(placements):
            kept, length = _placed(local, name, shape, placement, mesh.size(i), place)
            placed.append(kept)
            if length is not None:
                size[placement.dim] = length  # type: ignore[attr-defined]
        if _torch.wrappers.is_traceable_wrapper_subclass(leaf):
            inner[name] = _apart(leaf, tuple(size), placed, mesh, f"{place}.{name}")
        else:
            stride = _torch.wrappers.contiguous_stride(tuple(size))
            inner[name] = DTensor.from_local(
                leaf, where, placed, run_check=False, shape=torch.Size(size), stride=tuple(stride)
            )
    return made_of(local, inner, shape)


def _placed(
    local: torch.Tensor, name: str, shape: tuple[int, ...], placement: object, ranks: int, place: str
) -> tuple[Any, int | None]:
    """Returns how a leaf is placed where its wrapper is, and the length of the whole leaf along the dim that is cut."""
    from torch.distributed.tensor import Replicate, Shard

    if type(placement) is Replicate:
        return placement, None
    if type(placement) is not Shard:
        raise _refusal(local, place, f"it is placed as {placement}")
    dim = placement.dim
    try:
        share = share_of(local, name, dim)
    except CannotFollow as error:
        raise _refusal(local, place, str(error), ", or declare how, by views=") from None
    leaf = getattr(local, name)
    if local.shape[dim] == 1 and shape[dim] > 1 and dim and share:
        why = f"of one column on each rank nobody can tell whether {name}{list(leaf.shape)} belongs to it or to all"
        if _is_declared(local):
            raise _refusal(local, place, why)
    if not share:
        return Replicate(), None
    length = share * shape[dim]
    if (
        length.denominator != 1
        or share != 1
        and any(
            share * theirs != _length_on(rank, int(length), ranks)
            for rank, theirs in enumerate(_length_on(rank, shape[dim], ranks) for rank in range(ranks))
        )
    ):
        why = f"the parts of {list(shape)} cut {name}, which stands for {1 / share} each, within one"
        raise _refusal(local, place, why)
    return placement, int(length)


def _is_declared(local: torch.Tensor) -> bool:
    declaration = Declaration.of(type(local))
    return declaration is not None and declaration.fallback != "each"


def _length_on(rank: int, length: int, ranks: int) -> int:
    """Returns how much of a length that is cut among ranks one of them has."""
    each = -(-length // ranks)
    return max(0, min(each, length - rank * each))


def _mapped(wrapper: torch.Tensor, shape: tuple[int, ...], change: Callable[[Any], torch.Tensor]) -> Any:
    """Returns a wrapper of another size, of what `change` makes of each leaf."""
    inner: dict[str, torch.Tensor] = {}
    for name, leaf in _inner(wrapper).items():
        if _torch.wrappers.is_traceable_wrapper_subclass(leaf) and not hasattr(leaf, "to_local"):
            inner[name] = _mapped(leaf, tuple(leaf.shape), change)
        else:
            inner[name] = change(leaf)
    return made_of(wrapper, inner, shape)


def _inner(wrapper: torch.Tensor) -> dict[str, torch.Tensor]:
    flat: Any = wrapper
    return {name: getattr(wrapper, name) for name in flat.__tensor_flatten__()[0]}


def made_of(like: Any, inner: dict[str, torch.Tensor], shape: tuple[int, ...]) -> Any:
    """Makes a wrapper of inner tensors, of a size that one of another library is told."""
    cls, context = type(like), like.__tensor_flatten__()[1]
    declaration = Declaration.of(cls)
    if declaration is None or "__tensor_unflatten__" not in declaration.generated:
        return cls.__tensor_unflatten__(inner, context, torch.Size(shape), _torch.wrappers.contiguous_stride(shape))
    return cls.__tensor_unflatten__(inner, context)


def _refusal(local: torch.Tensor, place: str, why: str, more: str = "") -> ShardingError:
    return ShardingError(_REFUSED.format(place=place, cls=type(local).__name__, why=why, more=more))
