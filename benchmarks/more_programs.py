"""Steps of training of kinds that are rarer, or newer: by hand, by `torch.func`, with several optimizers."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from benchmarks.programs import (
    WORDS,
    Blocks,
    Data,
    Program,
    casted,
    library,
    loss_of,
    numbers,
    pictures,
    trained,
    words,
)


class Lion(torch.optim.Optimizer):
    """Steps by the sign of a momentum."""

    def __init__(self, params: Iterable[torch.Tensor], lr: float = 1e-4) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["momentum"] = torch.zeros_like(p)
                momentum = state["momentum"]
                p.add_(momentum.mul(0.9).add_(p.grad, alpha=0.1).sign_(), alpha=-group["lr"])
                momentum.mul_(0.99).add_(p.grad, alpha=0.01)


class Muon(torch.optim.Optimizer):
    """Steps by a momentum whose singular values are brought near one, by five products."""

    def __init__(self, params: Iterable[torch.Tensor], lr: float = 1e-3) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                momentum = self.state[p].setdefault("momentum", torch.zeros_like(p)).lerp_(p.grad, 0.05)
                step = orthogonal(momentum) if p.dim() == 2 else momentum
                p.add_(step, alpha=-group["lr"])


def orthogonal(matrix: torch.Tensor) -> torch.Tensor:
    """Returns a matrix near the orthogonal one, by Newton-Schulz."""
    x = matrix.bfloat16()
    x = x.mT if matrix.shape[0] > matrix.shape[1] else x
    x = x / (x.norm() + 1e-7)
    for _ in range(5):
        square = x @ x.mT
        x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
    return (x.mT if matrix.shape[0] > matrix.shape[1] else x).to(matrix.dtype)


class Adam8Bits(torch.optim.Optimizer):
    """Keeps both moments in 8 bits, a scale for each block of 256."""

    def __init__(self, params: Iterable[torch.Tensor], lr: float = 1e-3) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    rows = -(-p.numel() // 256)
                    for name in ("first", "second"):
                        state[name] = torch.zeros(rows, 256, dtype=torch.int8), torch.zeros(rows, 1)
                first, second = self._read(state["first"], p), self._read(state["second"], p)
                first.lerp_(p.grad, 0.1)
                second.lerp_(p.grad.square(), 0.001)
                p.addcdiv_(first, second.clamp_min(0).sqrt().add_(1e-8), value=-group["lr"])
                self._write(state["first"], first)
                self._write(state["second"], second)

    def _read(self, stored: tuple[torch.Tensor, torch.Tensor], like: torch.Tensor) -> torch.Tensor:
        codes, scales = stored
        return (codes * scales).flatten()[: like.numel()].view_as(like)

    def _write(self, stored: tuple[torch.Tensor, torch.Tensor], values: torch.Tensor) -> None:
        codes, scales = stored
        rows = F.pad(values.flatten(), (0, codes.numel() - values.numel())).view_as(codes)
        scales.copy_(rows.abs().amax(1, keepdim=True) / 127)
        codes.copy_((rows / scales.clamp_min(1e-12)).round())


class Ensemble(nn.Module):
    """Eight small networks, of which `torch.func` makes one with stacked parameters."""

    def __init__(self) -> None:
        super().__init__()
        models = [nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 64)) for _ in range(8)]
        stacked, _ = torch.func.stack_module_state(models)
        self.stacked = nn.ParameterDict({name.replace(".", "/"): p for name, p in stacked.items()})
        self.base = [copy.deepcopy(models[0]).to("meta")]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def called(parameters: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
            return torch.func.functional_call(self.base[0], parameters, (x,))  # type: ignore[no-any-return]

        parameters = {name.replace("/", "."): p for name, p in self.stacked.items()}
        return torch.func.vmap(called, (0, None))(parameters, x)  # type: ignore[no-any-return]


def penalized(model: nn.Module, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    """A step with a penalty for the gradient of what it reads."""
    x = args[0].detach().requires_grad_()
    y = model(x)
    (slope,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (loss_of(y) + 10 * (slope.flatten(1).norm(dim=1) - 1).square().mean()).backward()
    optimizer.step()
    optimizer.zero_grad()


def curved(model: nn.Module, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    """Three products of the Hessian with a vector, as of a power iteration."""
    parameters = [*model.parameters()]
    vector = [torch.ones_like(p) for p in parameters]
    slopes = torch.autograd.grad(loss_of(model(*args)), parameters, create_graph=True)
    for _ in range(3):
        along = sum((a * b).sum() for a, b in zip(slopes, vector, strict=True))
        vector = [*torch.autograd.grad(along, parameters, retain_graph=True)]  # type: ignore[arg-type]


def tangents(model: nn.Module, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    """A gradient for each example, by `torch.func`."""
    parameters = {name: p.detach() for name, p in model.named_parameters()}

    def loss(parameters: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        return loss_of(torch.func.functional_call(model, parameters, (x[None],)))

    torch.func.vmap(torch.func.grad(loss), (None, 0))(parameters, args[0])


def packed_away(model: nn.Module, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    """A step that keeps what backward needs in halves of its bytes."""

    def pack(x: torch.Tensor) -> Any:
        return x.bfloat16() if x.dtype is torch.float32 and not isinstance(x, nn.Parameter) else x

    def unpack(x: torch.Tensor) -> torch.Tensor:
        return x.float() if x.dtype is torch.bfloat16 else x

    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        loss = loss_of(model(*args))
    loss.backward()
    optimizer.step()


def on_cpu(model: nn.Module, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    with torch.autograd.graph.save_on_cpu():
        loss = loss_of(model(*args))
    loss.backward()
    optimizer.step()


class Averaged(nn.Module):
    """A network, and the moving average of it that a step keeps up."""

    def __init__(self, averages: Callable[[nn.Module], nn.Module]) -> None:
        super().__init__()
        self.model = Blocks(layers=3)
        self.average = averages(self.model).requires_grad_(False)

    def forward(self, x: torch.Tensor) -> Any:
        return self.model(x)


def averaged(model: Any, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    trained(model.model, optimizer, args, kwargs)
    model.average.update_parameters(model.model)


def exponential(model: Any, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    trained(model.model, optimizer, args, kwargs)
    with torch.no_grad():
        for mean, p in zip(model.average.parameters(), model.model.parameters(), strict=True):
            mean.lerp_(p, 0.01)


def scheduled(model: nn.Module, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    schedule = torch.optim.swa_utils.SWALR(optimizer, 0.05)
    for _ in range(2):
        trained(model, optimizer, args, kwargs)
        schedule.step()


def scaled(model: nn.Module, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    """Two steps of mixed precision whose gradients are scaled."""
    scaler = torch.amp.GradScaler("cpu")
    for _ in range(2):
        with torch.autocast("cpu", torch.bfloat16):
            loss = loss_of(model(*args, **kwargs))
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()


def closed(model: nn.Module, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    """A step of an optimizer that calls the model itself."""

    def loss() -> torch.Tensor:
        optimizer.zero_grad()
        found = loss_of(model(*args))
        found.backward()
        return found

    optimizer.step(loss)


def played(model: nn.Module, optimizers: Any, args: Any, kwargs: Any) -> None:
    """A step of a generator against a discriminator."""
    (maker, judge), (of_maker, of_judge) = model.children(), optimizers
    (real,) = args
    made = maker(torch.randn(real.shape[0], 64))
    right, wrong = torch.ones(real.shape[0], 1), torch.zeros(real.shape[0], 1)
    loss = F.binary_cross_entropy_with_logits
    of_judge.zero_grad()
    (loss(judge(real), right) + loss(judge(made.detach()), wrong)).backward()
    of_judge.step()
    of_maker.zero_grad()
    loss(judge(made), right).backward()
    of_maker.step()


def adversaries() -> nn.Module:
    up, down = nn.ConvTranspose2d, nn.Conv2d
    maker = nn.Sequential(
        nn.Unflatten(1, (64, 1, 1)), up(64, 64, 4), nn.ReLU(), up(64, 32, 4, 2, 1), nn.ReLU(), up(32, 3, 4, 2, 1)
    )
    judge = nn.Sequential(
        down(3, 32, 4, 2, 1),
        nn.LeakyReLU(0.2),
        down(32, 64, 4, 2, 1),
        nn.LeakyReLU(0.2),
        nn.Flatten(),
        nn.Linear(1024, 1),
    )
    return nn.Sequential(maker, judge)


class DiT(nn.Module):
    """A transformer that takes noise away: blocks whose norms are modulated by the time."""

    def __init__(self, width: int = 192, layers: int = 4) -> None:
        super().__init__()
        self.cut, self.time = nn.Conv2d(4, width, 2, 2), nn.Linear(width, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width, elementwise_affine=False) for _ in range(2 * layers))
        self.attend = nn.ModuleList(nn.MultiheadAttention(width, 3, batch_first=True) for _ in range(layers))
        self.mix = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 4 * width), nn.GELU("tanh"), nn.Linear(4 * width, width))
            for _ in range(layers)
        )
        self.modulate = nn.ModuleList(nn.Linear(width, 6 * width) for _ in range(layers))
        self.out = nn.Linear(width, 16)

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        waves = t[:, None] * torch.exp(-torch.arange(96) / 10)
        time = F.silu(self.time(torch.cat([waves.sin(), waves.cos()], 1)))
        h = self.cut(x).flatten(2).mT
        for i, (attend, mix, modulate) in enumerate(zip(self.attend, self.mix, self.modulate, strict=True)):
            a, b, c, d, e, f = modulate(time)[:, None].chunk(6, -1)
            n = self.norms[2 * i](h) * (1 + a) + b
            h = h + c * attend(n, n, n, need_weights=False)[0]
            h = h + d * mix(self.norms[2 * i + 1](h) * (1 + e) + f)
        return self.out(h)  # type: ignore[no-any-return]


class UNet(nn.Module):
    """Convolutions down and up again, with what was there on the way down."""

    def __init__(self, widths: tuple[int, ...] = (32, 64, 96)) -> None:
        super().__init__()
        pairs = [*zip((3, *widths), widths, strict=False)]
        self.down = nn.ModuleList(self.step(a, b) for a, b in pairs)
        self.up = nn.ModuleList(self.step(a + b, a) for a, b in reversed([*zip(widths, widths[1:], strict=False)]))
        self.out = nn.Conv2d(widths[0], 3, 1)

    def step(self, given: int, made: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(given, made, 3, padding=1), nn.GroupNorm(8, made), nn.SiLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        there = []
        for down in self.down:
            x = down(F.avg_pool2d(x, 2) if there else x)
            there.append(x)
        there.pop()
        for up in self.up:
            x = up(torch.cat([F.interpolate(x, scale_factor=2, mode="nearest"), there.pop()], 1))
        return self.out(x)  # type: ignore[no-any-return]


class Graph(nn.Module):
    """Messages along edges, added up at nodes."""

    def __init__(self, width: int = 64, layers: int = 3) -> None:
        super().__init__()
        self.message = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(layers))
        self.update = nn.ModuleList(nn.GRUCell(width, width) for _ in range(layers))

    def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        first, second = edges
        for message, update in zip(self.message, self.update, strict=True):
            sent = F.relu(message(torch.cat([x[first], x[second]], 1)))
            x = update(torch.zeros_like(x).index_add(0, second, sent), x)
            x = x + torch.zeros_like(x).scatter_reduce(0, second[:, None].expand_as(sent), sent, "mean")
        return x


def contrasted(model: nn.Module, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    """A step in which two views of each example find each other."""
    first, second = (F.normalize(model(x).flatten(1), dim=1) for x in (args[0], args[0].flip(-1)))
    scores, right = first @ second.T / 0.1, torch.arange(len(first))
    (F.cross_entropy(scores, right) + F.cross_entropy(scores.T, right)).backward()
    optimizer.step()


class Adapted(nn.Module):
    """A frozen network, each layer of it beside a narrow pair that trains."""

    def __init__(self) -> None:
        super().__init__()
        self.base = Blocks(layers=4).requires_grad_(False)
        layers = [m for m in self.base.modules() if isinstance(m, nn.Linear)]
        self.pairs = nn.ModuleList(
            nn.Sequential(nn.Linear(m.in_features, 8, bias=False), nn.Linear(8, m.out_features, bias=False))
            for m in layers
        )
        for layer, pair in zip(layers, self.pairs, strict=True):
            layer.register_forward_hook(lambda m, args, y, pair=pair: y + 2 * pair(args[0]))

    def forward(self, x: torch.Tensor) -> Any:
        return self.base(x)


class Reentrant(Blocks):
    """Blocks, checkpointed the older way."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.requires_grad_()
        for block in self.blocks:
            x = x + checkpoint(block, x, use_reentrant=True)
        return x


def compiled(model: nn.Module, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    """A step whose loss `torch.compile` made."""
    _compiled_loss(model(*args)).backward()
    optimizer.step()


@torch.compile
def _compiled_loss(y: torch.Tensor) -> torch.Tensor:
    return F.softplus(y).square().mean()


def generated(model: Any, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    model.eval().generate(**kwargs)


def unfolded(model: nn.Module, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
    optimizer.zero_grad()
    trained(model, optimizer, args, kwargs)
    trained(model, optimizer, args, kwargs)


def last(make: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    return lambda: make().to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def short(make: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    return lambda: make().bfloat16()


def prompts(**options: Any) -> Callable[[], Data]:
    return lambda: ((), {"input_ids": torch.randint(5, WORDS, (4, 12)), "max_new_tokens": 8, **options})


def speech() -> Data:
    labels = torch.randint(5, WORDS, (4, 32))
    return (), {"input_features": torch.randn(4, 80, 400), "labels": labels}


def noised() -> Data:
    return (torch.randn(16, 4, 16, 16), torch.rand(16)), {}


def graph() -> Data:
    return (torch.randn(1000, 64), torch.randint(0, 1000, (2, 8000))), {}


_D = {
    "hidden_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 512,
    "vocab_size": WORDS,
}
_ENDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_LLAMA = library("LlamaForCausalLM", **_D, num_key_value_heads=2, **_ENDS)
_OLMOE = library("OlmoeForCausalLM", **_D, num_experts=8, num_experts_per_tok=2, use_cache=False, **_ENDS)
_WHISPER = library(
    "WhisperForConditionalGeneration",
    d_model=192,
    encoder_layers=2,
    decoder_layers=2,
    encoder_attention_heads=3,
    decoder_attention_heads=3,
    encoder_ffn_dim=768,
    decoder_ffn_dim=768,
    max_source_positions=200,
    vocab_size=WORDS,
    decoder_start_token_id=1,
    use_cache=False,
    **_ENDS,
)
_RESNET = library("ResNetForImageClassification", embedding_size=32, hidden_sizes=[64, 128], depths=[2, 2])
_PAIR: Callable[..., Any] = lambda ps: tuple(torch.optim.Adam(part, 2e-4) for part in (ps[:6], ps[6:]))  # noqa: E731
_SMALL = lambda: Blocks(layers=3)  # noqa: E731


def _images(last: bool = False) -> Callable[[], Data]:
    made = pictures(16, 3, 64, 64, last=last)
    return lambda: ((), {"pixel_values": made()[0][0]})


def _with(cls: Any, **options: Any) -> Callable[..., Any]:
    return lambda ps: cls(ps, **options)


PROGRAMS: dict[str, Program] = {
    "MLP, Lion": Program("optimizer by hand", _SMALL, numbers(512, 256), trained, Lion),
    "MLP, Muon": Program("optimizer by hand", _SMALL, numbers(512, 256), trained, Muon),
    "MLP, Adam in 8 bits": Program("optimizer by hand", _SMALL, numbers(512, 256), trained, Adam8Bits),
    "MLP, fused AdamW": Program("optimizer", _SMALL, numbers(512, 256), trained, _with(torch.optim.AdamW, fused=True)),
    "MLP, foreach Adam": Program(
        "optimizer", _SMALL, numbers(512, 256), trained, _with(torch.optim.Adam, foreach=True)
    ),
    "MLP, LBFGS": Program(
        "optimizer", _SMALL, numbers(512, 256), closed, _with(torch.optim.LBFGS, max_iter=5), assume=True
    ),
    "sparse embedding, SparseAdam": Program(
        "sparse",
        lambda: nn.Sequential(nn.Embedding(20_000, 64, sparse=True)),
        lambda: ((torch.randint(0, 20_000, (64, 20)),), {}),
        trained,
        torch.optim.SparseAdam,
        assume=True,
    ),
    "ensemble": Program("torch.func", Ensemble, numbers(256, 64), trained),
    "gradients of examples": Program("torch.func", _SMALL, numbers(32, 256), tangents),
    "gradient penalty": Program(
        "second derivatives",
        lambda: nn.Sequential(nn.Linear(256, 512), nn.Softplus(), nn.Linear(512, 1)),
        numbers(512, 256),
        penalized,
    ),
    "Hessian and vector": Program(
        "second derivatives",
        lambda: nn.Sequential(nn.Linear(128, 256), nn.Tanh(), nn.Linear(256, 64)),
        numbers(256, 128),
        curved,
    ),
    "MLP, saved in bfloat16": Program("hooks of what is saved", _SMALL, numbers(1024, 256), packed_away),
    "MLP, save_on_cpu": Program("hooks of what is saved", _SMALL, numbers(1024, 256), on_cpu),
    "MLP, EMA": Program("averages", lambda: Averaged(copy.deepcopy), numbers(512, 256), exponential),
    "MLP, AveragedModel": Program(
        "averages", lambda: Averaged(torch.optim.swa_utils.AveragedModel), numbers(512, 256), averaged
    ),
    "MLP, SWALR": Program("averages", _SMALL, numbers(512, 256), scheduled, _with(torch.optim.SGD, lr=0.1)),
    "generate": Program("generation", _LLAMA, prompts(), generated, assume=True),
    "generate, beams": Program("generation", _LLAMA, prompts(num_beams=3), generated, assume=True),
    "MLP, compiled loss": Program("torch.compile", _SMALL, numbers(512, 256), compiled),
    "OLMoE": Program("experts", _OLMOE, words(8), trained, assume=True),
    "DiT": Program("diffusion", DiT, noised, trained),
    "DiT, scaled": Program("diffusion", DiT, noised, scaled, assume=True),
    "UNet": Program("diffusion", UNet, pictures(4, 3, 64, 64), trained),
    "Whisper": Program("transformer", _WHISPER, speech, trained),
    "graph": Program("graph", Graph, graph, trained),
    "pairs": Program("contrastive", _SMALL, numbers(512, 256), contrasted),
    "GAN": Program("adversarial", adversaries, pictures(32, 3, 16, 16), played, _PAIR),
    "MLP, adapters": Program("LoRA", Adapted, numbers(512, 256), trained),
    "MLP, checkpointed, reentrant": Program("checkpointed", Reentrant, numbers(1024, 256), trained),
    "MLP, scaled": Program("autocast", _SMALL, numbers(512, 256), scaled, assume=True),
    "ResNet, channels last": Program("convolution", last(_RESNET), _images(last=True), trained),
    "ResNet, channels last, autocast": Program("convolution", last(_RESNET), _images(last=True), casted),
    "Llama, bfloat16": Program("transformer", short(_LLAMA), words(8), trained),
}
