"""Weights that a model has as one parameter and files in parts: those of experts, one by one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch

from subclass_aot.errors import StateDictError


class Part(NamedTuple):
    """Where a tensor of a file goes.

    Attributes:
        name: The parameter, or the buffer, in the model.
        source: Which of those it is that lie below one another there, as the two of a gated layer.
        sources: How many do.
        expert: Of which expert it is; None where it is the whole.
    """

    name: str
    source: int = 0
    sources: int = 1
    expert: int | None = None

    def size_in(self, whole: torch.Tensor) -> tuple[int, ...]:
        """Returns the size of the part: of `[E, M, N]`, rows and columns of one expert."""
        if self.expert is None:
            return tuple(whole.shape)
        _, rows, columns = whole.shape
        return rows // self.sources, columns


def joined(parts: Mapping[tuple[int, int], torch.Tensor], name: str) -> torch.Tensor:
    """Returns the weight of all experts.

    Args:
        parts: By number of source and of expert, dense ones or wrappers.
        name: The parameter, for errors.

    Raises:
        StateDictError: Some are missing, or they are no weights of one kind.
    """
    sources, experts = (max(number) + 1 for number in zip(*parts, strict=True))
    lacks = [key for key in ((s, e) for s in range(sources) for e in range(experts)) if key not in parts]
    if lacks:
        raise StateDictError(f"{name}: the files have no part {lacks[0][0]} of expert {lacks[0][1]}")
    first = parts[0, 0]
    kinds = {_kind(part) for part in parts.values()}
    if len(kinds) > 1 or hasattr(first, "order"):
        shown = " and ".join(sorted({type(part).__name__ for part in parts.values()}))
        raise StateDictError(
            f"{name}: weights of experts are of one class and one layout, and these are {shown}. Instead: a checkpoint "
            "whose experts are all quantized in one way, without desc_act"
        )

    def join(field: str) -> torch.Tensor:
        found = {key: getattr(part, field) if field else part for key, part in parts.items()}
        return torch.cat([torch.stack([found[s, e] for e in range(experts)]) for s in range(sources)], 1)

    fields = _fields(first)
    return type(first)(**{field: join(field) for field in fields}) if fields else join("")


def _fields(weight: torch.Tensor) -> list[str]:
    return list(weight.__tensor_flatten__()[0]) if hasattr(weight, "__tensor_flatten__") else []


def _kind(weight: torch.Tensor) -> object:
    return type(weight), [getattr(weight, field).shape[-1] for field in _fields(weight)].__repr__()
