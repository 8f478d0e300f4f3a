"""Replacing the weights of a model by tensors of another class."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeVar

import torch
from torch import nn

from subclass_aot.base import _torch
from subclass_aot.base._stack import warn
from subclass_aot.base._torch import quantized
from subclass_aot.tensors.int4_tiles import Int4Tiles
from subclass_aot.tensors.int4_weight import Int4Weight

_Model = TypeVar("_Model", bound=nn.Module)
Match = str | Callable[[str, nn.Module], bool]
To = Callable[[torch.Tensor], torch.Tensor] | type

MOST_DENSE = 0.1
"""The part of a model that may stay dense without a warning, beside layers of torch that hold no products."""

_STAYS = """quantize_: {part:.0%} of this {kind} stays dense: {names}.
  {why}
  `sa.tensors.weights_of(model)` lists what became what."""
_EXPERTS = 'Parameters of a module of its own are chosen by their names: match="{pattern}", beside the layers.'
_TIED = "A head is the weight of an embedding, too: both are chosen, by a function of name and layer, or neither."


class _Place(NamedTuple):
    """A parameter of a module.

    Attributes:
        name: Its full name.
        module: The module.
        key: Its name there.
    """

    name: str
    module: nn.Module
    key: str

    @property
    def weight(self) -> Any:
        return getattr(self.module, self.key, None)


def quantize_(module: _Model, to: To | Mapping[str, To | None], match: Match = "*") -> _Model:
    """Replaces the weights of linear layers, in place, by frozen ones of another class.

    A weight that several layers share stays shared: if one of them is not chosen, as the embedding that a head is tied
    to, it stays as it is.

    Args:
        module: A linear layer, or a module with some below.
        to: A class with a `from_float`, as `Int8Weight`, or a function of the weight, as
            `functools.partial(Int4Weight.from_float, group=32)`. Of `Int4Weight`, weights that a kernel could take
            become `Int4Tiles`, in groups that it takes; a function makes what it makes. Or several by patterns, of
            which the first that fits counts: `{"*.experts.*": Int4Weight, "lm_head": None, "*": Int8Weight}`; what is
            of None stays as it is.
        match: Which layers: a pattern of their names (`"layers.*.mlp.*"`), or a function of name and layer that says
            so; that one may pick layers of other kinds, too, whose `weight` is then replaced. A pattern that fits the
            full name of a parameter of three dims, as `"*.experts.gate_up_proj"`, chooses that: the weights of several
            experts.

    Returns:
        The module.

    Raises:
        ValueError: There is no weight, it cannot be of that class, it is of such a class already, or nothing matches;
            the module is as before.

    >>> from subclass_aot import Int8Weight
    >>> model = quantize_(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)), Int8Weight, "0")
    >>> [type(layer.weight).__name__ for layer in (model[0], model[2])]
    ['Int8Weight', 'Parameter']
    """
    rules: dict[Match, To | None] = dict(to.items()) if isinstance(to, Mapping) else {match: to}
    if isinstance(to, Mapping) and match != "*":
        raise ValueError(f"quantize_: match={match!r} beside patterns. Make it one of the patterns.")
    makers = {pattern: _maker(each) for pattern, each in rules.items()}
    chosen = _chosen(module, makers)
    tied = _held_elsewhere(module, chosen)
    if not chosen:
        shown = "any of the patterns" if isinstance(to, Mapping) else f"match={match!r}"
        raise ValueError(f"quantize_: no layer of this {type(module).__name__} fits {shown}.")
    if len(tied) == len(chosen):
        name, other = next(iter(tied.items()))
        raise ValueError(
            f"quantize_: {name} is {other}, too, which is not chosen; one of them alone would take more memory, and "
            "be dense again after tie_weights(). Choose both, by a function of name and layer."
        )
    made: dict[int, nn.Parameter] = {}
    replaced = [(place, maker) for place, maker in chosen if place.name not in tied]
    for place, maker in replaced:
        if id(place.weight) not in made:
            made[id(place.weight)] = _replacement(place, maker)
    for place, parameter in [(place, made[id(place.weight)]) for place, _ in replaced]:
        setattr(place.module, place.key, parameter)
    if "*" in rules:
        _warn_of_dense(module, tied)
    return module


def _maker(to: To | None) -> Any:
    """Returns the function of a weight that makes another one; None where it stays."""
    if isinstance(to, type) and not hasattr(to, "from_float"):
        raise ValueError(f"quantize_: {to.__name__} has no from_float; give a function of the weight, as a lambda.")
    return _int4 if to is Int4Weight else getattr(to, "from_float", to)


def _chosen(module: nn.Module, makers: Mapping[Match, Any]) -> list[tuple[_Place, Any]]:
    """Returns the parameters that are chosen, each with what makes its replacement."""
    found = []
    for name, layer in module.named_modules(remove_duplicate=False):
        maker = next((maker for match, maker in makers.items() if _fits(name, layer, match)), None)
        if maker is not None:
            place = _Place(f"{name}.weight".removeprefix("."), layer, "weight")
            if not isinstance(place.weight, torch.Tensor):
                what = f"{name or 'the module itself'} has no weight; it is a {type(layer).__name__}"
                raise ValueError(f"quantize_: {what}.")
            found.append((place, maker))
        for key, parameter in layer.named_parameters(recurse=False):
            full = f"{name}.{key}".removeprefix(".")
            fits = (maker for match, maker in makers.items() if isinstance(match, str) and _fits_all(full, match))
            if _is_of_experts(key, parameter) and (maker := next(fits, None)) is not None:
                found.append((_Place(full, layer, key), maker))
    return found


def _fits(name: str, layer: nn.Module, match: Match) -> bool:
    if callable(match):
        return match(name, layer)
    return isinstance(layer, nn.Linear) and fnmatch.fnmatchcase(name, match)


def _fits_all(name: str, pattern: str) -> bool:
    """Returns whether a pattern fits the full name of a parameter. One that fits all names speaks of layers."""
    return pattern != "*" and fnmatch.fnmatchcase(name, pattern)


def _is_of_experts(key: str, parameter: torch.Tensor) -> bool:
    return parameter.dim() == 3 and key != "weight" and parameter.is_floating_point()


def _held_elsewhere(module: nn.Module, chosen: list[tuple[_Place, Any]]) -> dict[str, str]:
    """Returns the chosen parameters that a module holds that is not chosen, each with its name there."""
    names = {place.name for place, _ in chosen}
    others = {
        id(parameter): name
        for name, parameter in module.named_parameters(remove_duplicate=False)
        if name not in names
    }  # fmt: skip
    return {place.name: others[id(place.weight)] for place, _ in chosen if id(place.weight) in others}


def _replacement(place: _Place, maker: Any) -> nn.Parameter:
    weight, shown = place.weight, f"quantize_: {place.name} {tuple(place.weight.shape)}"
    if _torch.wrappers.is_traceable_wrapper_subclass(weight) and _rounds(maker):
        kind = type(weight).__name__
        raise ValueError(f"{shown} is a {kind} already, and would be rounded twice. Leave it out by `match`.")
    try:
        return nn.Parameter(_checked(maker(weight.detach()), weight), requires_grad=False)
    except (RuntimeError, ValueError, TypeError) as error:
        raise ValueError(f"{shown} cannot be replaced: {error}") from error


def _rounds(maker: Any) -> bool:
    """Returns whether a function is what a class rounds float weights by."""
    while isinstance(maker, partial):
        maker = maker.func
    return maker is _int4 or getattr(maker, "__name__", "") == "from_float"


def _int4(weight: torch.Tensor) -> torch.Tensor:
    group = next((size for size in (64, 32) if weight.shape[-1] % size == 0), 64)
    cls = Int4Tiles if weight.dim() == 2 and quantized.tile_for(weight, group) else Int4Weight
    return cls.from_float(weight, group)


def _checked(new: object, weight: torch.Tensor) -> torch.Tensor:
    if not isinstance(new, torch.Tensor) or new.shape != weight.shape:
        found = tuple(new.shape) if isinstance(new, torch.Tensor) else f"a {type(new).__name__}"
        raise ValueError(f"the function of the weight gave {found}")
    return new


def _warn_of_dense(module: nn.Module, tied: Mapping[str, str]) -> None:
    """Warns where much stays dense that might be meant: parameters of experts, and tied heads."""
    parameters = dict(module.named_parameters())
    experts = {name: p for name, p in parameters.items() if _is_of_experts(name.rpartition(".")[2], p)}
    experts = {name: p for name, p in experts.items() if not _torch.wrappers.is_traceable_wrapper_subclass(p)}
    heads = {name: p for name, p in parameters.items() if name in {*tied, *tied.values()}}
    dense = experts | heads
    part = sum(p.numel() for p in dense.values()) / max(sum(p.numel() for p in parameters.values()), 1)
    if part <= MOST_DENSE:
        return
    names = ", ".join([*dense][:3]) + (f" and {len(dense) - 3} others" if len(dense) > 3 else "")
    pattern = "*." + ".".join(next(iter(experts)).split(".")[-2:]) if experts else ""
    why = _EXPERTS.format(pattern=pattern) if experts else _TIED
    warn(_STAYS.format(part=part, kind=type(module).__name__, names=names, why=why))
