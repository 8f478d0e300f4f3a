"""Programs whose cost is predicted and measured: steps of training.

`more_programs.py` and `later_programs.py` have others.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch import nn
from torch.utils.checkpoint import checkpoint

import subclass_aot as sa

WORDS = 2000
Data = tuple[tuple[Any, ...], dict[str, Any]]


@dataclass
class Program:
    """A step of training.

    Args:
        kind: What is special about it.
        model: Makes the model.
        data: Makes what it is called with.
        step: One step.
        optimizer: Makes the optimizer of the parameters, or several.
        later: Whether it was chosen after the code was written that is measured.
        assume: Whether values that a run without data does not have are assumed.
    """

    kind: str
    model: Callable[[], nn.Module]
    data: Callable[[], Data]
    step: Callable[..., None]
    optimizer: Callable[..., Any] = torch.optim.AdamW
    later: bool = False
    assume: bool = False

    def made(self) -> tuple[nn.Module, Any, tuple[Any, ...], dict[str, Any]]:
        """Returns what the step is called with."""
        model, (args, kwargs) = self.model().train(), self.data()
        return model, self.optimizer([p for p in model.parameters() if p.requires_grad]), args, kwargs


def loss_of(results: Any) -> torch.Tensor:
    if isinstance(results, torch.Tensor):
        return results.float().square().mean()
    if getattr(results, "loss", None) is not None:
        found: torch.Tensor = results.loss
        return found
    first = results[0] if isinstance(results, tuple) else next(iter(results.values()))
    return loss_of(first)


def trained(model: nn.Module, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    loss_of(model(*args, **kwargs)).backward()
    optimizer.step()
    optimizer.zero_grad()


def accumulated(model: nn.Module, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    for _ in range(3):
        loss_of(model(*args, **kwargs)).backward()
    optimizer.step()


def casted(model: nn.Module, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    with torch.autocast("cpu", torch.bfloat16):
        loss = loss_of(model(*args, **kwargs))
    loss.backward()
    optimizer.step()


def clipped(model: nn.Module, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    loss_of(model(*args, **kwargs)).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()


def inferred(model: nn.Module, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    with torch.no_grad():
        model(*args, **kwargs)


class Blocks(nn.Module):
    """Residual blocks, perhaps checkpointed."""

    def __init__(self, width: int = 256, layers: int = 6, checkpointed: bool = False) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
            for _ in range(layers)
        )
        self.checkpointed = checkpointed

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = x + (checkpoint(block, x, use_reentrant=False) if self.checkpointed else block(x))
        return x


class Recurrent(nn.Module):
    """A recurrent network that reads words and predicts the next."""

    def __init__(self, cls: Callable[..., nn.Module]) -> None:
        super().__init__()
        self.table, self.layers, self.out = (
            nn.Embedding(WORDS, 128),
            cls(128, 256, 2, batch_first=True),
            nn.Linear(256, 128),
        )

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.out(self.layers(self.table(words))[0])  # type: ignore[no-any-return]


class SparseWords(nn.Module):
    """An embedding with sparse gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.out = nn.EmbeddingBag(100_000, 64, sparse=True), nn.Linear(64, 10)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.out(self.table(words))  # type: ignore[no-any-return]


def convolved(dims: int, **options: Any) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        conv, norm = getattr(nn, f"Conv{dims}d"), getattr(nn, f"BatchNorm{dims}d")
        layers: list[nn.Module] = [conv(3, 32, 3, padding=1), norm(32), nn.ReLU()]
        for _ in range(3):
            layers += [conv(32, 32, 3, padding=1, **options), norm(32), nn.SiLU()]
        return nn.Sequential(*layers, nn.Flatten(2), nn.AdaptiveAvgPool1d(1))

    return make


def blocks_of(first: int, *widths: int, step: Callable[..., nn.Module]) -> nn.Sequential:
    """Layers, each with a norm and an activation."""
    layers: list[nn.Module] = []
    for given, made in itertools.pairwise((first, *widths)):
        layers += [step(given, made), nn.BatchNorm2d(made), nn.ReLU()]
    return nn.Sequential(*layers)


def small_images(*, last: bool = False, dtype: torch.dtype = torch.float32) -> Callable[[], nn.Module]:
    """A network for images of 32x32."""

    def make() -> nn.Module:
        step = lambda given, made: nn.Sequential(nn.Conv2d(given, made, 3, padding=1), nn.MaxPool2d(2))  # noqa: E731
        model = nn.Sequential(blocks_of(3, 32, 64, 128, step=step), nn.Flatten(), nn.Linear(128 * 16, 10))
        return model.to(dtype=dtype, memory_format=torch.channels_last if last else torch.preserve_format)

    return make


def autoencoder() -> nn.Module:
    down = lambda given, made: nn.Conv2d(given, made, 4, stride=2, padding=1)  # noqa: E731
    up = lambda given, made: nn.ConvTranspose2d(given, made, 4, stride=2, padding=1)  # noqa: E731
    return nn.Sequential(blocks_of(3, 32, 64, 128, step=down), blocks_of(128, 64, 32, 16, step=up), nn.Conv2d(16, 3, 1))


def separable() -> nn.Module:
    def step(given: int, made: int) -> nn.Module:
        around = nn.Conv2d(given, given, 3, padding=1, stride=2 if made > given else 1, groups=given)
        return nn.Sequential(around, nn.BatchNorm2d(given), nn.ReLU(), nn.Conv2d(given, made, 1))

    first = nn.Conv2d(3, 32, 3, stride=2, padding=1)
    return nn.Sequential(first, blocks_of(32, 32, 64, 64, 128, step=step), nn.AdaptiveAvgPool2d(1))


def waves() -> nn.Module:
    layers: list[nn.Module] = []
    for given, made, size, step in ((1, 64, 10, 5), (64, 64, 3, 2), (64, 64, 3, 2), (64, 128, 2, 2)):
        layers += [nn.Conv1d(given, made, size, stride=step), nn.GELU()]
    return nn.Sequential(*layers)


def library(name: str, **options: Any) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        cls: Any = getattr(transformers, name)
        return cls(cls.config_class(**options))  # type: ignore[no-any-return]

    return make


def quantized(make: Callable[[], nn.Module], cls: Any) -> Callable[[], nn.Module]:
    return lambda: sa.quantize_(make(), cls)


def adapted(make: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    """Returns what makes a frozen model in 8 bits with narrow factors beside its weights, which train."""

    def made() -> nn.Module:
        beside = lambda weight: sa.LoraWeight.beside(sa.Int8Weight.from_float(weight), 8)  # noqa: E731
        model = sa.quantize_(make().requires_grad_(False), beside)
        for layer in [*model.modules()]:
            if isinstance(getattr(layer, "weight", None), sa.LoraWeight):
                sa.train_fields(layer, "weight", "left", "right")
        return model

    return made


def checkpointed(make: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    def made() -> nn.Module:
        model: Any = make()
        model.gradient_checkpointing_enable({"use_reentrant": False})
        return model  # type: ignore[no-any-return]

    return made


def words(batch: int, length: int = 128, labels: bool = True) -> Callable[[], Data]:
    def make() -> Data:
        ids = torch.randint(5, WORDS, (batch, length))
        return (), {"input_ids": ids, **({"labels": ids.clone()} if labels else {})}

    return make


def numbers(*size: int) -> Callable[[], Data]:
    return lambda: ((torch.randn(*size),), {})


def pictures(*size: int, last: bool = False, dtype: torch.dtype = torch.float32) -> Callable[[], Data]:
    layout = torch.channels_last if last else torch.contiguous_format
    return lambda: ((torch.randn(*size, dtype=dtype).contiguous(memory_format=layout),), {})


def images(batch: int, size: int = 64) -> Callable[[], Data]:
    return lambda: ((), {"pixel_values": torch.randn(batch, 3, size, size)})


_D = {
    "hidden_size": 256,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 1024,
    "vocab_size": WORDS,
}
_NO = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "use_cache": False}
_GPT = library("GPT2LMHeadModel", n_embd=256, n_layer=3, n_head=4, vocab_size=WORDS, n_positions=128, **_NO)
_LLAMA = library("LlamaForCausalLM", **_D, num_key_value_heads=2, **_NO)
_BART = library(
    "BartForConditionalGeneration",
    d_model=256,
    encoder_layers=2,
    decoder_layers=2,
    encoder_attention_heads=4,
    decoder_attention_heads=4,
    encoder_ffn_dim=1024,
    decoder_ffn_dim=1024,
    vocab_size=WORDS,
    **_NO,
)
_VISION = {
    "hidden_size": 192,
    "num_hidden_layers": 4,
    "num_attention_heads": 3,
    "intermediate_size": 768,
    "image_size": 64,
    "patch_size": 8,
}
_PLAIN: Callable[..., torch.optim.Optimizer] = lambda ps: torch.optim.SGD(ps, 1e-3)  # noqa: E731
_SGD: Callable[..., torch.optim.Optimizer] = lambda ps: torch.optim.SGD(ps, 1e-3, momentum=0.9)  # noqa: E731

PROGRAMS: dict[str, Program] = {
    "MLP": Program("products", Blocks, numbers(512, 256), trained),
    "MLP, SGD": Program("products", Blocks, numbers(512, 256), trained, _SGD),
    "MLP, clipped": Program("products", Blocks, numbers(512, 256), clipped),
    "MLP, accumulated": Program("accumulation", Blocks, numbers(256, 256), accumulated),
    "MLP, autocast": Program("autocast", Blocks, numbers(512, 256), casted),
    "MLP, checkpointed": Program("checkpointed", lambda: Blocks(checkpointed=True), numbers(1024, 256), trained),
    "MLP, Int8Weight": Program("quantized", quantized(Blocks, sa.Int8Weight), numbers(512, 256), trained),
    "TransformerEncoder": Program(
        "transformer",
        lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True), 3),
        numbers(16, 128, 256),
        trained,
    ),
    "BERT": Program("transformer", library("BertForMaskedLM", **_D), words(16), trained),
    "GPT-2": Program("transformer", _GPT, words(16), trained),
    "GPT-2, checkpointed": Program("checkpointed", checkpointed(_GPT), words(32), trained),
    "Llama": Program("transformer", _LLAMA, words(16), trained),
    "Llama, Int8Weight": Program("quantized", quantized(_LLAMA, sa.Int8Weight), words(16), trained),
    "T5": Program(
        "transformer",
        library(
            "T5ForConditionalGeneration",
            d_model=256,
            d_ff=1024,
            d_kv=64,
            num_layers=2,
            num_heads=4,
            vocab_size=WORDS,
            decoder_start_token_id=0,
            use_cache=False,
        ),
        words(16),
        trained,
    ),
    "LSTM": Program(
        "recurrent", lambda: Recurrent(nn.LSTM), lambda: ((torch.randint(0, WORDS, (64, 32)),), {}), trained
    ),
    "conv2d": Program("convolution", convolved(2), numbers(16, 3, 64, 64), trained),
    "ResNet": Program(
        "convolution",
        library("ResNetForImageClassification", embedding_size=32, hidden_sizes=[64, 128], depths=[2, 2]),
        images(16),
        trained,
    ),
    "ConvNext": Program(
        "convolution",
        library("ConvNextForImageClassification", hidden_sizes=[32, 64], depths=[2, 2], num_stages=2),
        images(16),
        trained,
    ),
    "ViT": Program("transformer", library("ViTForImageClassification", **_VISION), images(16), trained),
    "sparse embedding": Program(
        "sparse", SparseWords, lambda: ((torch.randint(0, 100_000, (512, 20)),), {}), trained, _PLAIN
    ),
    "GRU": Program("recurrent", lambda: Recurrent(nn.GRU), lambda: ((torch.randint(0, WORDS, (64, 32)),), {}), trained),
    "conv1d, depthwise": Program("convolution", convolved(1, groups=32), numbers(64, 3, 512), trained),
    "conv3d": Program("convolution", convolved(3), numbers(4, 3, 16, 16, 16), trained),
    "Mistral": Program(
        "transformer", library("MistralForCausalLM", **_D, num_key_value_heads=4, **_NO), words(16), trained
    ),
    "Qwen2, autocast": Program(
        "autocast", library("Qwen2ForCausalLM", **_D, num_key_value_heads=2, **_NO), words(16), casted
    ),
    "BART": Program("transformer", _BART, words(8), trained),
    "BART, Int8Weight": Program("quantized", quantized(_BART, sa.Int8Weight), words(8), trained),
    "DeBERTa-v2": Program("transformer", library("DebertaV2ForMaskedLM", **_D), words(8), trained),
    "Qwen2, checkpointed": Program(
        "checkpointed",
        checkpointed(library("Qwen2ForCausalLM", **_D, num_key_value_heads=2, **_NO)),
        words(16),
        trained,
    ),
    "Llama, LoRA": Program(
        "LoRA",
        adapted(_LLAMA),
        words(16),
        trained,
    ),
    "Mamba": Program(
        "state space",
        library("MambaForCausalLM", hidden_size=128, num_hidden_layers=2, vocab_size=WORDS, use_cache=False),
        words(4, 64),
        trained,
    ),
    "Dinov2": Program(
        "transformer",
        library(
            "Dinov2ForImageClassification",
            hidden_size=192,
            num_hidden_layers=4,
            num_attention_heads=3,
            image_size=64,
            patch_size=8,
        ),
        images(16),
        trained,
    ),
    "RNN": Program(
        "recurrent",
        lambda: Recurrent(nn.RNN),
        lambda: ((torch.randint(0, WORDS, (64, 32)),), {}),
        trained,
    ),
    "OPT": Program(
        "transformer",
        library(
            "OPTForCausalLM",
            hidden_size=256,
            num_hidden_layers=3,
            num_attention_heads=4,
            ffn_dim=1024,
            word_embed_proj_dim=256,
            vocab_size=WORDS,
            **_NO,
        ),
        words(16),
        trained,
    ),
    "Swin": Program(
        "transformer",
        library("SwinForImageClassification", image_size=64, embed_dim=48, depths=[2, 2], num_heads=[3, 6]),
        images(16),
        trained,
    ),
    "MobileNetV2": Program(
        "convolution", library("MobileNetV2ForImageClassification", image_size=64), images(16), trained
    ),
    "Falcon, checkpointed": Program(
        "checkpointed",
        checkpointed(
            library(
                "FalconForCausalLM",
                hidden_size=256,
                num_hidden_layers=3,
                num_attention_heads=4,
                vocab_size=WORDS,
                **_NO,
            )
        ),
        words(16),
        trained,
    ),
    "Llama, inference": Program("inference", _LLAMA, words(16, labels=False), inferred),
    "GPT-2, SGD, accumulated": Program("accumulation", _GPT, words(8), accumulated, _SGD),
    "CNN, 32x32": Program("convolution", small_images(), pictures(64, 3, 32, 32), trained),
    "CNN, 32x32, channels last": Program(
        "convolution", small_images(last=True), pictures(64, 3, 32, 32, last=True), trained
    ),
    "CNN, 32x32, bfloat16": Program(
        "convolution",
        small_images(dtype=torch.bfloat16),
        pictures(64, 3, 32, 32, dtype=torch.bfloat16),
        trained,
    ),
    "CNN, 32x32, float64": Program(
        "convolution",
        small_images(dtype=torch.float64),
        pictures(16, 3, 32, 32, dtype=torch.float64),
        trained,
    ),
    "autoencoder": Program("convolution", autoencoder, pictures(16, 3, 64, 64), trained),
    "separable": Program("convolution", separable, pictures(16, 3, 96, 96), trained),
    "waves": Program("convolution", waves, numbers(4, 1, 16000), trained),
}
