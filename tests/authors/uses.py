"""What people do with a tensor every day: 63 uses, each a function of `make`, which gives a new tensor every time."""

from __future__ import annotations

import copy
import io
import pickle
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import nn

import subclass_aot as sa

Make = Callable[[], Any]
USES: dict[str, Callable[[Make], Any]] = {}


def use(name: str) -> Callable[[Callable[[Make], Any]], Callable[[Make], Any]]:
    """Adds a use, by a name."""

    def add(function: Callable[[Make], Any]) -> Callable[[Make], Any]:
        USES[name] = function
        return function

    return add


def dense(tensor: Any) -> torch.Tensor:
    """What a tensor means; of a class that does not say it, its first field."""
    if not isinstance(tensor, sa.WrapperTensor):
        return tensor
    return tensor.to_plain() if hasattr(tensor, "to_plain") else getattr(tensor, tensor.__tensor_flatten__()[0][0])


def assert_same(actual: Any, expected: Any) -> None:
    """Class, context, sizes, dtypes and inner tensors are the same."""
    assert type(actual) is type(expected)
    assert (actual.shape, actual.dtype, actual.device) == (expected.shape, expected.dtype, expected.device)
    if not isinstance(expected, sa.WrapperTensor):
        return torch.testing.assert_close(actual.detach(), expected.detach(), rtol=0, atol=0)
    names, context = expected.__tensor_flatten__()
    assert actual.__tensor_flatten__() == (names, context)
    for name in names:
        assert_same(getattr(actual, name), getattr(expected, name))


def assert_means(actual: Any, expected: torch.Tensor) -> None:
    """A wrapper, or a dense tensor, has these values."""
    torch.testing.assert_close(dense(actual.detach()).detach(), expected, rtol=1e-4, atol=1e-4)


def module(make: Make) -> Any:
    holder = nn.Module()
    holder.w = nn.Parameter(make(), requires_grad=False)
    return holder


def file(tensor: Any) -> io.BytesIO:
    file = io.BytesIO()
    torch.save(tensor, file)
    file.seek(0)
    return file


def means_the_same(function: Callable[[Any], Any]) -> Callable[[Make], None]:
    """A use that does to what the tensor means what it does to a dense tensor."""

    def check(make: Make) -> None:
        actual, expected = function(make()), function(dense(make()))
        if not isinstance(expected, list | tuple):
            actual, expected = [actual], [expected]
        assert len(actual) == len(expected)
        for one, other in zip(actual, expected, strict=True):
            assert one.shape == other.shape
            assert_means(one, other)

    return check


for name, function in {
    "detach": lambda t: t.detach(),
    "clone": lambda t: t.clone(),
    "contiguous": lambda t: t.contiguous(),
    "zeros_like": torch.zeros_like,
    "new_zeros": lambda t: t.new_zeros(3),
    "index [0]": lambda t: t[0],
    "index [:1]": lambda t: t[:1],
    "index [..., None]": lambda t: t[..., None],
    "index tensor": lambda t: t[torch.tensor([0, 0])],
    "iter": list,
    "default_collate": lambda t: torch.utils.data.default_collate([t, t]),
    "torch.stack": lambda t: torch.stack([t, t]),
    "torch.cat": lambda t: torch.cat([t, t]),
    "vmap": torch.vmap(lambda row: row * 2),
    "inference_mode *2": torch.inference_mode()(lambda t: t * 2),
    "view(-1)": lambda t: t.view(-1),
    "reshape": lambda t: t.reshape(-1),
    "t/mT": lambda t: t.mT,
    "split": lambda t: t.split(1),
    "chunk": lambda t: t.chunk(2),
    "as_strided": lambda t: t.as_strided(t.size(), t.stride()),
    "abs().max()": lambda t: t.abs().max(),
    "tensor attr .data": lambda t: t.data,
}.items():
    use(name)(means_the_same(function))

for name, function in {
    "empty_like": torch.empty_like,
    "ones_like": torch.ones_like,
    "rand_like": torch.rand_like,
}.items():

    @use(name)
    def _(make: Make, function: Callable[[Any], Any] = function) -> None:
        made = function(make())
        assert (made.shape, made.dtype) == (make().shape, make().dtype)


@use("repr")
def _(make: Make) -> None:
    assert repr(make()).startswith(type(make()).__name__)


@use("str of meta")
def _(make: Make) -> None:
    assert str(make().to("meta")).startswith(type(make()).__name__)


for name, function in {
    "deepcopy": copy.deepcopy,
    "copy.copy": copy.copy,
    "pickle": lambda t: pickle.loads(pickle.dumps(t)),
    "torch.load weights_only": lambda t: torch.load(file(t), weights_only=True),
}.items():

    @use(name)
    def _(make: Make, function: Callable[[Any], Any] = function) -> None:
        assert_same(function(make()), make())


@use("torch.load mmap")
def _(make: Make) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "tensor.pt")
        torch.save(make(), path)
        assert_same(torch.load(path, mmap=True, weights_only=True), make())


@use("to meta")
def _(make: Make) -> None:
    assert type(make().to("meta")) is type(make()) and make().to("meta").device.type == "meta"


@use("to bfloat16")
def _(make: Make) -> None:
    dtype = torch.complex32 if make().is_complex() else torch.bfloat16
    made = make().to(dtype)
    assert type(made) is type(make()) and made.dtype == dtype
    torch.testing.assert_close(dense(made).to(make().dtype), dense(make()), rtol=0.05, atol=0.1)


@use("to float64")
def _(make: Make) -> None:
    made = make().to(torch.complex128 if make().is_complex() else torch.float64)
    assert type(made) is type(make())
    assert_means(made, dense(make()).to(made.dtype))


@use("copy_ same")
def _(make: Make) -> None:
    assert_same(make().copy_(make()), make())


@use("copy_ from dense")
def _(make: Make) -> None:
    t = make()
    assert t.copy_(dense(make())) is t
    torch.testing.assert_close(dense(t), dense(make()), rtol=0.05, atol=0.05)


@use("zero_")
def _(make: Make) -> None:
    t = make()
    assert t.zero_() is t and not dense(t).any()


@use("pin_memory")
def _(make: Make) -> None:
    make().pin_memory()


@use("is_shared")
def _(make: Make) -> None:
    assert make().is_shared() is False


@use("Parameter")
def _(make: Make) -> None:
    assert_same(nn.Parameter(make()).detach(), make())


@use("Parameter is Parameter")
def _(make: Make) -> None:
    parameter = nn.Parameter(make(), requires_grad=False)
    assert isinstance(parameter, nn.Parameter) and isinstance(parameter, type(make()))


@use("Module.to(bf16)")
def _(make: Make) -> None:
    dtype = torch.complex32 if make().is_complex() else torch.bfloat16
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch, that modules of complex numbers are new
        w = module(make).to(dtype).w
    assert type(w) is type(make()) and w.dtype == dtype


@use("Module.to(meta)")
def _(make: Make) -> None:
    assert module(make).to("meta").w.device.type == "meta"


@use("Module.to_empty")
def _(make: Make) -> None:
    w = module(make).to("meta").to_empty(device="cpu").w
    assert type(w) is type(make()) and (w.device.type, w.shape) == ("cpu", make().shape)


@use("state_dict load")
def _(make: Make) -> None:
    holder = module(make)
    holder.load_state_dict(module(make).state_dict())
    assert_same(holder.w.detach(), make())


@use("state_dict load assign")
def _(make: Make) -> None:
    holder = module(make)
    holder.load_state_dict(module(make).state_dict(), assign=True)
    assert_same(holder.w.detach(), make())


@use("load dense into wrapper")
def _(make: Make) -> None:
    holder = module(make)
    holder.load_state_dict({"w": dense(make())})
    assert type(holder.w) is type(make())


@use("swap_tensors")
def _(make: Make) -> None:
    one, other = make(), make()
    torch.utils.swap_tensors(one, other)
    assert_same(one, make())


@use("__setitem__")
def _(make: Make) -> None:
    t = make()
    t[0] = 0.0
    rest = dense(make()).clone()
    rest[0] = 0.0
    torch.testing.assert_close(dense(t), rest, rtol=0.05, atol=0.05)


@use("==")
def _(make: Make) -> None:
    same = make() == make()
    assert same.dtype == torch.bool and same.all()


@use("torch.equal")
def _(make: Make) -> None:
    assert torch.equal(make(), make())


@use("hash")
def _(make: Make) -> None:
    t = make()
    assert {t: 1}[t] == 1


@use("numpy")
def _(make: Make) -> None:
    make().numpy()


@use("tolist")
def _(make: Make) -> None:
    make().tolist()


@use("assert_close")
def _(make: Make) -> None:
    torch.testing.assert_close(make(), make())


@use("func.grad")
def _(make: Make) -> None:
    def square(t: Any) -> Any:
        return (t * t).sum().abs()

    assert_means(torch.func.grad(square)(make()), torch.func.grad(square)(dense(make())))


@use("functional_call")
def _(make: Make) -> None:
    class Doubled(nn.Module):
        def forward(self) -> Any:
            return self.w * 2

    layer = Doubled()
    layer.w = nn.Parameter(torch.zeros(()))
    assert_means(torch.func.functional_call(layer, {"w": make()}, ()), dense(make()) * 2)


@use("torch.compile *2")
def _(make: Make) -> None:
    torch.compiler.reset()
    assert_means(torch.compile(lambda t: t * 2, backend="aot_eager", fullgraph=True)(make()), dense(make()) * 2)


@use("item of sum")
def _(make: Make) -> None:
    torch.testing.assert_close(make().sum().item(), dense(make()).sum().item(), rtol=1e-4, atol=1e-4)


@use("torch.save Parameter")
def _(make: Make) -> None:
    assert_same(torch.load(file(nn.Parameter(make(), requires_grad=False))).detach(), make())


@use("safetensors save")
def _(make: Make) -> None:
    tensors, metadata = sa.files.unwrap_state_dict({"w": make()})
    back = sa.files.wrap_state_dict(safetensors.torch.load(safetensors.torch.save(tensors)), metadata)
    assert_same(back["w"], make())
