"""Hooks of FSDP2 for a parameter around an all-gather, for every declared class.

Note [Shards of wrappers]
~~~~~~~~~~~~~~~~~~~~~~~~~
`fully_shard` cuts a parameter into rows, by operators that reach the class as others do, and each rank keeps one part.
Before a layer runs, the parts are brought together. A wrapper travels as its dense leaves: those that have its rows are
gathered, each in its own dtype, and a leaf that all rows share stays at home, since it is the same on each rank. What
the layer sees is a wrapper of the gathered leaves. A rank that has all rows already sends nothing: of a single rank
FSDP2 takes one tensor only.

Shards are padded to equal length. FSDP2 then wants everything that travels to have the size of the padded shard, and
the scales of rows have another one. Such leaves go as bytes in tensors of that size: see `_packed`.

The whole is made once. At each further gather its leaves get their memory back and are filled again, since autograd and
the module hold on to them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

import torch

from subclass_aot.base import _torch
from subclass_aot.base._torch.operators import Operator
from subclass_aot.kit.wrapper import gather
from subclass_aot.kit.wrapper.kind import Wrapper
from subclass_aot.kit.wrapper.layout.field_map import CannotFollow, is_kept, rows_of
from subclass_aot.kit.wrapper.serve.each import each_handler
from subclass_aot.kit.wrapper.serve.errors import not_sharded
from subclass_aot.ranks.placements import made_of


class Mesh(Protocol):
    """The ranks among which a parameter is cut, as FSDP2 gives them."""

    def size(self) -> int: ...


class Precision(Protocol):
    """FSDP2's `MixedPrecisionPolicy`."""

    param_dtype: torch.dtype | None


@dataclass(frozen=True, slots=True)
class Leaf:
    """A dense leaf of a shard.

    Attributes:
        tensor: The leaf.
        rows: How many rows of it go with one of the shard; 0 for one that all rows share.
        is_declared: Whether its class says that it is the same for every part of a tensor.
        place: Where it stands, such as `weight.codes`.
    """

    tensor: torch.Tensor
    rows: Fraction
    is_declared: bool
    place: str


@dataclass(frozen=True, slots=True)
class Gathering:
    """Facts that are known before an all-gather and needed after it.

    Attributes:
        shard: What was sent, in the dtype that the layer wants.
        size: The size of the whole.
        sent: Of the leaves that travel, the size and the dtype of what each rank sends.
        ranks: How many there are.
        is_packed: Whether they travel as bytes.
    """

    shard: Wrapper
    size: tuple[int, ...]
    sent: tuple[tuple[tuple[int, ...], torch.dtype], ...]
    ranks: int
    is_packed: bool


@gather.before.put
def pre_all_gather(
    shard: Wrapper, mesh: Mesh, outer_size: Sequence[int], module: torch.nn.Module, precision: Precision
) -> tuple[tuple[torch.Tensor, ...], Gathering]:
    """Returns what this rank sends of its shard. See Note [Shards of wrappers].

    Args:
        shard: The rows of this rank.
        mesh: The ranks.
        outer_size: The size of the whole.
        module: The module that has the parameter.
        precision: In which dtype the layer runs.

    Returns:
        Dense tensors, of the same sizes on each rank, and what `post_all_gather` needs.

    Raises:
        ShardingError: The class does not say how its rows come together.
    """
    size, ranks = tuple(outer_size), mesh.size()
    if tuple(shard.shape[1:]) != size[1:]:
        raise not_sharded(shard, f"{list(size)} is cut into {list(shard.shape)}", "cut it along dim 0: `Shard(0)`")
    dtype = precision.param_dtype
    if dtype is not None and shard.dtype.is_floating_point:
        shard = shard.to(dtype)  # type: ignore[assignment]
    leaves = _leaves_of(shard)
    if tuple(shard.shape) == size and (ranks == 1 or size[0] > 1):
        return (torch.empty(0, device=shard.device),), Gathering(shard, size, (), 1, False)
    padded = -(-size[0] // ranks)
    is_even = padded * ranks == size[0]
    for leaf in leaves:
        _check_shared(shard, leaf, is_even, module)
        if (leaf.rows * padded).denominator != 1 or not is_even and leaf.rows.denominator != 1:
            why = f"{padded} rows of each rank part those of {leaf.place}, which stand for {1 / leaf.rows} each"
            raise not_sharded(shard, why, "give it as many rows that each rank has whole blocks")
    sent = [_padded(leaf.tensor, int(leaf.rows * padded)) for leaf in leaves if leaf.rows]
    sizes_and_dtypes = tuple((tuple(tensor.shape), tensor.dtype) for tensor in sent)
    is_packed = not is_even and any(each != (padded, *size[1:]) for each, _ in sizes_and_dtypes)
    if is_packed:
        sent = _packed(sent, (padded, *size[1:]))
    return tuple(sent), Gathering(shard, size, sizes_and_dtypes, ranks, is_packed)


@gather.after.put
def post_all_gather(
    outputs: Sequence[torch.Tensor], gathering: Gathering, out: torch.Tensor | None = None
) -> tuple[Wrapper, tuple[torch.Tensor, ...]] | None:
    """Returns the whole of what all ranks have sent.

    Args:
        outputs: What was gathered, the ranks one after another along dim 0.
        gathering: What `pre_all_gather` gave.
        out: The whole that an earlier call gave, whose leaves are to hold what has come; None for a new one.

    Returns:
        The whole, and the leaves whose memory may be freed and given back; None where `out` is given.

    Raises:
        ShardingError: Inner tensors of the class do not make a tensor of the whole size.
    """
    shard, rows = gathering.shard, gathering.size[0]
    leaves, arrived = _leaves_of(shard), list(outputs if gathering.sent else ())
    if gathering.is_packed:
        arrived = _unpacked(outputs, gathering.sent, gathering.ranks)
    following = iter(arrived)
    travels = [bool(leaf.rows and gathering.sent) for leaf in leaves]
    wanted = [
        next(following).narrow(0, 0, int(leaf.rows * rows)) if has_come else leaf.tensor
        for leaf, has_come in zip(leaves, travels, strict=True)
    ]
    if out is None:
        copies = [new.clone() for new, has_come in zip(wanted, travels, strict=True) if not has_come]
        following = iter(copies)
        made = [new if has_come else next(following) for new, has_come in zip(wanted, travels, strict=True)]
        return _whole(shard, rows, iter(made)), (*arrived, *copies)
    held = [leaf.tensor for leaf in _leaves_of(out.to_local() if hasattr(out, "to_local") else out)]
    moved = [(mine, new) for mine, new in zip(held, wanted, strict=True) if mine.data_ptr() != new.data_ptr()]
    counted = tuple(mine for mine, _ in moved if not mine.is_inference())
    versions = tuple(_torch.autograd.version_of(mine) for mine in counted)
    for mine, new in moved:
        mine.copy_(new)
    _torch.autograd.set_versions(counted, versions)  # for autograd it is the same whole
    return None


def _leaves_of(wrapper: Any, rows: Fraction = Fraction(1), is_declared: bool = False, place: str = "") -> list[Leaf]:
    """Returns the dense leaves of a shard, in the order of its fields."""
    found: list[Leaf] = []
    for name in wrapper.__tensor_flatten__()[0]:
        inner = getattr(wrapper, name)
        try:
            mine = rows * (rows_of(wrapper, name) if rows else 1)
        except CannotFollow as error:
            raise not_sharded(wrapper, str(error), "declare how, by views=") from None
        declared = is_declared or is_kept(wrapper, name)
        if _torch.wrappers.is_traceable_wrapper_subclass(inner):
            found += _leaves_of(inner, mine, declared, f"{place}{name}.")
        else:
            found.append(Leaf(inner, mine, declared, f"{place}{name}"))
    return found


def _check_shared(shard: Wrapper, leaf: Leaf, is_even: bool, module: torch.nn.Module) -> None:
    """Refuses a leaf that all rows share where each rank would come to have another one."""
    if leaf.rows:
        return
    what = f"all rows share {leaf.place}{list(leaf.tensor.shape)}"
    if not is_even:
        why = f"{what}, and the ranks do not have equally many rows: a padded shard has a shared field of its own"
        raise not_sharded(shard, why, "give it a multiple of the ranks in rows")
    if not leaf.is_declared and _is_trained(shard, module):
        why = f"{what}, and after a step of an optimizer on its own rows each rank has another one"
        name = leaf.place.partition(".")[0]
        instead = f'keep one for each row, freeze the weight, or say views={{"{name}": "keep"}} if no write changes it'
        raise not_sharded(shard, why, instead)


def _is_trained(shard: torch.Tensor, module: torch.nn.Module) -> bool:
    """Returns whether a parameter of the module with the metadata of this shard requires grad."""
    for parameter in module.parameters(recurse=False):
        local = parameter.to_local() if hasattr(parameter, "to_local") else parameter
        if parameter.requires_grad and type(local) is type(shard) and local.shape == shard.shape:
            return True
    return False


def _padded(tensor: torch.Tensor, rows: int) -> torch.Tensor:
    """Returns a tensor with further rows, which mean nothing."""
    if tensor.shape[0] == rows:
        return tensor.contiguous()
    longer = tensor.new_zeros((rows, *tensor.shape[1:]))
    longer[: tensor.shape[0]].copy_(tensor)
    return longer


def _packed(tensors: Sequence[torch.Tensor], size: tuple[int, ...]) -> list[torch.Tensor]:
    """Returns the bytes of tensors, one after another, in as few tensors of `size` as hold them."""
    parts = [tensor.reshape(-1).view(torch.uint8) for tensor in tensors]
    length, each = sum(map(len, parts)), math.prod(size)
    count = -(-length // each)
    filling = parts[0].new_zeros(count * each - length)
    return [part.view(size) for part in torch.cat([*parts, filling]).split(each)]


def _unpacked(
    outputs: Sequence[torch.Tensor], sent: Sequence[tuple[tuple[int, ...], torch.dtype]], ranks: int
) -> list[torch.Tensor]:
    """Returns the tensors whose bytes were gathered, the ranks one after another; each has memory of its own."""
    stream = torch.cat([output.view(ranks, -1) for output in outputs], 1)
    found, start = [], 0
    for size, dtype in sent:
        end = start + math.prod(size) * dtype.itemsize
        found.append(stream[:, start:end].clone().view(dtype).view(-1, *size[1:]))
        start = end
    return found


def _whole(like: Any, rows: int | None, leaves: Iterator[torch.Tensor]) -> Any:
    """Returns a wrapper of the class and context of `like`, with so many rows or its own, that holds the next
    leaves.
    """
    size = tuple(like.shape) if rows is None else (rows, *like.shape[1:])
    names, _ = like.__tensor_flatten__()
    inner: dict[str, torch.Tensor] = {}
    for name in names:
        tensor = getattr(like, name)
        if not _torch.wrappers.is_traceable_wrapper_subclass(tensor):
            inner[name] = next(leaves)
            continue
        share = 0 if rows is None else rows_of(like, name)
        inner[name] = _whole(tensor, None if not share or rows is None else int(share * rows), leaves)
    made = made_of(like, inner, size)
    if tuple(made.shape) != size:
        why = f"with the rows of all ranks its `outer_metadata` has {list(made.shape)}, and {list(size)} was cut"
        raise not_sharded(like, why, "have `outer_metadata` read its size from inner tensors, not from context")
    return made


def gradient_handler(cls: type[Wrapper], func: Operator) -> Callable[..., Any] | None:
    """Returns what serves the operator by which FSDP2 puts gradients into the dense tensor that is added up.

    Those of a class with `fallback="each"` have one inner tensor, or are refused; those of others are served as any.
    """
    if cls.__wrapper_declaration__.fallback != "each":
        return None
    handler = each_handler(cls, func)

    def refuse_several(tensors: Sequence[torch.Tensor], *args: object, **kwargs: object) -> Any:
        for tensor in tensors:
            names = tensor.__tensor_flatten__()[0] if isinstance(tensor, cls) else []
            if len(names) > 1:
                why = f"the gradient of a parameter is a {cls.__name__} of {names}, and it adds up dense ones"
                instead = (
                    f'freeze the weight, give {cls.__name__} to_plain and fallback="plain", whose gradients are dense'
                )
                raise not_sharded(tensor, why, instead, may_have_hooks=False)
        return handler(tensors, *args, **kwargs)

    return refuse_several
