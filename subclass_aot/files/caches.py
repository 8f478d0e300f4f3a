"""Static caches of `transformers` whose keys and values are kept in few bits: what a step writes is rounded then."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from transformers.cache_utils import Cache, CacheLayerMixin, EncoderDecoderCache, StaticLayer, StaticSlidingWindowLayer

from subclass_aot import tensors
from subclass_aot.extend import register_holder

_WHOLE = """quantize_cache_: the {cls} that was made is rounded as a whole, and not row by row.
  Instead: Int8Weight, Float8Weight, Int4Weight or NF4Weight, which have scales of each row."""

_NO_STATIC = """quantize_cache_: {what}. Layers that are rounded are a StaticLayer or a StaticSlidingWindowLayer.
  Instead: give it StaticCache(model.config, max_cache_len=...), and the cache to the model or to generate()."""

CacheT = TypeVar("CacheT", Cache, EncoderDecoderCache)
Rounding = Callable[[torch.Tensor], torch.Tensor]


class QuantizedLayer(StaticLayer):  # type: ignore[no-untyped-call]
    """A layer of a static cache whose keys and values are of a class of `subclass_aot.tensors`.

    Attributes:
        rounded: Makes tensors of the class of dense ones `[batch, heads, length, dim]`, with scales of each row.
    """

    rounded: Rounding

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Makes keys and values of zeros.

        Args:
            key_states: `[batch, heads, any, dim]`; they say the batch, the heads, the dtype and the device.
            value_states: The same of values.
        """
        length, self.max_cache_len = self.max_cache_len, 0
        super().lazy_initialization(key_states, value_states)  # dense ones, of no length
        self.max_cache_len = length
        self.keys, self.values = (self._zeros(states, length) for states in (self.keys, self.values))

    def _zeros(self, like: Any, length: int) -> Any:
        batch, heads, _, dim = like.shape
        rows = self.rounded(like.new_zeros(batch, heads, 2, dim))
        if type(rows.roll(1, 2)) is not type(rows):
            raise ValueError(_WHOLE.format(cls=type(rows).__name__))
        return rows.new_zeros(batch, heads, length, dim)

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Writes keys and values, rounded, and returns what attention reads.

        Args:
            key_states: `[batch, heads, length, dim]`.
            value_states: The same of values.
            *args: What the layer takes.
            **kwargs: What the layer takes.
        """
        found: tuple[torch.Tensor, torch.Tensor] = super().update(
            self.rounded(key_states), self.rounded(value_states), *args, **kwargs
        )
        return found


class QuantizedSlidingWindowLayer(QuantizedLayer, StaticSlidingWindowLayer):  # type: ignore[no-untyped-call]
    """The same of a window. What a prompt has before the window is read rounded, too, and not kept."""


_LAYERS: dict[type, type[QuantizedLayer]] = {
    StaticLayer: QuantizedLayer,
    StaticSlidingWindowLayer: QuantizedSlidingWindowLayer,
}

for _layer in _LAYERS.values():
    register_holder(_layer, vars)  # else no objects of this library are walked


def quantize_cache_(cache: CacheT, to: type | Rounding = tensors.Int8Weight) -> CacheT:
    """Has a static cache keep its keys and values in few bits.

    Each row, of a batch, a head and a position, has scales of its own. A step rounds what it writes, and nothing else.

    Args:
        cache: A `StaticCache` of `transformers`, or one of an encoder and a decoder; what it holds is rounded.
        to: A class of `subclass_aot.tensors`, or a function that makes one, as of the weights in `quantize_`:
            `functools.partial(Int4Weight.from_float, group=32)`.

    Returns:
        The cache.

    Raises:
        ValueError: A layer of the cache is of another kind, or rows of the class cannot be written one by one.

    >>> from transformers import LlamaConfig, StaticCache
    >>> quantize_cache_(StaticCache(LlamaConfig(num_hidden_layers=1), max_cache_len=8)).layers
    [QuantizedLayer]
    """
    if isinstance(cache, EncoderDecoderCache):
        quantize_cache_(cache.self_attention_cache, to)
        quantize_cache_(cache.cross_attention_cache, to)
        return cache
    held: list[Any] = [layer for layer in getattr(cache, "layers", ()) if isinstance(layer, CacheLayerMixin)]
    for layer in held:
        if type(layer) not in _LAYERS:
            what = f"layer {cache.layers.index(layer)} of this {type(cache).__name__} is a {type(layer).__name__}"
            raise ValueError(_NO_STATIC.format(what=what))
    if not held:
        raise ValueError(_NO_STATIC.format(what=f"this {type(cache).__name__} has no layers with keys"))
    rounded: Rounding = getattr(to, "from_float", to)
    for layer in held:
        layer.__class__ = _LAYERS[type(layer)]
        layer.rounded = rounded
        if layer.is_initialized:
            layer.keys, layer.values = rounded(layer.keys), rounded(layer.values)
    return cache
