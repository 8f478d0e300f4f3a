"""Right classes by hand, one by a table and one by a single dispatch, in which `planted.py` plants mistakes."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import return_and_correct_aliasing
from torch.utils._pytree import tree_map_only

aten: Any = torch.ops.aten


class Read(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Any) -> Any:
        return tensor.read()

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad


class Coded(torch.Tensor):
    """Codes of eight bits and a scale for each row, in a table of rules."""

    RULES: dict[Any, Any] = {}

    @staticmethod
    def __new__(cls, codes: Any, scale: Any, block: Any, outside: Any) -> Any:
        if scale.requires_grad or scale.is_neg() or scale.is_conj() or codes.is_neg():
            raise ValueError("parts must not require grad, nor have bits")
        return torch.Tensor._make_wrapper_subclass(
            cls, codes.shape, codes.stride(), codes.storage_offset(), dtype=outside, device=codes.device
        )

    def __init__(self, codes: Any, scale: Any, block: Any, outside: Any) -> Any:
        self.codes, self.scale, self.block, self.outside = codes, scale, block, outside

    def __tensor_flatten__(self) -> Any:
        return ["codes", "scale"], (self.block, self.outside)

    @classmethod
    def __tensor_unflatten__(cls, inner: Any, context: Any, size: Any, stride: Any) -> Any:
        return cls(inner["codes"], inner["scale"], *context)

    def read(self) -> Any:
        return self.codes.to(self.outside) * self.scale.to(self.outside)

    def to_plain(self) -> Any:
        return Read.apply(self)

    def __repr__(self, *, tensor_contents: Any = None) -> Any:
        return f"Coded({list(self.shape)})"

    def share_memory_(self) -> Any:
        raise NotImplementedError("no memory")

    @property
    def data(self) -> Any:
        return self.detach()

    @data.setter
    def data(self, other: Any) -> Any:
        self.codes, self.scale = other.codes, other.scale

    @classmethod
    def of(cls, values: Any, like: Any) -> Any:
        dims = [dim for dim in range(values.dim()) if like.scale.shape[dim] == 1 and values.shape[dim] > 0]
        scale = (values.abs().amax(dims, keepdim=True) if dims else values.abs()).clamp(min=1e-12) / 127
        codes = (values / scale).round().clamp(-127, 127).to(torch.int8)
        return cls(codes, scale.to(like.scale.dtype), like.block, like.outside)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if any(hasattr(other, "__tensor_flatten__") and not issubclass(other, Coded) for other in types):
            return NotImplemented
        if func in cls.RULES:
            return cls.RULES[func](cls, func, *args, **kwargs)
        if any(argument.alias_info is not None for argument in func._schema.arguments):
            raise NotImplementedError(f"{func}")
        args, kwargs = tree_map_only(Coded, Coded.read, (args, kwargs))
        return func(*args, **kwargs)


torch.serialization.add_safe_globals([Coded])


def implements(*ops: Any) -> Any:
    def register(rule: Any) -> Any:
        for op in ops:
            Coded.RULES[op] = rule
        return rule

    return register


@implements(aten.detach.default, aten.alias.default)
def coded_alias(cls, func: Any, x: Any) -> Any:
    out = cls(func(x.codes), func(x.scale), x.block, x.outside)
    return return_and_correct_aliasing(func, (x,), {}, out)


@implements(aten.clone.default)
def coded_clone(cls, func: Any, x: Any, memory_format: Any = None) -> Any:
    return cls(func(x.codes, memory_format=memory_format), func(x.scale), x.block, x.outside)


@implements(aten._to_copy.default)
def coded_to(
    cls,
    func: Any,
    x: Any,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: Any = None,
    non_blocking: Any = False,
    memory_format: Any = None,
) -> Any:
    codes = func(x.codes, device=device, memory_format=memory_format)
    return cls(codes, func(x.scale, device=device), x.block, dtype or x.outside)


@implements(aten.empty_like.default, aten.zeros_like.default)
def coded_like(
    cls,
    func: Any,
    x: Any,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: Any = None,
    memory_format: Any = None,
) -> Any:
    codes = func(x.codes, device=device, memory_format=memory_format)
    return cls(codes, torch.ones_like(x.scale, device=device), x.block, dtype or x.outside)


@implements(aten.copy_.default)
def coded_copy(cls, func: Any, x: Any, source: Any, non_blocking: Any = False) -> Any:
    if not isinstance(x, Coded):
        return func(x, source.read(), non_blocking)
    if isinstance(source, Coded) and source.codes.shape == x.codes.shape and source.scale.shape == x.scale.shape:
        new = source
    else:
        values = source.read() if isinstance(source, Coded) else source
        new = cls.of(values.to(x.outside).expand(x.shape), x)
    x.codes.copy_(new.codes)
    x.scale.copy_(new.scale)
    return x


@implements(aten.t.default)
def coded_t(cls, func: Any, x: Any) -> Any:
    out = cls(func(x.codes), func(x.scale), x.block[::-1], x.outside)
    return return_and_correct_aliasing(func, (x,), {}, out)


@implements(aten.slice.Tensor)
def coded_slice(cls, func: Any, x: Any, dim: Any = 0, start: Any = None, end: Any = None, step: Any = 1) -> Any:
    if x.scale.shape[dim] == 1:
        raise NotImplementedError("columns share a scale")
    out = cls(func(x.codes, dim, start, end, step), func(x.scale, dim, start, end, step), x.block, x.outside)
    return return_and_correct_aliasing(func, (x, dim, start, end, step), {}, out)


@implements(aten.mul_.Tensor)
def coded_mul_(cls, func: Any, x: Any, other: Any) -> Any:
    if isinstance(other, torch.Tensor) or not isinstance(x, Coded):
        raise NotImplementedError("mul_ of tensors")
    x.scale.mul_(other)
    return x


@implements(aten.mm.default)
def coded_mm(cls, func: Any, a: Any, b: Any) -> Any:
    if isinstance(b, Coded) and not isinstance(a, Coded) and b.scale.shape[0] == 1:
        return (a @ b.codes.to(a.dtype)) * b.scale.to(a.dtype)
    return func(*(each.read() if isinstance(each, Coded) else each for each in (a, b)))


@implements(aten.addmm.default)
def coded_addmm(cls, func: Any, bias: Any, a: Any, b: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    if isinstance(bias, Coded):
        bias = bias.read()
    return bias * beta + (a @ b) * alpha


@implements(aten.neg.default)
def coded_neg(cls, func: Any, x: Any) -> Any:
    return cls(-x.codes, x.scale.clone(), x.block, x.outside)


def m_coded(size: Any = (4, 6), dtype: Any = torch.float32) -> Any:
    codes = torch.randint(-127, 128, size, dtype=torch.int8)
    codes[:, 0] = 127
    return Coded(codes, torch.rand(size[0], 1) + 0.5, (1, 6), dtype)


class Low(torch.Tensor):
    """A base and two factors, in one dispatch."""

    @staticmethod
    def __new__(cls, base: Any, a: Any, b: Any, gain: Any = 1.0) -> Any:
        for part in (base, a, b):
            if part.requires_grad or part.is_neg() or part.is_conj():
                raise ValueError("parts must not require grad, nor have bits")
        return torch.Tensor._make_wrapper_subclass(
            cls, base.shape, base.stride(), base.storage_offset(), dtype=base.dtype, device=base.device
        )

    def __init__(self, base: Any, a: Any, b: Any, gain: Any = 1.0) -> Any:
        self.base_, self.a, self.b, self.gain = base, a, b, gain

    def __tensor_flatten__(self) -> Any:
        return ["base_", "a", "b"], (self.gain,)

    @classmethod
    def __tensor_unflatten__(cls, inner: Any, context: Any, size: Any, stride: Any) -> Any:
        return cls(inner["base_"], inner["a"], inner["b"], context[0])

    def read(self) -> Any:
        return self.base_ + (self.a @ self.b) * self.gain

    def to_plain(self) -> Any:
        return Read.apply(self)

    def __repr__(self, *, tensor_contents: Any = None) -> Any:
        return f"Low({list(self.shape)}, gain={self.gain})"

    def share_memory_(self) -> Any:
        raise NotImplementedError("no memory")

    @property
    def data(self) -> Any:
        return self.detach()

    @data.setter
    def data(self, other: Any) -> Any:
        self.base_, self.a, self.b = other.base_, other.a, other.b

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if any(hasattr(other, "__tensor_flatten__") and not issubclass(other, Low) for other in types):
            return NotImplemented
        x = args[0]
        if func in (
            aten.detach.default,
            aten.alias.default,
            aten.clone.default,
            aten._to_copy.default,
            aten.empty_like.default,
            aten.zeros_like.default,
        ):
            out = cls(
                func(x.base_, **kwargs),
                *(func(part, **{k: v for k, v in kwargs.items() if k != "memory_format"}) for part in (x.a, x.b)),
                x.gain,
            )
            return return_and_correct_aliasing(func, args, kwargs, out)
        if func is aten.t.default:
            out = cls(func(x.base_), func(x.b), func(x.a), x.gain)
            return return_and_correct_aliasing(func, args, kwargs, out)
        if func is aten.copy_.default and isinstance(x, cls):
            source = args[1].read() if isinstance(args[1], cls) else args[1]
            x.base_.copy_(source)
            x.a.zero_()
            x.b.zero_()
            return x
        if func is aten.copy_.default:
            return x.copy_(args[1].read())
        if func is aten.mul_.Tensor and not isinstance(args[1], torch.Tensor):
            x.base_.mul_(args[1])
            x.a.mul_(args[1])
            return x
        if func in (aten.mul.Tensor, aten.div.Tensor) and isinstance(x, cls) and not isinstance(args[1], torch.Tensor):
            return cls(func(x.base_, args[1]), func(x.a, args[1]), x.b.clone(), x.gain)
        if func is aten.mm.default and not isinstance(args[0], cls):
            w = args[1]
            return args[0] @ w.base_ + (args[0] @ w.a) @ w.b * w.gain
        if any(argument.alias_info is not None for argument in func._schema.arguments):
            raise NotImplementedError(f"{func}")
        args, kwargs = tree_map_only(Low, Low.read, (args, kwargs))
        return func(*args, **kwargs)


torch.serialization.add_safe_globals([Low])


def m_low(size: Any = (4, 6), dtype: Any = torch.float32, gain: Any = 0.5) -> Any:
    return Low(torch.randn(size).to(dtype), torch.randn(size[0], 2).to(dtype), torch.randn(2, size[1]).to(dtype), gain)
