"""Programs on an accelerator against eager mode: results, gradients, layouts, draws, by each compiler and door.

They run where `SUBCLASS_AOT_TEST_DEVICE` names one, and, but for those that are about CUDA, on a CPU, too.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import optree
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

import subclass_aot as sa
from subclass_aot.cost.devices import measure
from tests.device import DEVICE
from tests.models.checks import same
from tests.torches import TORCH

IS_CUDA = torch.device(DEVICE).type == "cuda"
on_cuda = pytest.mark.skipif(not IS_CUDA, reason="about CUDA: SUBCLASS_AOT_TEST_DEVICE=cuda where there is a GPU")
pytestmark = [pytest.mark.usefixtures("fresh_dynamo"), pytest.mark.filterwarnings("ignore")]


@pytest.fixture(autouse=True)
def without_tf32() -> Iterator[None]:
    """Has cuDNN compute in float32: its kernels for weights in one piece and in several round in other places."""
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        yield


OPTIONS: dict[str, Any] = {"fallback_random": True}
WAYS: dict[str, Callable[[Any], Any]] = {
    "aot_compile, eager": sa.aot_compile,
    "aot_compile, eager, dynamic": lambda f: sa.aot_compile(f, dynamic=True),
    "aot_compile, inductor": lambda f: sa.aot_compile(f, fw_compiler=sa.inductor(**OPTIONS)),
    "torch.compile, eager": lambda f: torch.compile(f, backend="subclass_aot"),
    "torch.compile, inductor": lambda f: torch.compile(
        f, backend="subclass_aot", options={"fw_compiler": "inductor", **OPTIONS}
    ),
}

LONG = [] if IS_CUDA else [pytest.mark.long]
DRAWN_IN_ANOTHER_ORDER = {"draws", "dropouts"}
REFUSED_ON_CUDA = {"a_seed_inside", "a_generator_of_the_device"}
"""Draws on an accelerator behind a seed that the function sets, or from a generator of its own: an error by name."""

PROGRAMS: dict[str, Callable[[], tuple[Callable[..., Any], tuple[Any, ...]]]] = {}
ONLY_CUDA: set[str] = set()


def program(make: Callable[[], Any]) -> Callable[[], Any]:
    PROGRAMS[make.__name__] = make
    return make


def cuda_program(make: Callable[[], Any]) -> Callable[[], Any]:
    ONLY_CUDA.add(make.__name__)
    return program(make)


def rand(*size: int, dtype: torch.dtype = torch.float32, grad: bool = True) -> Tensor:
    return torch.rand(*size, device=DEVICE, dtype=dtype).requires_grad_(grad and dtype.is_floating_point)


HALF = torch.float16 if IS_CUDA else torch.bfloat16


@program
def mlp() -> Any:
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 8)).to(DEVICE), (rand(4, 16),)


@program
def convolutions_channels_last() -> Any:
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 1))
    model = model.to(DEVICE, memory_format=torch.channels_last)
    return model, (rand(2, 3, 8, 8).detach().to(memory_format=torch.channels_last).requires_grad_(),)


@program
def convolutions_mixed_layouts() -> Any:
    model = nn.Sequential(nn.Conv2d(4, 8, 3, groups=4), nn.ConvTranspose2d(8, 4, 3, stride=2), nn.Conv2d(4, 1, 1))
    model[0].to(memory_format=torch.channels_last)
    return model.to(DEVICE), (rand(2, 4, 8, 8),)


@program
def convolutions_1d_and_3d() -> Any:
    def function(x: Tensor, y: Tensor, w: Tensor, v: Tensor) -> Any:
        return F.conv1d(x, w, padding=1), F.conv3d(y, v, stride=2)

    return function, (rand(2, 4, 9), rand(2, 3, 6, 6, 6), rand(4, 4, 3), rand(5, 3, 2, 2, 2))


@program
def half_convolution() -> Any:
    return nn.Conv2d(8, 8, 3).to(DEVICE, HALF), (rand(2, 8, 8, 8, dtype=HALF),)


@program
def attention_causal_half() -> Any:
    def function(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(2, 16, -1)

    return function, tuple(rand(2, 4, 16, 32, dtype=HALF) for _ in range(3))


@program
def attention_masked() -> Any:
    def function(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    return function, (*[rand(2, 4, 16, 32) for _ in range(3)], rand(2, 1, 16, 16, grad=False))


@program
def attention_of_transposed() -> Any:
    def function(x: Tensor) -> Tensor:
        q, k, v = x.view(2, 16, 3, 4, 8).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v)
        return y.transpose(1, 2).contiguous().view(2, 16, 32)

    return function, (rand(2, 16, 96, dtype=HALF),)


@program
def attention_with_dropout() -> Any:
    def function(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, dropout_p=0.3)

    return function, tuple(rand(2, 4, 16, 32) for _ in range(3))


@program
def attention_grouped() -> Any:
    def function(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

    return function, (rand(2, 4, 16, 32, dtype=HALF), rand(2, 2, 16, 32, dtype=HALF), rand(2, 2, 16, 32, dtype=HALF))


@program
def multihead_attention() -> Any:
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True).to(DEVICE)
    return layer, (rand(2, 8, 32),)


@program
def multihead_attention_inference() -> Any:
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True).to(DEVICE).eval()

    def function(x: Tensor) -> Tensor:
        with torch.no_grad():
            return layer(x)  # type: ignore[no-any-return]

    return function, (rand(2, 8, 32, grad=False),)


@program
def lstm() -> Any:
    return nn.LSTM(8, 16, 2, batch_first=True, bidirectional=True).to(DEVICE), (rand(2, 5, 8),)


@program
def gru() -> Any:
    return nn.GRU(8, 16, 2).to(DEVICE), (rand(5, 2, 8),)


@program
def rnn_of_one_layer() -> Any:
    return nn.RNN(8, 16, batch_first=True, bias=False).to(DEVICE), (rand(5, 2, 8),)


@program
def norms() -> Any:
    model = nn.ModuleList([nn.BatchNorm1d(8), nn.GroupNorm(2, 8), nn.InstanceNorm1d(8), nn.RMSNorm(6)]).to(DEVICE)

    def function(x: Tensor) -> Any:
        return [layer(x) for layer in model]

    return function, (rand(4, 8, 6),)


@program
def dropouts() -> Any:
    def function(x: Tensor) -> Any:
        return F.dropout(x, 0.4), F.alpha_dropout(x, 0.3, training=True), F.dropout2d(x, 0.5), x * torch.rand_like(x)

    return function, (rand(2, 4, 6, 6),)


@program
def draws() -> Any:
    def function(x: Tensor) -> Any:
        a = torch.randn(4, device=x.device)
        b = torch.randint(0, 9, (5,), device=x.device)
        c = torch.empty(6, device=x.device).uniform_(-1, 1)
        return x.sum() * a, b, c, torch.randperm(7, device=x.device), torch.multinomial(x.detach().abs() + 0.1, 2)

    return function, (rand(3, 4),)


@program
def a_generator_of_the_device() -> Any:
    def function(x: Tensor) -> Tensor:
        generator = torch.Generator(DEVICE).manual_seed(7)
        return x + torch.rand(3, device=DEVICE, generator=generator)

    return function, (rand(3),)


@program
def a_seed_inside() -> Any:
    def function(x: Tensor) -> Tensor:
        with torch.random.fork_rng(devices=[0] if IS_CUDA else []):
            torch.manual_seed(5)
            y = torch.rand(3, device=x.device)
        return x * y + torch.rand(3, device=x.device)

    return function, (rand(3),)


@program
def checkpointed_with_dropout() -> Any:
    from torch.utils.checkpoint import checkpoint

    layer = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.3), nn.Tanh()).to(DEVICE)

    def function(x: Tensor) -> Tensor:
        return checkpoint(layer, checkpoint(layer, x, use_reentrant=False), use_reentrant=False)  # type: ignore[no-any-return]

    return function, (rand(4, 8),)


@program
def autocast_half() -> Any:
    model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.Linear(16, 4)).to(DEVICE)

    def function(x: Tensor) -> Tensor:
        with torch.autocast(torch.device(DEVICE).type, HALF):
            y = model(x)
            with torch.autocast(torch.device(DEVICE).type, enabled=False):
                z = y.float() @ y.float().T
        return F.cross_entropy(z, torch.arange(4, device=x.device))

    return function, (rand(4, 8),)


@program
def autocast_attention_and_convolution() -> Any:
    convolution = nn.Conv2d(3, 8, 3).to(DEVICE)

    def function(x: Tensor, q: Tensor) -> Any:
        with torch.autocast(torch.device(DEVICE).type, torch.bfloat16):
            return convolution(x).softmax(1), F.scaled_dot_product_attention(q, q, q), x.sum() + q.exp().mean()

    return function, (rand(2, 3, 8, 8), rand(2, 4, 8, 16))


@program
def scalars_of_the_cpu() -> Any:
    scale = torch.tensor(2.5)

    def function(x: Tensor, s: Tensor) -> Any:
        return x * scale, x.add(s), torch.where(x > s, x, torch.tensor(0.0)), x.masked_fill(x < 0.5, s)

    return function, (rand(4, 4), torch.tensor(0.25))


@program
def indices_of_the_cpu() -> Any:
    def function(x: Tensor, i: Tensor) -> Any:
        return x[i], x[torch.tensor([1, 0])], x[:, i % 2]

    return function, (rand(4, 4), torch.tensor([0, 3, 1]))


@program
def to_the_cpu_and_back() -> Any:
    def function(x: Tensor) -> Any:
        y = (x * 2).cpu()
        return y.sin().to(x.device, non_blocking=True), y.tolist()[0][0] * x, y

    return function, (rand(3, 4),)


@program
def values_are_read() -> Any:
    def function(x: Tensor) -> Any:
        if x.sum() > 0:
            return x * float(x.detach().max())
        return x + x.nonzero().shape[0]

    return function, (rand(3, 4),)


@program
def made_inside() -> Any:
    def function(x: Tensor) -> Any:
        positions = torch.arange(4, device=x.device)
        eye = torch.eye(4, device=DEVICE)
        return x @ eye + positions, torch.tensor([1.0, 2.0, 3.0, 4.0], device=x.device) * x, x.new_full((2,), 3.0)

    return function, (rand(4, 4),)


@program
def facts_of_the_device() -> Any:
    def function(x: Tensor) -> Any:
        y = x * 2 if x.is_cuda == IS_CUDA else x
        return (y + 1 if x.device.type == torch.device(DEVICE).type else y), x.get_device(), str(x.device)

    return function, (rand(3),)


@program
def a_default_device() -> Any:
    def function(x: Tensor) -> Tensor:
        with torch.device(DEVICE):
            return x + torch.ones(3) * torch.arange(3)

    return function, (rand(3),)


@program
def scatters() -> Any:
    def function(x: Tensor, i: Tensor) -> Any:
        y = torch.zeros(6, 3, device=x.device).index_add(0, i, x)
        z = y.clone()
        z[i[:2]] = 1.0
        return y, z.scatter_reduce(0, i[:, None].expand(4, 3), x, "amax"), x.cumsum(0), x.sort(0)[0], x.topk(2, 0)[0]

    return function, (rand(4, 3), torch.tensor([0, 2, 5, 3], device=DEVICE))


@program
def resizes_and_pools() -> Any:
    def function(x: Tensor) -> Any:
        y = F.interpolate(x, scale_factor=2, mode="bilinear")
        z = F.pad(x, (1, 1, 1, 1), mode="reflect")
        return F.max_pool2d(y, 2), F.adaptive_avg_pool2d(x, 3), z, F.pixel_shuffle(x, 2)

    return function, (rand(2, 4, 6, 6),)


@program
def embeddings() -> Any:
    model = nn.ModuleList([nn.Embedding(10, 4), nn.EmbeddingBag(10, 4, mode="mean")]).to(DEVICE)

    def function(i: Tensor) -> Any:
        return model[0](i), model[1](i)

    return function, (torch.randint(0, 10, (3, 4), device=DEVICE),)


@program
def losses() -> Any:
    def function(x: Tensor, y: Tensor) -> Any:
        p = x.log_softmax(-1)
        lengths = torch.tensor([6, 6], device=x.device)
        ctc = F.ctc_loss(p.view(6, 2, 5), y.view(2, 6)[:, :2] % 4 + 1, lengths, torch.tensor([2, 2], device=x.device))
        cross_entropy = F.binary_cross_entropy_with_logits(x, x.detach().sigmoid())
        return F.nll_loss(p, y % 5), cross_entropy, F.huber_loss(x, p), F.logsigmoid(x), ctc

    return function, (rand(12, 5), torch.arange(12, device=DEVICE))


@program
def linear_algebra() -> Any:
    def function(x: Tensor) -> Any:
        a = x @ x.mT + 4 * torch.eye(4, device=x.device)
        product = torch.einsum("bij,bkj->bik", x, x)
        return torch.linalg.solve(a, x), torch.linalg.cholesky(a), torch.linalg.inv(a), product

    return function, (rand(3, 4, 4),)


@program
def fourier() -> Any:
    return (lambda x: (torch.fft.rfft(x).abs(), torch.fft.ifft(torch.fft.fft(x)).real)), (rand(4, 8),)


@program
def writes() -> Any:
    def function(x: Tensor) -> Any:
        y = x * 1
        y[:, 0].mul_(2)
        y.view(-1)[3:5] = 0.0
        y.t().add_(1)
        return y

    return function, (rand(3, 4),)


@program
def int8_weight() -> Any:
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8))
    for layer in (model[0], model[2]):
        layer.weight = nn.Parameter(sa.Int8Weight.from_float(layer.weight), requires_grad=False)
    return model.to(DEVICE), (rand(4, 16),)


@program
def int4_weight() -> Any:
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 8))
    model[0].weight = nn.Parameter(sa.Int4Weight.from_float(model[0].weight), requires_grad=False)
    return model.to(DEVICE), (rand(4, 64),)


@program
def two_tensor() -> Any:
    def function(x: Any) -> Any:
        y = x * 2
        y.add_(1)
        return y, y.sum()

    return function, (sa.TwoTensor(rand(3, 4, grad=False), rand(3, 4, grad=False)).requires_grad_(),)


@cuda_program
def streams_and_events() -> Any:
    side = torch.cuda.Stream() if IS_CUDA else None

    def function(x: Tensor) -> Tensor:
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            y = x * 2
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        return y + 1

    return function, (rand(3),)


@cuda_program
def a_device_block() -> Any:
    def function(x: Tensor) -> Any:
        with torch.cuda.device(0):
            capability = torch.cuda.get_device_capability()[0]
            return x + torch.ones(3, device="cuda"), capability * x, torch.cuda.current_device()

    return function, (rand(3),)


@cuda_program
def tensor_cores() -> Any:
    def function(x: Tensor, y: Tensor) -> Tensor:
        return torch.backends.cuda.matmul.allow_tf32 * (x @ y).float() + (x.bfloat16() @ y.bfloat16()).float()

    return function, (rand(32, 32), rand(32, 32))


@cuda_program
def pinned() -> Any:
    def function(x: Tensor) -> Tensor:
        return torch.ones(3).pin_memory().to(x.device, non_blocking=True) * x

    return function, (rand(3),)


@cuda_program
def chosen_attention() -> Any:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def function(q: Tensor) -> Any:
        found = []
        for kernel in SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH:
            with sdpa_kernel(kernel):
                found.append(F.scaled_dot_product_attention(q, q, q, is_causal=True))
        return found

    return function, (rand(2, 4, 64, 32, dtype=HALF),)


@cuda_program
def scaled_product() -> Any:
    def function(x: Tensor, y: Tensor, s: Tensor) -> Tensor:
        a, b = x.to(torch.float8_e4m3fn), y.to(torch.float8_e4m3fn).t()
        return torch._scaled_mm(a, b, scale_a=s, scale_b=s, out_dtype=torch.bfloat16)

    return function, (rand(32, 64, grad=False), rand(16, 64, grad=False), torch.ones((), device=DEVICE))


def run(function: Any, args: tuple[Any, ...], model: Any) -> Any:
    """Returns results, strides, gradients, buffers and the next draw of two calls with seeds of their own."""
    found = []
    for seed in range(2):
        given = [x.detach().clone().requires_grad_(x.requires_grad) if isinstance(x, Tensor) else x for x in args]
        torch.manual_seed(seed)
        results = function(*given)
        leaves = [x for x in optree.tree_leaves(results, none_is_leaf=True) if isinstance(x, Tensor)]
        layouts = [tuple(x.stride()) for x in leaves]
        losses = [x.float().square().mean() for x in leaves if x.requires_grad]
        if losses:
            torch.stack([torch.as_tensor(x).to(losses[0].device) for x in losses]).sum().backward()
        parameters = list(model.parameters()) if isinstance(model, nn.Module) else []
        gradients = [x.grad for x in [*given, *parameters] if isinstance(x, Tensor)]
        state = dict(model.named_buffers()) if isinstance(model, nn.Module) else {}
        for parameter in parameters:
            parameter.grad = None
        after = torch.rand(2, device=DEVICE)
        found.append((results, layouts, gradients, {name: x.clone() for name, x in state.items()}, after))
    return found


@pytest.mark.every_case
@pytest.mark.parametrize("way", [pytest.param(way, marks=LONG if "inductor" in way else []) for way in WAYS])
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_eager(name: str, way: str) -> None:
    if name in ONLY_CUDA and not IS_CUDA:
        pytest.skip("about CUDA: SUBCLASS_AOT_TEST_DEVICE=cuda where there is a GPU")
    if "inductor" in way and name in DRAWN_IN_ANOTHER_ORDER and TORCH < (2, 12):
        pytest.skip("inductor of torch 2.11 draws in another order than the program, by torch.compile, too")
    if "torch.compile" in way and name == "pinned":
        pytest.skip("Dynamo has no pin_memory")
    if "inductor" in way and name == "pinned":
        pytest.skip("inductor has no pin_memory")
    torch.manual_seed(0)
    function, args = PROGRAMS[name]()
    own, eager = (copy.deepcopy(function) if isinstance(function, nn.Module) else function for _ in range(2))
    expected = run(eager, args, eager)
    if IS_CUDA and name in REFUSED_ON_CUDA and "aot_compile" in way:
        with pytest.raises(sa.errors.TraceError, match="draws"):
            run(WAYS[way](own), args, own)
        return
    got = run(WAYS[way](own), args, own)
    is_half = any(isinstance(x, Tensor) and x.dtype == HALF for x in args) or "autocast" in name
    close = {"rtol": 2e-2, "atol": 1e-2} if is_half else {"rtol": 1e-3, "atol": 1e-4}
    for ours, theirs in zip(got, expected, strict=True):
        same(ours[0], theirs[0], "results", **close)
        if "inductor" not in way:
            assert ours[1] == theirs[1]
        same(ours[2:], theirs[2:], "gradients, buffers, next draw", **close)


IN_CUDA_GRAPHS = ("mlp", "attention_causal_half", "convolutions_channels_last", "int8_weight", "dropouts")


@on_cuda
@pytest.mark.parametrize("name", IN_CUDA_GRAPHS)
def test_by_cuda_graphs(name: str) -> None:
    function, args = PROGRAMS[name]()
    compiled = torch.compile(
        function, backend="subclass_aot", options={"fw_compiler": "inductor", "triton.cudagraphs": True}
    )
    eager = copy.deepcopy(function)
    close = {"rtol": 2e-2, "atol": 1e-2} if name == "attention_causal_half" else {"rtol": 1e-3, "atol": 1e-4}
    for _ in range(4):
        given = [x.detach().clone().requires_grad_(x.requires_grad) for x in args]
        twins = [x.detach().clone().requires_grad_(x.requires_grad) for x in args]
        torch.compiler.cudagraph_mark_step_begin()
        got, expected = compiled(*given), eager(*twins)
        if name != "dropouts":
            same(got, expected, **close)
            got.float().square().mean().backward()
            expected.float().square().mean().backward()
            same([x.grad for x in given], [x.grad for x in twins], "gradients", **close)
            for model in (function, eager):
                for parameter in model.parameters() if isinstance(model, nn.Module) else ():
                    parameter.grad = None


@on_cuda
def test_a_training_step_with_a_scaler() -> None:
    torch.manual_seed(0)
    models = [nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)).to(DEVICE)]
    models.append(copy.deepcopy(models[0]))
    losses = []
    for model, way in zip(models, (lambda f: f, sa.aot_compile), strict=True):
        optimizer = torch.optim.AdamW(model.parameters(), fused=True)
        scaler = torch.amp.GradScaler("cuda")

        def forward(x: Tensor, model: nn.Module = model) -> Tensor:
            with torch.autocast("cuda", torch.float16):
                return model(x).float().square().mean()

        step = way(forward)
        torch.manual_seed(3)
        for _ in range(4):
            loss = step(torch.rand(8, 16, device=DEVICE))
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
        losses.append(loss.detach())
    torch.testing.assert_close(losses[1], losses[0])
    for ours, theirs in zip(models[1].parameters(), models[0].parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4)


@on_cuda
@pytest.mark.parametrize("options", [{}, {"foreach": True}, {"fused": True}, {"foreach": False}], ids=str)
def test_a_whole_training_step(options: dict[str, bool]) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4)).to(DEVICE)
    twin = copy.deepcopy(model)

    def step_of(model: nn.Module) -> Callable[[Tensor], Tensor]:
        optimizer = torch.optim.AdamW(model.parameters(), **options)

        def step(x: Tensor) -> Tensor:
            optimizer.zero_grad()
            loss: Tensor = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        return step

    ours, eager = sa.aot_compile(step_of(model)), step_of(twin)
    for seed in range(4):
        torch.manual_seed(seed)
        x = torch.rand(8, 16, device=DEVICE)
        torch.testing.assert_close(ours(x), eager(x))
    for a, b in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(a, b)


READ_DATA = {"values_are_read", "to_the_cpu_and_back", "int4_weight", "two_tensor"}


@on_cuda
@pytest.mark.parametrize("name", sorted(PROGRAMS.keys() - ONLY_CUDA - READ_DATA))
def test_without_data_it_is_the_same(name: str) -> None:
    """What `meta("cuda")` says of results: sizes, strides, dtypes and devices are those of the GPU."""
    function, args = PROGRAMS[name]()
    real = optree.tree_leaves(function(*args))

    def twin(x: Any) -> Any:
        return sa.MetaTensor.like(x) if isinstance(x, Tensor) else x

    if isinstance(function, nn.Module):
        function = sa.to_meta(copy.deepcopy(function))
    elif function.__closure__ and any(isinstance(c.cell_contents, nn.Module) for c in function.__closure__):
        for cell in function.__closure__:
            if isinstance(cell.cell_contents, nn.Module):
                cell.cell_contents = sa.to_meta(cell.cell_contents)
    with sa.meta(DEVICE):
        told = optree.tree_leaves(function(*map(twin, args)))
    for x, y in zip(real, told, strict=True):
        if isinstance(x, Tensor):
            assert (x.shape, x.stride(), x.dtype, x.device) == (y.shape, y.stride(), y.dtype, y.device)


@on_cuda
@pytest.mark.parametrize("compiler", ["eager", "inductor"])
def test_memory_of_a_training_step(compiler: str) -> None:
    """The peak is at most that of torch's own compiler of the same kind, and 5%."""

    def peak(way: Callable[[Any], Any]) -> int:
        torch.manual_seed(0)
        block = nn.TransformerEncoderLayer(256, 8, 1024, batch_first=True)
        model = nn.TransformerEncoder(block, 4, enable_nested_tensor=False).to(DEVICE)
        x = torch.rand(8, 128, 256, device=DEVICE)
        step = way(lambda x: model(x).square().mean())
        for _ in range(2):
            step(x).backward()
        model.zero_grad()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        step(x).backward()
        return torch.cuda.max_memory_allocated() - before

    ours = peak(lambda f: sa.aot_compile(f, fw_compiler=compiler))
    theirs = peak(lambda f: torch.compile(f, backend="aot_eager" if compiler == "eager" else "inductor"))
    print(f"{compiler}: ours {ours / 2**20:.1f} MiB, torch {theirs / 2**20:.1f} MiB")
    assert ours <= 1.05 * theirs


def test_a_profile_is_as_a_run() -> None:
    layer = nn.Sequential(nn.Linear(512, 1024), nn.GELU(), nn.Linear(1024, 512)).to(DEVICE)
    check = sa.profile(layer, torch.rand(256, 512, device=DEVICE), optimizer=torch.optim.AdamW).check(tolerance=0.1)
    assert check, str(check)


def test_the_device_is_measured() -> None:
    device = measure(DEVICE)
    report = sa.profile(nn.Linear(64, 64), torch.rand(2**14, 64), device=device)
    assert report.seconds().seconds > 0 and device.type == torch.device(DEVICE).type
