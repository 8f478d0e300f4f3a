"""What single operators take on a GPU: `python -m tests.device_probes` on an H100 writes `device_probes.json`.

`tests/test_device_probes.py` compares it with what a claim of an H100 says. Each probe makes its tensors, and then runs
what is measured; the bytes are those that were requested of torch's allocator: the most at a time, and what is there
afterwards.
"""

from __future__ import annotations

import gc
import itertools
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from torch.nn.attention import SDPBackend, sdpa_kernel

import subclass_aot as sa
from subclass_aot.base import _torch

FILE = Path(__file__).with_suffix(".json")
Run = Callable[[], Any]

_HALF, _FLOAT, _DOUBLE = torch.bfloat16, torch.float32, torch.float64


def _zeros(*size: int, dtype: torch.dtype = _FLOAT, grad: bool = False) -> Tensor:
    return torch.zeros(*size, dtype=dtype, device="cuda").requires_grad_(grad)


def _reductions() -> dict[str, Callable[[], Run]]:
    shapes: list[tuple[tuple[int, ...], Any]] = [
        ((8192, 2048), 0),
        ((8192, 2048), 1),
        ((8192, 2048), None),
        ((8192, 8192), 0),
        ((100_000, 64), 0),
        ((100_000, 63), 0),
        ((12608, 768), 0),
        ((64, 197, 768), (0, 1)),
        ((64, 197, 768), (0, 2)),
        ((16, 64, 56, 56), (0, 2, 3)),
        ((16, 64, 56, 56), 1),
        ((1_000_003,), None),
        ((5, 1_000_000), 1),
        ((5, 1_000_000), 0),
        ((3, 7, 100_000), (0, 2)),
        ((1_000_000, 5), 0),
        ((40_000, 1000), 0),
        ((512, 300, 40), 1),
        ((300, 200), 0),
        ((4096, 4096), -1),
        ((65_536, 16), 0),
    ]
    found: dict[str, Callable[[], Run]] = {}

    def add(kind: str, shape: tuple[int, ...], dim: Any, dtype: torch.dtype, flipped: bool = False) -> None:
        def make() -> Run:
            x = _zeros(*shape, dtype=dtype)
            if flipped:
                x = x.transpose(0, -1)
            dims = {} if dim is None else {"dim": dim}
            run: Run = {
                "sum": lambda: x.sum(**dims),
                "mean": lambda: x.mean(**dims),
                "amax": lambda: x.amax(**dims),
                "argmax": lambda: x.argmax(**dims),
                "any": lambda: x.any(**dims),
                "var_mean": lambda: torch.var_mean(x, **dims),
                "norm": lambda: torch.linalg.vector_norm(x, **dims),
                "max": lambda: x.max(**dims),
                "prod": lambda: x.prod(**dims),
                "std": lambda: x.std(**dims),
                "logsumexp": lambda: x.logsumexp(**dims),
            }[kind]
            return run

        name = f"{kind} of {list(shape)}, {dim}, {str(dtype)[6:]}{', flipped' if flipped else ''}"
        found[name] = make

    for shape, dim in shapes:
        for dtype in (_FLOAT, _HALF):
            add("sum", shape, dim, dtype)
        add("sum", shape, dim, _FLOAT, True)
        add("mean", shape, dim, _DOUBLE)
        add("amax", shape, dim, _HALF)
        add("var_mean", shape, dim, _FLOAT)
        if not isinstance(dim, tuple):
            add("argmax", shape, dim, _FLOAT)
            add("max", shape, dim, _FLOAT)
            add("argmax", shape, dim, _HALF)
            add("prod", shape, dim, _FLOAT)
        add("any", shape, dim, torch.bool)
        add("norm", shape, dim, _FLOAT)
        add("norm", shape, dim, _HALF)
        add("std", shape, dim, _HALF)
        add("sum", shape, dim, torch.bool)
        add("sum", shape, dim, torch.int32)
        add("logsumexp", shape, 0 if dim is None else dim, _FLOAT)
    return found


_KERNELS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
}


def _attention() -> dict[str, Callable[[], Run]]:
    sizes = [
        (4, 8, 8, 512, 512, 64),
        (2, 16, 4, 1024, 1024, 128),
        (8, 12, 12, 197, 197, 64),
        (3, 6, 6, 300, 77, 32),
        (2, 4, 4, 1024, 512, 96),
        (2, 8, 2, 130, 130, 256),
        (4, 8, 8, 512, 512, 40),
    ]
    found: dict[str, Callable[[], Run]] = {}

    def add(kernel: str, size: tuple[int, ...], dtype: torch.dtype, masked: bool, is_backward: bool) -> None:
        batch, heads, groups, queries, keys, width = size

        def make() -> Run:
            q = _zeros(batch, queries, heads, width, dtype=dtype, grad=True).transpose(1, 2)
            k = _zeros(batch, keys, groups, width, dtype=dtype, grad=True).transpose(1, 2)
            v = _zeros(batch, keys, groups, width, dtype=dtype, grad=True).transpose(1, 2)
            mask = _zeros(queries, keys, dtype=dtype) if masked else None
            options: Any = {"enable_gqa": True} if groups != heads else {}

            def forward() -> Tensor:
                with sdpa_kernel(_KERNELS[kernel]):
                    return F.scaled_dot_product_attention(q, k, v, mask, **options)

            if not is_backward:
                return forward
            result = forward()
            grad = torch.empty_like(result)
            return lambda: torch.autograd.grad(result, (q, k, v), grad, retain_graph=True)

        way = "backward" if is_backward else "forward"
        found[f"{kernel} attention of {list(size)}, {str(dtype)[6:]}{', masked' if masked else ''}, {way}"] = make

    for size, is_backward in itertools.product(sizes, (False, True)):
        for kernel in _KERNELS:
            if kernel != "efficient" or size[1] == size[2]:
                add(kernel, size, _HALF, False, is_backward)
                if kernel != "flash":
                    add(kernel, size, _HALF, True, is_backward)
        if size[1] == size[2]:
            add("efficient", size, _FLOAT, False, is_backward)
            add("efficient", size, _FLOAT, True, is_backward)
    return found


def _recurrent() -> dict[str, Callable[[], Run]]:
    found: dict[str, Callable[[], Run]] = {}

    def add(cls: Any, size: tuple[int, ...], is_backward: bool, dtype: torch.dtype = _FLOAT, **options: Any) -> None:
        steps, batch, given, hidden = size

        def make() -> Run:
            layer = cls(given, hidden, dtype=dtype, device="cuda", **options)
            x = _zeros(steps, batch, given, dtype=dtype, grad=True)
            if not is_backward:
                return lambda: layer(x)
            result = layer(x)[0]
            grad = torch.empty_like(result)
            return lambda: torch.autograd.grad(result, (x, *layer.parameters()), grad, retain_graph=True)

        said = "".join(f", {name}={value}" for name, value in options.items())
        way = "backward" if is_backward else "forward"
        found[f"{cls.__name__} of {list(size)}, {str(dtype)[6:]}{said}, {way}"] = make

    for cls, is_backward in itertools.product((nn.RNN, nn.LSTM, nn.GRU), (False, True)):
        for size in ((100, 64, 128, 256), (30, 16, 64, 96), (200, 32, 512, 512), (7, 5, 10, 20)):
            add(cls, size, is_backward)
            for options in (
                {"num_layers": 2},
                {"num_layers": 3},
                {"bidirectional": True},
                {"num_layers": 2, "bidirectional": True},
                {"batch_first": True},
                {"num_layers": 2, "dropout": 0.5},
                {"bias": False},
            ):
                if size[0] in (100, 30):
                    add(cls, size, is_backward, **options)
            add(cls, size, is_backward, _HALF)
        add(cls, (100, 64, 128, 256), is_backward, _HALF, num_layers=2)
    for is_backward in (False, True):
        add(nn.LSTM, (100, 64, 128, 256), is_backward, proj_size=64)
    return found


def _others() -> dict[str, Callable[[], Run]]:
    found: dict[str, Callable[[], Run]] = {}

    def backward(name: str, make: Callable[[], tuple[Tensor, Any]]) -> None:
        def made() -> Run:
            result, inputs = make()
            grad = torch.empty_like(result)
            return lambda: torch.autograd.grad(result, inputs, grad, retain_graph=True)

        found[f"{name}, backward"] = made
        found[f"{name}, forward"] = lambda: lambda: make()[0]

    def layer(
        name: str, module: Callable[[], nn.Module], *size: int, dtype: torch.dtype = _FLOAT, last: bool = False
    ) -> None:
        def made() -> tuple[Tensor, Any]:
            part, x = module().to("cuda", dtype), _zeros(*size, dtype=dtype, grad=True)
            if last:
                part, x = (
                    part.to(memory_format=torch.channels_last),
                    x.detach().contiguous(memory_format=torch.channels_last).requires_grad_(),
                )  # type: ignore[call-overload]
            return part(x), (x, *part.parameters())

        backward(f"{name} of {list(size)}, {str(dtype)[6:]}{', channels last' if last else ''}", made)

    for words, vocabulary, width in ((1000, 500, 64), (8192, 50_257, 768), (4096, 1000, 256), (32_768, 2000, 128)):
        ids = lambda words=words: torch.zeros(words, dtype=torch.long, device="cuda")  # noqa: E731

        def made(ids: Any = ids, vocabulary: int = vocabulary, width: int = width) -> tuple[Tensor, Any]:
            table = _zeros(vocabulary, width, grad=True)
            return F.embedding(ids(), table), (table,)

        backward(f"embedding of {words} of {vocabulary} by {width}", made)

        def picked(ids: Any = ids, vocabulary: int = vocabulary, width: int = width) -> tuple[Tensor, Any]:
            table = torch.randn(vocabulary, width, device="cuda", requires_grad=True)
            return table[ids()], (table,)

        backward(f"rows {words} of {vocabulary} by {width}", picked)
    for dtype in (_FLOAT, _HALF):
        layer("layer norm", lambda: nn.LayerNorm(768), 8192, 768, dtype=dtype)
        layer("rms norm", lambda: nn.RMSNorm(768), 8192, 768, dtype=dtype)
        layer("group norm", lambda: nn.GroupNorm(8, 64), 16, 64, 56, 56, dtype=dtype)
        layer("batch norm", lambda: nn.BatchNorm2d(64), 16, 64, 56, 56, dtype=dtype)
        layer("batch norm", lambda: nn.BatchNorm2d(64), 16, 64, 56, 56, dtype=dtype, last=True)
        layer("evaluated batch norm", lambda: nn.BatchNorm2d(64).eval(), 16, 64, 56, 56, dtype=dtype)
        layer("instance norm", lambda: nn.InstanceNorm2d(64, affine=True), 16, 64, 56, 56, dtype=dtype)
        layer("linear", lambda: nn.Linear(768, 3072), 8192, 768, dtype=dtype)
        layer("max pool", lambda: nn.MaxPool2d(2), 16, 64, 56, 56, dtype=dtype)
        layer("average pool", lambda: nn.AvgPool2d(2), 16, 64, 56, 56, dtype=dtype)
        layer("adaptive pool", lambda: nn.AdaptiveAvgPool2d(7), 16, 64, 56, 56, dtype=dtype)
        layer("upsample", lambda: nn.Upsample(scale_factor=2, mode="bilinear"), 16, 64, 28, 28, dtype=dtype)
        layer("softmax", lambda: nn.Softmax(-1), 8192, 1024, dtype=dtype)
        layer("gelu", nn.GELU, 8192, 1024, dtype=dtype)
        layer("dropout", lambda: nn.Dropout(0.1), 8192, 1024, dtype=dtype)
    layer("batch norm", lambda: nn.BatchNorm1d(768), 8192, 768)
    for n, k in ((1_000_000, 1), (4096, 4096), (64, 50_257)):
        x = lambda n=n, k=k: _zeros(n, k).squeeze(-1)  # noqa: E731
        found[f"sort of {n, k}"] = lambda x=x: partial_of(torch.sort, x())
        found[f"argsort of {n, k}"] = lambda x=x: partial_of(torch.argsort, x())
        found[f"topk of {n, k}"] = lambda x=x: partial_of(torch.topk, x(), 50)
        found[f"cumsum of {n, k}"] = lambda x=x: partial_of(torch.cumsum, x(), 0)
        found[f"nonzero of {n, k}"] = lambda x=x: partial_of(torch.nonzero, x())
        found[f"multinomial of {n, k}"] = lambda n=n: partial_of(torch.multinomial, _zeros(8, min(n, 1000)) + 1, 1)
        found[f"masked rows of {n, k}"] = lambda x=x: (lambda t: lambda: t[t > 1])(x())
        found[f"randperm of {n}"] = lambda n=n: lambda: torch.randperm(n, device="cuda")

    def losses() -> None:
        for classes in (1000, 50_257):

            def made(classes: int = classes) -> tuple[Tensor, Any]:
                x = _zeros(4096, classes, grad=True)
                return F.cross_entropy(x, torch.zeros(4096, dtype=torch.long, device="cuda")), (x,)

            backward(f"cross entropy of {classes}", made)

    losses()
    for matrices in ([(64, 64)] * 50, [(1024, 1024)] * 8, [(1_000_000,)]):
        tensors = lambda matrices=matrices: [_zeros(*size) for size in matrices]  # noqa: E731
        found[f"norms of {len(matrices)} of {matrices[0]}"] = lambda t=tensors: partial_of(torch._foreach_norm, t())

        def clipped(tensors: Any = tensors) -> Run:
            parameters = [x.requires_grad_() for x in tensors()]
            for x in parameters:
                x.grad = torch.zeros_like(x)
            return lambda: nn.utils.clip_grad_norm_(parameters, 1.0)

        found[f"clipping {len(matrices)} of {matrices[0]}"] = clipped
        for name, optimizer in {
            "AdamW": torch.optim.AdamW,
            "fused AdamW": lambda ps: torch.optim.AdamW(ps, fused=True),
            "SGD": torch.optim.SGD,
            "momentum": lambda ps: torch.optim.SGD(ps, 0.1, momentum=0.9),
            "RMSprop": torch.optim.RMSprop,
            "Adagrad": torch.optim.Adagrad,
            "NAdam": torch.optim.NAdam,
            "Adadelta": torch.optim.Adadelta,
        }.items():

            def stepped(tensors: Any = tensors, optimizer: Any = optimizer) -> Run:
                parameters = [x.requires_grad_() for x in tensors()]
                for x in parameters:
                    x.grad = torch.zeros_like(x)
                made = optimizer(parameters)
                made.step()
                return lambda: made.step()

            found[f"{name} on {len(matrices)} of {matrices[0]}"] = stepped
    for dtype in (_HALF, _FLOAT, _DOUBLE):
        for left, right in (((512, 1024), (1024, 256)), ((8, 4096), (4096, 4096)), ((4095, 33), (33, 65))):
            found[f"product of {left} and {right}, {str(dtype)[6:]}"] = lambda a=left, b=right, t=dtype: partial_of(
                torch.mm, _zeros(*a, dtype=t), _zeros(*b, dtype=t)
            )
            found[f"batched product of {left} and {right}, {str(dtype)[6:]}"] = lambda a=left, b=right, t=dtype: (
                partial_of(torch.bmm, _zeros(4, *a, dtype=t), _zeros(4, *b, dtype=t))
            )
    found["product with an expanded gradient"] = lambda: partial_of(
        torch.mm, _zeros(1, 1).expand(4096, 512), _zeros(512, 256)
    )
    found["matrix and vector"] = lambda: partial_of(torch.mv, _zeros(4096, 512), _zeros(512))
    found["cat"] = lambda: partial_of(torch.cat, [_zeros(1000, 100), _zeros(1000, 100)])
    found["rolled"] = lambda: partial_of(torch.roll, _zeros(1000, 1000), (3, 4), (0, 1))
    return found


def partial_of(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Run:
    """Returns what calls a function, with tensors that are there before."""
    return lambda: function(*args, **kwargs)


PROBES: dict[str, Callable[[], Run]] = {**_others(), **_reductions(), **_attention(), **_recurrent()}


def real(name: str) -> dict[str, Any]:
    """Returns what the GPU takes: the most requested bytes, those kept afterwards."""
    run = PROBES[name]()
    with torch.autograd.set_multithreading_enabled(False):
        run()  # libraries have their workspaces
        gc.collect()
        torch.cuda.synchronize()
        _torch.cuda.free_library_workspaces()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_stats()["requested_bytes.all.current"]
        kept = run()
        stats = torch.cuda.memory_stats()
        del kept
    return {
        "peak": stats["requested_bytes.all.peak"] - before,
        "kept": stats["requested_bytes.all.current"] - before,
    }


def claimed(name: str) -> dict[str, Any]:
    """Returns what is said without a GPU."""
    with sa.meta("H100"):
        run = PROBES[name]()
        with sa.profile(nn.Module(), device="H100") as report:
            kept = run()
            end = report.timeline.curve()[-1]
        del kept
    curve = report.timeline.curve()
    return {"peak": max(curve) - curve[0], "kept": end - curve[0]}


def main() -> None:
    """Writes what the GPU here takes, for as many seconds as the second argument says; the rest is left out."""
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else FILE
    end = time.monotonic() + (float(sys.argv[2]) if len(sys.argv) > 2 else 3600)
    found: dict[str, Any] = {}
    for i, name in enumerate(PROBES):
        began = time.monotonic()
        if began > end:
            break
        try:
            found[name] = real(name)
        except Exception as error:  # of a kernel that is not there
            found[name] = {"error": str(error).partition("\n")[0]}
        took = time.monotonic() - began
        if took > 1:
            print(f"{took:.1f} s: {name}", file=sys.stderr, flush=True)
        if i % 20 == 0 or took > 1:
            _write(path, found)
    _write(path, found)


def _write(path: Path, found: dict[str, Any]) -> None:
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(each)}" for name, each in found.items())
    device = json.dumps(torch.cuda.get_device_name())
    path.write_text(f'{{\n "torch": "{torch.__version__}",\n "device": {device},\n "found": {{\n{lines}\n }}\n}}\n')


if __name__ == "__main__":
    main()
