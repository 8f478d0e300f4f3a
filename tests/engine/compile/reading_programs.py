"""Programs that read memory, or that run compiled code, where a traced tensor has no memory.

Run as a script, it runs each of them in a process of its own, and prints one line of JSON for each: its name, and how
it ended. A process that is killed has the number of the signal.
"""

from __future__ import annotations

import copy
import functools
import io
import json
import os
import pickle
import resource
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy
import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.utils.dlpack import from_dlpack, to_dlpack

from subclass_aot import aot_compile
from subclass_aot.tensors import TwoTensor

Program = Callable[..., Any]


def causal(b: Any, h: Any, q: Any, k: Any) -> Any:
    return q >= k


@torch.library.custom_op("reading_programs::sine", mutates_args=())
def sine(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(numpy.sin(x.numpy()))


@sine.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


@torch.library.custom_op("reading_programs::no_rule", mutates_args=())
def no_rule(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(numpy.sin(x.numpy()))


class NumpyForward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return torch.from_numpy(x.detach().numpy() * 2)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:  # type: ignore[override]
        return gradient


class NumpyBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:  # type: ignore[override]
        return torch.from_numpy(gradient.numpy())


class RaisesBackward(NumpyBackward):
    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:  # type: ignore[override]
        raise ValueError("of the program")


def hooked(hook: Any) -> Program:
    def program(x: Any) -> Any:
        y = x * 2
        y.register_hook(hook)
        return y * 3

    return program


def packed(pack: Any, unpack: Any) -> Program:
    def program(x: Any) -> Any:
        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            return (x * x).sin()

    return program


def in_a_thread(x: Any) -> Any:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(x * 2))
    thread.start()
    thread.join()
    return found[0]


def raise_(*args: Any) -> Any:
    raise ZeroDivisionError("of the program")


half = torch.compile(lambda x: (x * 0.5).sin(), backend="aot_eager")
half_of_wrapper = torch.compile(lambda x: (x * 0.5).sin(), backend="aot_eager")


@functools.cache  # not when this file is read: the first program of inductor in a process brings warnings
def used_before() -> Any:
    return torch.compile(lambda x: (x * 0.5).sin())


compiled_layer = torch.compile(torch.nn.Linear(4, 4).requires_grad_(False), backend="eager")

PROGRAMS: dict[str, Program] = {
    "numpy": lambda x: torch.from_numpy(x.numpy()) * 2,
    "numpy of a gradient's tensor": lambda x: torch.from_numpy(x.detach().numpy() * 2),
    "asarray": lambda x: torch.tensor(numpy.asarray(x.detach())),
    "a function of numpy": lambda x: numpy.sin(x.detach()),
    "memoryview": lambda x: memoryview(x.detach().numpy()).tolist(),
    "storage": lambda x: x.storage()[0],
    "untyped storage": lambda x: x.untyped_storage()[0],
    "untyped storage, copied": lambda x: x.untyped_storage().clone(),
    "untyped storage, filled": lambda x: x.untyped_storage().fill_(0),
    "untyped storage, other byte order": lambda x: x.untyped_storage().byteswap(torch.float32),
    "set_": lambda x: torch.empty(0).set_(x.untyped_storage()) * 2,
    "share_memory_": lambda x: x.detach().share_memory_() * 2,
    "save": lambda x: torch.save(x, io.BytesIO()),
    "pickle": lambda x: pickle.loads(pickle.dumps(x.detach())),
    "data_ptr": lambda x: x.data_ptr(),
    "to_dlpack": lambda x: from_dlpack(to_dlpack(x.detach())) * 2,
    "to_dlpack, returned": lambda x: from_dlpack(to_dlpack(x.detach())),
    "a capsule, returned": lambda x: to_dlpack(x.detach()),
    "from_dlpack": lambda x: from_dlpack(x.detach()) * 2,
    "apply_": lambda x: x.detach().clone().apply_(lambda v: v * 2),
    "map_": lambda x: x.detach().clone().map_(x.detach(), lambda v, w: v * w),
    "tolist": lambda x: x.tolist(),
    "a number in a text": lambda x: f"{x.sum():.2f}",
    "in": lambda x: x * 2 if 3.0 in x else x,
    "torch.tensor of numbers": lambda x: torch.tensor([x[0, 0], x[0, 1]]),
    "deepcopy": lambda x: copy.deepcopy(x.detach()) * x,
    "deepcopy of a leaf": lambda x: copy.deepcopy(x) * 2,
    "custom operator": lambda x: sine(x.detach()) * x,
    "custom operator, inductor": lambda x: sine(x.detach()) * x,
    "custom operator without a rule": lambda x: no_rule(x.detach()) * x,
    "numpy in forward": NumpyForward.apply,
    "numpy in backward": NumpyBackward.apply,
    "error in backward": RaisesBackward.apply,
    "error in a hook": hooked(raise_),
    "a number in a hook": hooked(lambda g: g * g.sum().item()),
    "numpy in a hook on saved tensors": packed(lambda t: t.numpy(), torch.from_numpy),
    "error in a hook that packs": packed(raise_, lambda t: t),
    "error in a hook that unpacks": packed(lambda t: t, raise_),
    "a thread": in_a_thread,
    "compiled": lambda x: half(x) + 1,
    "compiled, used before": lambda x: used_before()(x) + 1,
    "compiled, of a wrapper": lambda x: half_of_wrapper(x) + 1,
    "compiled module": lambda x: compiled_layer(x) + 1,
    "compiled inside": lambda x: torch.compile(lambda y: y * 2, backend="aot_eager")(x),
    "compiled function, compiled": torch.compile(lambda x: (x * 0.5).sin(), backend="eager"),
    "block mask": lambda x: x * create_block_mask(causal, 1, 1, 128, 128, device="cpu").kv_num_blocks.sum(),
    "block mask, compiled": lambda x: (
        x * create_block_mask(causal, 1, 1, 128, 128, device="cpu", _compile=True).kv_num_blocks.sum()
    ),
    "flex attention": lambda x: flex_attention(*[x.detach()[None, None]] * 3),
    "operators of torchscript": lambda x: x * len(torch.ops.aten.sym_size(x)) + (torch.ops.prim.layout(x) == 0),
}

ON_WRAPPERS = {"compiled, of a wrapper", "operators of torchscript"}


def outcome(name: str, function: Program) -> Any:
    torch.manual_seed(0)
    x: Any = torch.rand(3, 4)
    if name in ON_WRAPPERS:
        x = TwoTensor(x, torch.rand(3, 4))
    x.requires_grad_()
    result = function(x)
    if not isinstance(result, torch.Tensor):
        return str(result)
    if result.requires_grad:
        result.sum().backward()
    return [(part.a if isinstance(part, TwoTensor) else part).tolist() for part in (result.detach(), x.grad)
            if part is not None]  # fmt: skip


def run(name: str) -> dict[str, Any]:
    found: dict[str, Any] = {"name": name}
    if "before" in name:
        used_before()(torch.rand(3, 4))
    compiler = "inductor" if "inductor" in name else "eager"
    for who, function in ("eager", PROGRAMS[name]), ("compiled", aot_compile(PROGRAMS[name], fw_compiler=compiler)):
        try:
            found[who] = outcome(name, function)
        except Exception as error:
            found[who] = None
            found[f"{who} error"] = f"{type(error).__name__}: {error}"
    return found


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for program in sys.argv[1:] or list(PROGRAMS):
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            try:
                print(json.dumps(run(program)), flush=True)
            finally:
                os._exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            print(json.dumps({"name": program, "signal": os.waitstatus_to_exitcode(status)}), flush=True)
