"""Classes by hand with one mistake each: what it is, and the clauses that name it, say the docstrings."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tests.testing.contract.classes import Held, aten


class CutOff(Held):
    """What it means is computed of inner tensors, outside of autograd's sight.

    Clauses:
        32 reading
    """

    def to_plain(self) -> torch.Tensor:
        return self.held * 1


class NoGradient(Held):
    """`requires_grad_` does nothing.

    Clauses:
        35 requires_grad
    Also: 37
    """

    def requires_grad_(self, requires_grad: bool = True) -> Any:
        return self


class OneHook(Held):
    """It has one of the two hooks of FSDP2.

    Clauses:
        43 FSDP hooks
    """

    def fsdp_pre_all_gather(self, mesh: Any) -> Any:
        return (self.held,), None


class Cycle(Held):
    """It refers to itself.

    Clauses:
        45 no cycle
    Also: 37
    """

    def __init__(self, held: torch.Tensor, note: Any = "") -> None:
        super().__init__(held, note)
        self.me = self


class Unprintable(Held):
    """It cannot be printed.

    Clauses:
        44 repr
    Also: 5
    """

    def __repr__(self, *, tensor_contents: object = None) -> str:
        raise KeyError("no")


class OwnMemory(Held):
    """The outer tensor has the memory of the inner one.

    Clauses:
        1 storage
    Also: 4, 5, 44
    """

    def __new__(cls, held: torch.Tensor, note: Any = "") -> Any:
        return torch.Tensor._make_subclass(cls, held)


class Raising(Held):
    """It raises where a class is unknown to it.

    Clauses:
        20 a class it does not know
    """

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = super().__torch_dispatch__(func, types, args, kwargs)
        if out is NotImplemented:
            raise TypeError("unknown class")
        return out


class DropsClass(Held):
    """`detach` gives the inner tensor.

    Clauses:
        24 the class comes back
        22 x.detach()
    Also: 37, 38
    """

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is aten.detach.default:
            return args[0].held.detach()
        return super().__torch_dispatch__(func, types, args, kwargs)


class KeepsStrides(Held):
    """`clone` does not hear of the memory format that is asked for.

    Clauses:
        29 memory format
    """

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is aten.clone.default:
            return cls(args[0].held.clone(memory_format=torch.preserve_format))
        return super().__torch_dispatch__(func, types, args, kwargs)


class UnknownSeed(Held):
    """`rand_like` draws from a generator of its own.

    Clauses:
        26 random
    """

    generator = torch.Generator().manual_seed(5)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is aten.rand_like.default:
            return cls(torch.rand(args[0].shape, generator=UnknownSeed.generator))
        return super().__torch_dispatch__(func, types, args, kwargs)


class KeepsDtype(Held):
    """`to` forgets the dtype that is asked for.

    Clauses:
        38 Module.to(dtype)
        27 x.to(float64)
    Also: 5, 41
    """

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is aten._to_copy.default:
            return cls(args[0].held.clone())
        return super().__torch_dispatch__(func, types, args, kwargs)


class Marked(Held):
    """It has an attribute that is not in its context.

    Clauses:
        10 attributes
        39 Parameter
    """


def marked() -> Marked:
    tensor: Any = Marked(torch.randn(4, 6))
    tensor.mark = "a"
    return tensor  # type: ignore[no-any-return]


class SignOfNorm(Held):
    """Its norm is its sum.

    Clauses:
        27 drawn calls
        40 clip_grad_norm_
    """

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is aten.linalg_vector_norm.default:
            return args[0].held.sum()
        return super().__torch_dispatch__(func, types, args, kwargs)


class DenseViews(Held):
    """A view of one row is dense, and a copy.

    Clauses:
        22 x[0]
    Also: 23
    """

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is aten.select.int:
            return args[0].held.select(*args[1:]).clone()
        return super().__torch_dispatch__(func, types, args, kwargs)


class ShortSplit(Held):
    """`unbind` leaves the last one out.

    Clauses:
        22 x.unbind(0)
    """

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = super().__torch_dispatch__(func, types, args, kwargs)
        return out[:-1] if func is aten.unbind.int else out


class OtherObject(Held):
    """`mul_` gives another object, and leaves the tensor as it was.

    Clauses:
        23 x.mul_(2)
    Also: 27, 40
    """

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is aten.mul_.Tensor:
            return cls(args[0].held * args[1])
        return super().__torch_dispatch__(func, types, args, kwargs)


class ForgetsOut(Held):
    """What is given as `out` is returned as it was.

    Clauses:
        23 out=
    """

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if kwargs and "out" in kwargs:
            return kwargs["out"]
        return super().__torch_dispatch__(func, types, args, kwargs)


class HiddenFactor(Held):
    """Its factor is not in its context, so what is made of its inner tensors has another.

    Clauses:
        10 round trip
        33 aot_compile: a write
        33 torch.compile: a write
    Also: 0, 11, 22, 23, 24, 25, 26, 27, 32, 34, 36, 38, 40, 41, 42, 43
    """

    factor = 1.0

    def to_plain(self) -> torch.Tensor:
        return self.held * self.factor

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = super().__torch_dispatch__(func, types, args, kwargs)
        if isinstance(out, HiddenFactor):
            out.factor = args[0].factor
        return out


def hidden() -> HiddenFactor:
    tensor = HiddenFactor(torch.randn(4, 6))
    tensor.factor = 3.0
    return tensor


class Bits(Held):
    """It takes an inner tensor with the negative bit, which its operators do not see.

    Clauses:
        3 negative bit
    """

    def __new__(cls, held: torch.Tensor, note: Any = "") -> Any:
        return Held.__new__(cls, held.resolve_neg(), note)


class LosesGradient(Held):
    """It takes an inner tensor that requires grad, and does not require grad itself.

    Clauses:
        4 inner requires grad
    """

    def __new__(cls, held: torch.Tensor, note: Any = "") -> Any:
        return Held.__new__(cls, held.detach(), note)


class NotSafe(Held, safe=False):
    """`torch.load(weights_only=True)` does not know it.

    Clauses:
        37 torch.save
        37 torch.load(mmap=True)
        37 state_dict
    """


class IgnoresData(Held):
    """`x.data = y` is ignored.

    Clauses:
        38 data
    """

    data = torch.Tensor.data


TABLE = torch.tensor([1.0, 2.0])


class OwnTable(Held):
    """Its sum is multiplied by a table of the module, which no trace knows.

    Clauses:
        6 operands
    """

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = super().__torch_dispatch__(func, types, args, kwargs)
        return cls(out.held * TABLE[0]) if func is aten.sum.dim_IntList else out


class ByNumpy(Held):
    """It computes the softmax in numpy, where no trace looks.

    Clauses:
        21 results
    """

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is aten._softmax.default and args[0].device.type == "cpu":
            values = np.exp(np.asarray(args[0].held))
            return cls(torch.from_numpy(np.asarray(values / values.sum(args[1], keepdims=True))))
        return super().__torch_dispatch__(func, types, args, kwargs)


class ReadsValue(Held):
    """It reads a value, to save itself a sum.

    Clauses:
        21 no reads
    """

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is aten.mean.default and args[0].held.view(-1)[0].item() == 0:
            return cls(args[0].held.sum() / args[0].numel())
        return super().__torch_dispatch__(func, types, args, kwargs)


class NoZeros(Held):
    """Autograd cannot make zeros of it for a gradient that does not come.

    Clauses:
        28 unused input
    """

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (aten.new_zeros.default, aten.zeros_like.default, aten.zeros.default):
            raise NotImplementedError("no zeros")
        return super().__torch_dispatch__(func, types, args, kwargs)


class ShareMemory(Held):
    """`share_memory_` ends the process.

    Clauses:
        44 share_memory_ in a child process
    """

    share_memory_ = torch.Tensor.share_memory_


class LosesAttribute(Held):
    """A slice has not the attribute that an instance has.

    Clauses:
        10 attributes
    """

    def __init__(self, held: torch.Tensor, note: Any = "", scale: float | None = 1.0) -> None:
        super().__init__(held, note)
        if scale is not None:
            self.scale = scale

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = super().__torch_dispatch__(func, types, args, kwargs)
        if func is aten.slice.Tensor:
            del out.scale
        return out


class StepsByOne(Held):
    """A slice forgets its step.

    Clauses:
        22 x[::2]
        22 x[1::2]
        22 x[..., ::2]
    """

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return super().__torch_dispatch__(func, types, args[:4] if func is aten.slice.Tensor else args, kwargs)


class NewInInference(Held):
    """In inference mode a write gives another object.

    Clauses:
        23 x.mul_(2) in inference mode
    """

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = super().__torch_dispatch__(func, types, args, kwargs)
        return cls(out.held) if func is aten.mul_.Tensor and torch.is_inference_mode_enabled() else out


class LinearWithoutBias(Held):
    """In inference mode linear forgets the bias.

    Clauses:
        25 linear with bias in inference mode
    Also: 27
    """

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return super().__torch_dispatch__(func, types, args[:2] if func is aten.linear.default else args, kwargs)


class CutsOthers(Held):
    """A product by `__torch_function__` runs without autograd.

    Clauses:
        32 other operand of linear
        32 gradient of linear
    Also: 32
    """

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            if func is torch.nn.functional.linear:
                with torch.no_grad():
                    return func(*args, **(kwargs or {}))
            return func(*args, **(kwargs or {}))


class Slips(Held):
    """Its own code fails where it should do something, or refuse it.

    Clauses:
        27 x.sum(0)
    Also: 27
    """

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is aten.sum.dim_IntList:
            return cls.missing(args[0])  # type: ignore[attr-defined]
        return super().__torch_dispatch__(func, types, args, kwargs)
