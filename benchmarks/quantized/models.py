"""Three models with random weights, in bfloat16, and what each is asked for: words one by one, and prompts."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import transformers

LONGEST = 64
"""As many words has the cache room for when tokens are decoded."""
HEARD = 16
"""As many words has the encoder of a model that has one."""
CACHE = "cache" if "cache" in inspect.signature(transformers.LlamaForCausalLM.forward).parameters else "past_key_values"
"""What a cache is called as an argument; transformers renamed it."""


@dataclass(frozen=True)
class Model:
    """A model, and what is measured of it.

    Args:
        name: Of the kind, for the table.
        make: Makes it of sizes.
        sizes: By the names of its configuration.
        batches: As many sequences are decoded at once.
        prompts: The lengths of prompts.
    """

    name: str
    make: Callable[[dict[str, int]], Any]
    sizes: dict[str, int]
    batches: Sequence[int] = (1, 8, 32)
    prompts: Sequence[int] = (128,)

    def made(self) -> Any:
        """Returns the model, with the same weights each time."""
        torch.manual_seed(0)
        return self.make(self.sizes).to(torch.bfloat16).eval()

    def ways(self, model: Any, function: Callable[..., Any]) -> dict[str, Callable[[], torch.Tensor]]:
        """Returns what is measured, by its name: each gives the logits.

        Args:
            model: It, with its weights as they are measured.
            function: What calls it.
        """
        decoded = {f"{rows} at once": Decoding(model, function, rows) for rows in self.batches}
        prompts = {
            f"prompt of {length}": functools.partial(prefill, function, self.words(length, model))
            for length in self.prompts
        }
        return {**decoded, **prompts}

    def words(self, length: int, model: Any) -> dict[str, torch.Tensor]:
        """Returns a prompt as the arguments of a model."""
        generator = torch.Generator().manual_seed(0)
        words = torch.randint(0, self.sizes["vocab_size"], (1, length), generator=generator)
        return {"input_ids": words} | ({"decoder_input_ids": words} if model.config.is_encoder_decoder else {})

    def smaller(self, **sizes: int) -> Model:
        """Returns it with other sizes, to try it."""
        return replace(self, sizes={**self.sizes, **sizes}, batches=(1, 3), prompts=(20,))


def _llama(sizes: dict[str, int]) -> Any:
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes))


def _olmoe(sizes: dict[str, int]) -> Any:
    return transformers.OlmoeForCausalLM(transformers.OlmoeConfig(**sizes))


def _t5(sizes: dict[str, int]) -> Any:
    return transformers.T5ForConditionalGeneration(transformers.T5Config(**sizes, decoder_start_token_id=0))


MODELS = (
    Model(
        "Llama", _llama,
        {
            "hidden_size": 1024, "intermediate_size": 3584, "num_hidden_layers": 8, "num_attention_heads": 16,
            "num_key_value_heads": 4, "vocab_size": 1024,
        },
        batches=(1, 4, 8, 16, 32, 64), prompts=(128, 512),
    ),
    Model(
        "OLMoE", _olmoe,
        {
            "hidden_size": 1024, "intermediate_size": 1024, "num_hidden_layers": 2, "num_attention_heads": 16,
            "num_key_value_heads": 16, "vocab_size": 1024, "num_experts": 16, "num_experts_per_tok": 4,
            "eos_token_id": 0,
        },
    ),
    Model(
        "T5", _t5,
        {"d_model": 1024, "d_kv": 64, "d_ff": 2816, "num_layers": 2, "num_heads": 16, "vocab_size": 1024},
    ),
)  # fmt: skip


class Decoding:
    """Words one after another, of some sequences at once, with a cache of a fixed size, which begins again when full.

    Args:
        model: What makes the cache, and the states of an encoder.
        function: What is called.
        rows: As many sequences.
    """

    def __init__(self, model: Any, function: Callable[..., Any], rows: int) -> None:
        self.model, self.function = model, function
        self.given: dict[str, Any] = {}
        token = torch.zeros(rows, 1, dtype=torch.long)
        if model.config.is_encoder_decoder:
            heard = model.get_encoder()(input_ids=torch.ones(rows, HEARD, dtype=torch.long))
            self.given = {"decoder_input_ids": token, "encoder_outputs": heard}
        else:
            self.given = {"input_ids": token}
        self._begin()

    def _begin(self) -> None:
        config = self.model.config
        cache = transformers.StaticCache(config=config, max_cache_len=LONGEST)
        if config.is_encoder_decoder:
            cache = transformers.EncoderDecoderCache(
                transformers.StaticCache(config=self.model.decoder.config, max_cache_len=LONGEST),
                transformers.StaticCache(config=self.model.decoder.config, max_cache_len=HEARD),
            )
        self.given[CACHE], self.length = cache, 1
        self.model(**self.given)

    def __call__(self) -> torch.Tensor:
        if self.length == LONGEST:
            self._begin()
        self.length += 1
        return self.function(**self.given).logits  # type: ignore[no-any-return]


def prefill(function: Callable[..., Any], words: dict[str, torch.Tensor]) -> torch.Tensor:
    """Returns the logits of all words, without a cache."""
    return function(**words, use_cache=False).logits  # type: ignore[no-any-return]
