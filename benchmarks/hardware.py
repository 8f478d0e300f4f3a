"""What `sa.profile` says of steps of training on a GPU before they run, beside what the GPU says.

    python -m benchmarks.hardware --predict build/claims.json    # anywhere: no GPU is needed
    python -m benchmarks.hardware --claims build/claims.json     # where the GPU is

"Claimed" is what a build of torch without CUDA says, or the one that is there, and "real" the most that torch's
allocator gave out for the step: parameters, inputs and all that the step makes. A step is the median of seven, after
two that warm up; beside it `report.seconds()` with the datasheet's figures, and with those of
`subclass_aot.cost.devices.measure()`.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

import subclass_aot as sa
from benchmarks.programs import (
    Blocks,
    Program,
    Recurrent,
    SparseWords,
    checkpointed,
    clipped,
    inferred,
    library,
    loss_of,
    numbers,
    quantized,
    trained,
)
from subclass_aot.base.whole_files import write_whole
from subclass_aot.cost.devices import Device, measure

CLAIM = "H100"
ROUNDS = 7
_NO = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "use_cache": False}


def casted(model: nn.Module, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    """One step of training, with products in bfloat16."""
    with torch.autocast("cuda", torch.bfloat16):
        loss = loss_of(model(*args, **kwargs))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def words(batch: int, length: int, labels: bool = True) -> Callable[[], Any]:
    """Returns what makes a batch of words, each the same: a run without data reads none of them."""

    def make() -> Any:
        ids = torch.full((batch, length), 7)
        return (), {"input_ids": ids, **({"labels": ids.clone()} if labels else {})}

    return make


def pictures(batch: int, size: int, last: bool = False) -> Callable[[], Any]:
    """Returns what makes a batch of pictures."""
    layout = torch.channels_last if last else torch.contiguous_format
    return lambda: ((), {"pixel_values": torch.rand(batch, 3, size, size).contiguous(memory_format=layout)})


def half(make: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    """Returns what makes a module of bfloat16."""
    return lambda: make().bfloat16()


def last(make: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    """Returns what makes a module of convolutions in channels_last."""
    return lambda: make().to(memory_format=torch.channels_last)  # type: ignore[call-overload]


class Adapted(nn.Module):
    """Frozen layers, each beside a narrow pair that trains."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.frozen = nn.ModuleList(nn.Linear(width, width) for _ in range(layers)).requires_grad_(False)
        self.down = nn.ModuleList(nn.Linear(width, 16, bias=False) for _ in range(layers))
        self.up = nn.ModuleList(nn.Linear(16, width, bias=False) for _ in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for frozen, down, up in zip(self.frozen, self.down, self.up, strict=True):
            x = x + nn.functional.silu(frozen(x) + up(down(x)))
        return x


def _bert() -> nn.Module:
    return library("BertForMaskedLM", num_hidden_layers=6)()


_GPT = library("GPT2LMHeadModel", use_cache=False)
_LLAMA = library(
    "LlamaForCausalLM",
    hidden_size=2048,
    num_hidden_layers=6,
    num_attention_heads=16,
    num_key_value_heads=4,
    intermediate_size=5632,
    vocab_size=32000,
    **_NO,
)
_VIT = library("ViTForImageClassification")
_ENCODER = nn.TransformerEncoderLayer
_FUSED: Callable[..., torch.optim.Optimizer] = lambda ps: torch.optim.AdamW(ps, fused=True)  # noqa: E731
_SGD: Callable[..., torch.optim.Optimizer] = lambda ps: torch.optim.SGD(ps, 1e-3, momentum=0.9)  # noqa: E731

PROGRAMS: dict[str, Program] = {
    "MLP": Program("products", lambda: Blocks(2048, 8), numbers(8192, 2048), trained),
    "MLP, clipped": Program("products", lambda: Blocks(1024, 8), numbers(512, 1024), clipped),
    "MLP, SGD": Program("products", lambda: Blocks(2048, 8), numbers(4096, 2048), trained, _SGD),
    "MLP, fused AdamW": Program("products", lambda: Blocks(2048, 8), numbers(4096, 2048), trained, _FUSED),
    "MLP, autocast": Program("autocast", lambda: Blocks(2048, 8), numbers(8192, 2048), casted),
    "MLP, checkpointed": Program("checkpointed", lambda: Blocks(2048, 8, True), numbers(16384, 2048), trained),
    "MLP, Int8Weight": Program(
        "quantized", quantized(half(lambda: Blocks(2048, 8)), sa.Int8Weight), numbers(4096, 2048), casted
    ),
    "adapters": Program("LoRA", lambda: Adapted(2048, 12), numbers(8192, 2048), casted),
    "TransformerEncoder": Program(
        "transformer", lambda: _ENCODER(1024, 16, dropout=0.1, batch_first=True), numbers(16, 512, 1024), casted
    ),
    "TransformerEncoder, float32": Program(
        "transformer", lambda: _ENCODER(512, 8, dropout=0.1, batch_first=True), numbers(16, 512, 512), trained
    ),
    "GPT-2, bfloat16": Program("transformer", half(_GPT), words(8, 1024), trained),
    "GPT-2, autocast": Program("transformer", _GPT, words(8, 1024), casted),
    "GPT-2, checkpointed": Program("checkpointed", checkpointed(_GPT), words(16, 1024), casted),
    "Llama, bfloat16": Program("transformer", half(_LLAMA), words(4, 1024), trained),
    "Llama, checkpointed": Program("checkpointed", checkpointed(half(_LLAMA)), words(8, 1024), trained),
    "Llama, inference": Program("inference", half(_LLAMA), words(8, 1024, labels=False), inferred),
    "BERT, autocast": Program("transformer", _bert, words(32, 256), casted),
    "T5, autocast": Program(
        "transformer",
        library("T5ForConditionalGeneration", decoder_start_token_id=0, use_cache=False),
        words(8, 256),
        casted,
    ),
    "ViT, autocast": Program("transformer", _VIT, pictures(64, 224), casted),
    "ResNet": Program("convolution", library("ResNetForImageClassification"), pictures(32, 224), trained),
    "ResNet, channels last, autocast": Program(
        "convolution", last(library("ResNetForImageClassification")), pictures(64, 224, last=True), casted
    ),
    "ConvNext, autocast": Program("convolution", library("ConvNextForImageClassification"), pictures(32, 224), casted),
    "LSTM": Program("recurrent", lambda: Recurrent(nn.LSTM), lambda: ((torch.full((256, 128), 7),), {}), trained),
    "GRU": Program("recurrent", lambda: Recurrent(nn.GRU), lambda: ((torch.full((256, 128), 7),), {}), trained),
    "sparse embedding": Program("sparse", SparseWords, lambda: ((torch.full((4096, 32), 7),), {}), trained, _SGD),
}


def _made(program: Program) -> tuple[Any, ...]:
    """Returns what a step is called with, on the default device."""
    torch.manual_seed(0)
    return program.made()


def claimed(program: Program) -> dict[str, Any]:
    """Returns what is said where no GPU is."""
    with sa.meta(CLAIM):
        given = _made(program)
    report = sa.profile(program.step, *given, device=CLAIM)
    return {"peak": report.peak, "flops": report.flops(), "seconds": report.seconds().seconds}


def compared(program: Program, device: Device) -> dict[str, Any]:
    """Returns what is said on a machine with the GPU, and what is so."""
    gc.collect()
    torch.cuda.empty_cache()
    with torch.device("cuda"):
        given = _made(program)
    report = sa.profile(program.step, *given, device="cuda")
    check = report.check()
    took, before = [], torch.cuda.memory_allocated()
    for _ in range(2 + ROUNDS):
        torch.cuda.reset_peak_memory_stats()
        torch.cuda.synchronize()
        began = time.perf_counter()
        program.step(*given)
        torch.cuda.synchronize()
        took.append(time.perf_counter() - began)
    return {
        "predicted": report.peak,
        "real": check.peak,
        "flops": report.flops(),
        "before": before,
        "later_peak": torch.cuda.max_memory_allocated(),
        "at_best": report.seconds(device).seconds,
        "datasheet": report.seconds(CLAIM).seconds,
        "took": statistics.median(took[2:]),
        "check": str(check),
    }


def table(found: dict[str, dict[str, Any]], claims: dict[str, dict[str, Any]]) -> list[str]:
    """Lines of the table."""
    lines = [
        "| program | kind | claimed, MiB | real | error | at best, ms: datasheet | measured device | a step, ms "
        "| of it |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, each in found.items():
        claim = claims.get(name, {}).get("peak", each["predicted"])
        lines.append(
            f"| {name} | {PROGRAMS[name].kind} | {claim / 2**20:.1f} | {each['real'] / 2**20:.1f} | "
            f"{claim / each['real'] - 1:+.2%} | {each['datasheet'] * 1e3:.2f} | {each['at_best'] * 1e3:.2f} | "
            f"{each['took'] * 1e3:.2f} | {each['at_best'] / each['took']:.0%} |"
        )
    return lines


def _each(only: list[str], run: Callable[[Program], dict[str, Any]]) -> dict[str, dict[str, Any]]:
    found = {}
    for name, program in PROGRAMS.items():
        if only and not any(part.lower() in name.lower() for part in only):
            continue
        print(f"... {name}", file=sys.stderr, flush=True)
        try:
            found[name] = run(program)
        except Exception:  # of torch, of a model or ours: the other rows are wanted
            traceback.print_exc()
    return found


def main() -> None:
    """Writes the claims, or prints the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--predict", type=Path, help="the file to write claims to")
    parser.add_argument("--claims", type=Path, help="the file of claims")
    parser.add_argument("--keep", type=Path, help="a file for what was found")
    parser.add_argument("--only", nargs="*", default=[], help="parts of names")
    chosen = parser.parse_args()
    warnings.filterwarnings("ignore")
    if chosen.predict is not None:
        write_whole(chosen.predict, json.dumps(_each(chosen.only, claimed), indent=1))
        return
    torch.randn(512, 512, device="cuda", dtype=torch.bfloat16) @ torch.randn(512, 512, device="cuda").bfloat16()
    workspace = torch.cuda.memory_allocated()
    device = measure("cuda")
    found = _each(chosen.only, lambda program: compared(program, device))
    if chosen.keep is not None:
        write_whole(chosen.keep, json.dumps(found, indent=1))
    claims = json.loads(chosen.claims.read_text()) if chosen.claims is not None else {}
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}; a first product keeps {workspace} bytes\n")
    print(f"```toml\n{device.to_toml()}```\n")
    print("\n".join(table(found, claims)))


if __name__ == "__main__":
    main()
