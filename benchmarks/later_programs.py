"""Steps of training that were chosen when `subclass_aot.cost` was written, and that nothing in it was changed for."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from benchmarks.programs import WORDS, Blocks, Data, Program, clipped, images, library, loss_of, numbers, trained, words


class Excited(nn.Module):
    """Residual convolutions by groups, each channel of which is weighed."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False)
        self.around = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(width, width, 1, bias=False),
                nn.BatchNorm2d(width),
                nn.ReLU(inplace=True),
                nn.Conv2d(width, width, 3, padding=1, groups=8, bias=False),
                nn.BatchNorm2d(width),
            )
            for _ in range(3)
        )
        self.weigh = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 8), nn.ReLU(), nn.Linear(8, width), nn.Sigmoid()) for _ in range(3)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(self.first(x), 3, 2, 1)
        for around, weigh in zip(self.around, self.weigh, strict=True):
            y = around(x)
            x = F.relu(x + y * weigh(y.mean((2, 3)))[:, :, None, None])
        return x.mean((2, 3))


class Causal(nn.Module):
    """Dilated convolutions over time."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv1d(width, width, 3, dilation=2**i) for i in range(5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = x + F.gelu(layer(F.pad(x, (2 * layer.dilation[0], 0))))  # type: ignore[operator]
        return x


class Points(nn.Module):
    """The largest of what is computed of each point."""

    def __init__(self) -> None:
        super().__init__()
        widths = (3, 64, 128, 256)
        self.each = nn.Sequential(
            *[
                nn.Sequential(nn.Conv1d(a, b, 1), nn.BatchNorm1d(b), nn.ReLU())
                for a, b in zip(widths, widths[1:], strict=False)
            ]
        )
        self.out = nn.Sequential(nn.Linear(256, 128), nn.Dropout(0.3), nn.Linear(128, 10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.each(x).max(2).values)  # type: ignore[no-any-return]


class Codebook(nn.Module):
    """An autoencoder that keeps the nearest of some codes."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(3, 32, 4, 2, 1), nn.ReLU(), nn.Conv2d(32, 64, 4, 2, 1))
        self.codes = nn.Embedding(256, 64)
        self.up = nn.Sequential(nn.ConvTranspose2d(64, 32, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(32, 3, 4, 2, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        z = self.down(x).permute(0, 2, 3, 1)
        flat = z.reshape(-1, 64)
        near = self.codes(torch.cdist(flat, self.codes.weight).argmin(1)).view_as(z)
        lost = F.mse_loss(near, z.detach()) + 0.25 * F.mse_loss(near.detach(), z)
        there = z + (near - z).detach()
        return F.mse_loss(self.up(there.permute(0, 3, 1, 2)), x) + lost


class Flow(nn.Module):
    """Couplings of halves that can be undone, and how much they stretch."""

    def __init__(self, width: int = 64, layers: int = 6) -> None:
        super().__init__()
        self.nets = nn.ModuleList(
            nn.Sequential(nn.Linear(width // 2, 256), nn.Tanh(), nn.Linear(256, width)) for _ in range(layers)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        stretched = x.new_zeros(len(x))
        for net in self.nets:
            kept, moved = x.chunk(2, 1)
            scale, shift = net(kept).chunk(2, 1)
            scale = torch.tanh(scale)
            x = torch.cat([moved * scale.exp() + shift, kept], 1)
            stretched = stretched + scale.sum(1)
        return (0.5 * x.square().sum(1) - stretched).mean()


class Field(nn.Module):
    """Colours along rays, of waves of positions."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(60, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 4))

    def forward(self, rays: torch.Tensor) -> torch.Tensor:
        begin, along = rays.split(3, 1)
        depths = torch.linspace(0, 1, 32)
        x = begin[:, None] + depths[None, :, None] * along[:, None]
        waves = x[..., None] * 2.0 ** torch.arange(10)
        made = self.net(torch.cat([waves.sin(), waves.cos()], -1).flatten(2))
        opaque = 1 - torch.exp(-F.softplus(made[..., 3]) / 32)
        through = torch.cumprod(1 - opaque + 1e-10, 1)
        return ((opaque * through)[..., None] * made[..., :3].sigmoid()).sum(1)


class Motion(nn.Module):
    """Ten steps by Runge and Kutta."""

    def __init__(self) -> None:
        super().__init__()
        self.slope = nn.Sequential(nn.Linear(64, 128), nn.Tanh(), nn.Linear(128, 64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(10):
            a = self.slope(x)
            b = self.slope(x + 0.05 * a)
            c = self.slope(x + 0.05 * b)
            x = x + 0.1 / 6 * (a + 2 * b + 2 * c + self.slope(x + 0.1 * c))
        return x


class Attended(nn.Module):
    """A decoder that attends to what a GRU has read, word by word."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.read = nn.Embedding(WORDS, 64), nn.GRU(64, 128, batch_first=True)
        self.cell, self.out = nn.GRUCell(64 + 128, 128), nn.Linear(128, WORDS)

    def forward(self, given: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        there, state = self.read(self.table(given))
        h, losses = state[0], []
        for i in range(wanted.shape[1] - 1):
            weights = torch.einsum("bld,bd->bl", there, h).softmax(1)
            context = torch.einsum("bl,bld->bd", weights, there)
            h = self.cell(torch.cat([self.table(wanted[:, i]), context], 1), h)
            losses.append(F.cross_entropy(self.out(h), wanted[:, i + 1]))
        return torch.stack(losses).mean()


class Speech(nn.Module):
    """Convolutions and an LSTM both ways, with the loss of all alignments."""

    def __init__(self) -> None:
        super().__init__()
        self.near = nn.Sequential(nn.Conv1d(40, 128, 3, stride=2, padding=1), nn.ReLU())
        self.far, self.out = nn.LSTM(128, 96, bidirectional=True, batch_first=True), nn.Linear(192, 30)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        y = self.out(self.far(self.near(x).mT)[0]).log_softmax(-1).transpose(0, 1)
        lengths = torch.full((len(x),), y.shape[0]), torch.full((len(x),), labels.shape[1])
        return F.ctc_loss(y, labels, *lengths)


class Pair(nn.Module):
    """A network that trains, and one that it is compared with."""

    def __init__(self, make: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.student = make()
        self.teacher = copy.deepcopy(self.student).requires_grad_(False)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.student(*args, **kwargs)


def distilled(model: Any, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    """A step that follows a teacher."""
    with torch.no_grad():
        wanted = F.softmax(model.teacher(*args) / 2, -1)
    F.kl_div(F.log_softmax(model(*args) / 2, -1), wanted, reduction="batchmean").backward()
    optimizer.step()


def preferred(model: Any, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    """A step by which the first half of answers becomes likelier than the second."""

    def likelihood(of: nn.Module) -> torch.Tensor:
        logits = of(**kwargs).logits[:, :-1].log_softmax(-1)
        return logits.gather(2, kwargs["input_ids"][:, 1:, None])[..., 0].sum(1)

    with torch.no_grad():
        good, bad = likelihood(model.teacher).chunk(2)
    better, worse = likelihood(model.student).chunk(2)
    (-F.logsigmoid(0.1 * (better - good - worse + bad))).mean().backward()
    optimizer.step()


def sharpened(model: nn.Module, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    """A step by the gradient at the worst place nearby."""
    loss_of(model(*args)).backward()
    with torch.no_grad():
        parameters = [p for p in model.parameters() if p.grad is not None]
        norm = torch.stack([p.grad.norm() for p in parameters]).norm()  # type: ignore[union-attr]
        moved = [p.grad * (0.05 / (norm + 1e-12)) for p in parameters]
        torch._foreach_add_(parameters, moved)
    optimizer.zero_grad()
    loss_of(model(*args)).backward()
    with torch.no_grad():
        torch._foreach_sub_(parameters, moved)
    optimizer.step()
    optimizer.zero_grad()


def learned_to_learn(model: nn.Module, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    """A step by the loss after two other steps, for each of three tasks."""
    optimizer.zero_grad()
    for task in args[0].chunk(3):
        fast = dict(model.named_parameters())
        for _ in range(2):
            loss = loss_of(torch.func.functional_call(model, fast, (task,)))
            slopes = torch.autograd.grad(loss, [*fast.values()], create_graph=True)
            fast = {name: p - 0.01 * slope for (name, p), slope in zip(fast.items(), slopes, strict=True)}
        loss_of(torch.func.functional_call(model, fast, (task,))).backward()
    optimizer.step()


def acted(model: Any, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    """Two epochs of clipped steps of an actor, beside a critic."""
    x, reward = args
    body, actor, critic = model
    with torch.no_grad():
        before = actor(body(x)).log_softmax(-1)
        action = before.argmax(-1, keepdim=True)
        gain = reward - critic(body(x))[:, 0]
    for _ in range(2):
        h = body(x)
        now = actor(h).log_softmax(-1)
        ratio = (now.gather(1, action) - before.gather(1, action)).exp()[:, 0]
        chosen = torch.minimum(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()
        entropy = -(now.exp() * now).sum(1).mean()
        loss = F.smooth_l1_loss(critic(h)[:, 0], reward) - chosen - 0.01 * entropy
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def sharper() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 64, 5, padding=2),
        nn.Tanh(),
        nn.Conv2d(64, 32, 3, padding=1),
        nn.Tanh(),
        nn.Conv2d(32, 27, 3, padding=1),
        nn.PixelShuffle(3),
    )


def read(batch: int, given: int, wanted: int) -> Callable[[], Data]:
    return lambda: ((torch.randint(0, WORDS, (batch, given)), torch.randint(0, WORDS, (batch, wanted))), {})


def heard() -> Data:
    return (), {"input_values": torch.randn(4, 4000)}


_D = {
    "hidden_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 512,
    "vocab_size": WORDS,
}
_NO = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "use_cache": False}
_NEOX = library("GPTNeoXForCausalLM", **_D, **_NO)
_VISION = {**_D, "image_size": 64, "patch_size": 8}
_MODEL = lambda: Blocks(layers=3)  # noqa: E731


def _with(cls: Any, **options: Any) -> Callable[..., Any]:
    return lambda ps: cls(ps, **options)


_CHOSEN: dict[str, Program] = {
    "ALBERT": Program("transformer", library("AlbertForMaskedLM", **_D, embedding_size=64), words(8), trained),
    "GPT-NeoX": Program("transformer", _NEOX, words(8), trained),
    "Bloom": Program(
        "transformer",
        library("BloomForCausalLM", hidden_size=256, n_layer=2, n_head=4, vocab_size=WORDS),
        words(8),
        trained,
    ),
    "DistilBERT": Program(
        "transformer",
        library("DistilBertForMaskedLM", dim=256, hidden_dim=512, n_layers=2, n_heads=4, vocab_size=WORDS),
        words(8),
        clipped,
    ),
    "XLNet": Program(
        "transformer",
        library("XLNetLMHeadModel", d_model=256, n_layer=2, n_head=4, d_inner=512, vocab_size=WORDS),
        words(8, 64),
        trained,
    ),
    "Pegasus": Program(
        "transformer",
        library(
            "PegasusForConditionalGeneration",
            d_model=256,
            encoder_layers=2,
            decoder_layers=2,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            encoder_ffn_dim=512,
            decoder_ffn_dim=512,
            vocab_size=WORDS,
            use_cache=False,
        ),
        words(8),
        trained,
    ),
    "SegFormer": Program(
        "convolution", library("SegformerForImageClassification", depths=[1, 1, 1, 1]), images(8), trained
    ),
    "MobileViT": Program("convolution", library("MobileViTForImageClassification", image_size=64), images(8), trained),
    "ViT-MAE": Program(
        "transformer",
        library(
            "ViTMAEForPreTraining",
            **_VISION,
            decoder_hidden_size=128,
            decoder_num_hidden_layers=2,
            decoder_num_attention_heads=4,
            decoder_intermediate_size=256,
        ),
        images(8),
        trained,
    ),
    "Wav2Vec2": Program(
        "speech", library("Wav2Vec2Model", **_D, mask_time_prob=0.0, conv_dim=[64] * 7), heard, trained
    ),
    "super-resolution": Program("convolution", sharper, numbers(8, 3, 48, 48), trained),
    "SE-ResNeXt": Program("convolution", Excited, numbers(8, 3, 96, 96), trained),
    "TCN": Program("convolution", Causal, numbers(16, 64, 400), trained),
    "PointNet": Program("convolution", Points, numbers(16, 3, 1024), trained),
    "VQ-VAE": Program("autoencoder", Codebook, numbers(8, 3, 32, 32), trained),
    "flow": Program("likelihood", Flow, numbers(1024, 64), trained),
    "NeRF": Program("rays", Field, numbers(256, 6), trained),
    "neural ODE": Program("loop", Motion, numbers(512, 64), trained),
    "GRU with attention": Program("recurrent", Attended, read(16, 24, 20), trained),
    "CTC": Program(
        "recurrent",
        Speech,
        lambda: ((torch.randn(8, 40, 200), torch.randint(1, 30, (8, 20))), {}),
        trained,
        assume=True,
    ),
    "distillation": Program("two models", lambda: Pair(_MODEL), numbers(512, 256), distilled),
    "preferences": Program("two models", lambda: Pair(_NEOX), words(8, 64, labels=False), preferred),
    "sharpness-aware": Program("two gradients", _MODEL, numbers(512, 256), sharpened, _with(torch.optim.SGD, lr=0.1)),
    "MAML": Program("second derivatives", _MODEL, numbers(96, 256), learned_to_learn),
    "actor and critic": Program(
        "reinforcement",
        lambda: nn.ModuleList([nn.Sequential(nn.Linear(64, 256), nn.Tanh()), nn.Linear(256, 8), nn.Linear(256, 1)]),
        lambda: ((torch.randn(1024, 64), torch.randn(1024)), {}),
        acted,
    ),
    "MLP, NAdam": Program("optimizer", _MODEL, numbers(512, 256), trained, torch.optim.NAdam),
    "MLP, Adafactor": Program("optimizer", _MODEL, numbers(512, 256), trained, torch.optim.Adafactor, assume=True),
}
PROGRAMS = {name: dataclasses.replace(program, later=True) for name, program in _CHOSEN.items()}
