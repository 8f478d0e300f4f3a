"""Replacing the weights of a model by tensors of another class."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from subclass_aot.base._torch import quantized
from subclass_aot.tensors.int4_tiles import Int4Tiles
from subclass_aot.tensors.int4_weight import Int4Weight

Match = str | Callable[[str, nn.Module], bool]


def quantize_(module: nn.Module, to: Callable[[torch.Tensor], torch.Tensor] | type, match: Match = "*") -> nn.Module:
    """Replaces the weights of linear layers, in place, by frozen ones of another class.

    A weight that several layers share stays shared.

    Args:
        module: A linear layer, or a module with some below.
        to: A class with a `from_float`, as `Int8Weight`, or a function of the weight, as
            `functools.partial(Int4Weight.from_float, group=32)`. Of `Int4Weight`, weights that a kernel could take
            become `Int4Tiles`, in groups that it takes; a function makes what it makes.
        match: Which layers: a pattern of their names (`"layers.*.mlp.*"`), or a function of name and layer that says
            so; that one may pick layers of other kinds, too, whose `weight` is then replaced.

    Returns:
        The module.

    Raises:
        ValueError: There is no weight, it cannot be of that class, or nothing matches; the module is as before.

    >>> from subclass_aot import Int8Weight
    >>> model = quantize_(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)), Int8Weight, "0")
    >>> [type(layer.weight).__name__ for layer in (model[0], model[2])]
    ['Int8Weight', 'Parameter']
    """
    if isinstance(to, type) and not hasattr(to, "from_float"):
        raise ValueError(f"quantize_: {to.__name__} has no from_float; give a function of the weight, as a lambda.")
    make: Any = _int4 if to is Int4Weight else getattr(to, "from_float", to)
    chosen = {name: layer for name, layer in module.named_modules(remove_duplicate=False) if _fits(name, layer, match)}
    if not chosen:
        raise ValueError(f"quantize_: no layer of this {type(module).__name__} fits match={match!r}.")
    made: dict[int, nn.Parameter] = {}
    for name, layer in chosen.items():
        weight = getattr(layer, "weight", None)
        if not isinstance(weight, torch.Tensor):
            raise ValueError(f"quantize_: {name or 'the module itself'} has no weight; it is a {type(layer).__name__}.")
        if id(weight) not in made:
            try:
                made[id(weight)] = nn.Parameter(_checked(make(weight.detach()), weight), requires_grad=False)
            except (RuntimeError, ValueError, TypeError) as error:
                path = f"{name}.weight".removeprefix(".")
                raise ValueError(f"quantize_: {path} {tuple(weight.shape)} cannot be replaced: {error}") from error
    replacements = [(layer, made[id(layer.weight)]) for layer in chosen.values()]
    for layer, parameter in replacements:
        layer.weight = parameter
    return module


def _int4(weight: torch.Tensor) -> torch.Tensor:
    group = next((size for size in (64, 32) if weight.shape[-1] % size == 0), 64)
    cls = Int4Tiles if quantized.tile_for(weight, group) else Int4Weight
    return cls.from_float(weight, group)


def _checked(new: object, weight: torch.Tensor) -> torch.Tensor:
    if not isinstance(new, torch.Tensor) or new.shape != weight.shape:
        found = tuple(new.shape) if isinstance(new, torch.Tensor) else f"a {type(new).__name__}"
        raise ValueError(f"the function of the weight gave {found}")
    return new


def _fits(name: str, layer: nn.Module, match: Match) -> bool:
    if callable(match):
        return match(name, layer)
    return isinstance(layer, nn.Linear) and fnmatch.fnmatchcase(name, match)
