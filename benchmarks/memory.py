"""The peak memory of a step of training, of models of `transformers` at width 256: what no benchmark of time shows.

    python -m benchmarks.memory > docs/benchmarks/memory.md

A step is forward, backward and dropping the gradients. Its peak is the largest running sum of all that torch's CPU
allocator gives out and takes back from the second step on, so parameters and inputs do not count, and the workspace of
kernels does.
"""

from __future__ import annotations

import argparse
import copy
import gc
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
import transformers
from torch import nn
from torch.profiler import ProfilerActivity, profile

import subclass_aot as sa
from benchmarks.machine import describe
from tests.models.architectures import classes, padding

WORDS, BATCH, LENGTH = 1000, 4, 64

Step = Callable[[], None]
Model = tuple[Any, dict[str, Any]]

EAGER, AOT_EAGER, TORCH = "eager mode", "`aot_eager`", "`torch.compile`"
OURS, OURS_INDUCTOR, OURS_DYNAMO = '"eager"', '"inductor"', 'inductor, `backend="subclass_aot"`'

SIDES: dict[str, Callable[[nn.Module], Any]] = {
    EAGER: lambda model: model,
    AOT_EAGER: lambda model: torch.compile(model, backend="aot_eager"),
    OURS: lambda model: sa.aot_compile(model),
    TORCH: torch.compile,
    OURS_INDUCTOR: lambda model: sa.aot_compile(model, fw_compiler="inductor"),
    OURS_DYNAMO: lambda model: torch.compile(model, backend="subclass_aot", options={"fw_compiler": "inductor"}),
}
LIMITS = {OURS: AOT_EAGER, OURS_INDUCTOR: TORCH, OURS_DYNAMO: TORCH}
"""The side whose peak each of ours must not exceed."""

_DECODER = {
    "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 8, "intermediate_size": 512,
    "vocab_size": WORDS, "pad_token_id": 0,
}  # fmt: skip
_GPT = {"n_embd": 256, "n_layer": 4, "n_head": 8, "vocab_size": WORDS, "n_positions": LENGTH}
_PAIR = {
    "d_model": 256, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 8,
    "decoder_attention_heads": 8, "encoder_ffn_dim": 512, "decoder_ffn_dim": 512, "vocab_size": WORDS,
}  # fmt: skip


def _words() -> dict[str, Any]:
    ids = torch.randint(5, WORDS, (BATCH, LENGTH))
    return {"input_ids": ids, "labels": ids}


def _masked_words() -> dict[str, Any]:
    return {**_words(), "attention_mask": padding(BATCH, LENGTH, left=False)}


def _pictures() -> dict[str, Any]:
    return {"pixel_values": torch.rand(BATCH, 3, 64, 64), "labels": classes(BATCH)}


def _make(name: str, options: dict[str, Any]) -> Any:
    cls: Any = getattr(transformers, name)
    return cls(cls.config_class(**options))


def _checkpointed(model: Any) -> Any:
    model.gradient_checkpointing_enable({"use_reentrant": False})
    return model


def _quantized(model: Any) -> Any:
    sa.quantize_(model, sa.Int8Weight)
    return model


def _llama() -> Any:
    return _make("LlamaForCausalLM", {**_DECODER, "num_key_value_heads": 4, "use_cache": False})


def _gpt() -> Any:
    return _make("GPT2LMHeadModel", {**_GPT, "use_cache": False})


MODELS: dict[str, tuple[Callable[[], Any], Callable[[], dict[str, Any]]]] = {
    "Llama": (_llama, _words),
    "Llama, checkpointed": (lambda: _checkpointed(_llama()), _words),
    "Llama, int8 weights": (lambda: _quantized(_llama()), _words),
    "GPT-2": (_gpt, _words),
    "GPT-2, checkpointed": (lambda: _checkpointed(_gpt()), _words),
    "BERT": (lambda: _make("BertForMaskedLM", _DECODER), _masked_words),
    "T5": (
        lambda: _make(
            "T5ForConditionalGeneration",
            {"d_model": 256, "d_kv": 32, "d_ff": 512, "num_layers": 2, "num_heads": 8, "vocab_size": WORDS,
             "decoder_start_token_id": 0, "use_cache": False},
        ),
        _words,
    ),
    "BART": (lambda: _make("BartForConditionalGeneration", {**_PAIR, "use_cache": False}), _words),
    "ViT": (
        lambda: _make("ViTForImageClassification", {**_DECODER, "image_size": 64, "patch_size": 8, "num_labels": 3}),
        _pictures,
    ),
    "ConvNeXt": (
        lambda: _make(
            "ConvNextForImageClassification",
            {"hidden_sizes": [128, 256], "depths": [2, 2], "num_stages": 2, "num_labels": 3},
        ),
        _pictures,
    ),
}  # fmt: skip


def peak_bytes(run: Step) -> int:
    """Returns the most bytes that torch's CPU allocator has given out while `run` runs, beyond those before."""
    gc.collect()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        run()
    events = [e for e in profiled.profiler.kineto_results.events() if e.name() == "[memory]"]
    live = peak = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        live += event.nbytes()
        peak = max(peak, live)
    return peak


def step_of(model: nn.Module, compile_model: Callable[[nn.Module], Any], given: dict[str, Any]) -> Step:
    """Returns a step of training of a model."""
    call = compile_model(model)

    def step() -> None:
        call(**given).loss.backward()
        model.zero_grad()

    return step


def peaks(name: str, sides: dict[str, Callable[[nn.Module], Any]] = SIDES) -> dict[str, int]:
    """Returns the peak of each side for one model."""
    make, inputs = MODELS[name]
    torch.manual_seed(0)
    model, given = make().train(), inputs()
    found = {}
    for side, compile_model in sides.items():
        torch.compiler.reset()
        step = step_of(copy.deepcopy(model), compile_model, given)
        step(), step()
        found[side] = peak_bytes(step)
    return found


def table(rows: dict[str, dict[str, int]]) -> Iterator[str]:
    """Yields the lines of a table in MiB."""
    yield "| model | " + " | ".join(SIDES) + " |"
    yield "|---|" + "---:|" * len(SIDES)
    for name, found in rows.items():
        cells = []
        for side, peak in found.items():
            over = side in LIMITS and peak > found[LIMITS[side]]
            cells.append(f"{peak / 2**20:.1f}" + (" (over)" if over else ""))
        yield f"| {name} | " + " | ".join(cells) + " |"


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", choices=MODELS, help="a model; may be given several times")
    parser.add_argument("--sides", type=int, default=len(SIDES), help="how many columns to measure")
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    rows = {name: peaks(name, dict(list(SIDES.items())[: options.sides])) for name in options.only or MODELS}
    print(f"Peak of a training step above parameters and inputs, in MiB. {describe()}\n")
    print("\n".join(table(rows)))


if __name__ == "__main__":
    main()
