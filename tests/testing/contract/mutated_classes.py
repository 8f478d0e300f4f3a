"""Six right classes, declared and by hand, that `mutants.py` breaks in all ways it knows."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import return_and_correct_aliasing

from subclass_aot import Outer, WrapperTensor

aten: Any = torch.ops.aten


class Grouped(WrapperTensor, views="blocks"):
    """Declared: eight bits with a scale and a zero point for each group of columns, whose length is context."""

    codes: torch.Tensor  # int8[M, N]
    scale: torch.Tensor  # float[M, N / group]
    zero: torch.Tensor  # float[M, N / group]
    group: int = 4

    def outer_metadata(self) -> Outer:
        return Outer.like(self.codes, dtype=self.scale.dtype)

    def spread(self, part: torch.Tensor) -> torch.Tensor:
        return part.repeat_interleave(self.group, dim=-1)

    def to_plain(self) -> torch.Tensor:
        return self.codes.to(self.scale.dtype) * self.spread(self.scale) + self.spread(self.zero)

    def from_plain(self, plain: torch.Tensor) -> Any:
        groups = plain.unflatten(-1, (-1, self.group))
        low, high = groups.amin(-1), groups.amax(-1)
        scale = ((high - low) / 254).clamp(min=1e-12)
        zero = (high + low) / 2
        codes = ((plain - self.spread(zero)) / self.spread(scale)).round().clamp(-127, 127)
        return Grouped(codes.to(torch.int8), scale, zero, self.group)


@Grouped.implements(aten.mul.Tensor)
def grouped_mul(a: Any, b: Any) -> Any:
    if isinstance(b, torch.Tensor) or not isinstance(a, Grouped):
        return NotImplemented
    return Grouped(a.codes.clone(), a.scale * b, a.zero * b, a.group)


@Grouped.implements(aten.neg.default)
def grouped_neg(a: Any) -> Any:
    return Grouped(-a.codes, a.scale.clone(), -a.zero, a.group)


class Product(WrapperTensor):
    """Declared: the product of a tall and a wide matrix, times a number that is context."""

    tall: torch.Tensor  # float[M, R]
    wide: torch.Tensor  # float[R, N]
    factor: float = 0.5

    def outer_metadata(self) -> Outer:
        rows, columns = self.tall.shape[0], self.wide.shape[1]
        stride = (1, rows) if self.tall.stride(0) == 1 < self.tall.stride(1) else (columns, 1)
        return Outer((rows, columns), stride, dtype=self.tall.dtype, device=self.tall.device)

    def to_plain(self) -> torch.Tensor:
        return self.tall @ self.wide * self.factor


@Product.implements(aten.t.default, aten.transpose.int)
def product_t(x: Any, dim0: int = 0, dim1: int = 1) -> Any:
    if dim0 % 2 == dim1 % 2:
        return x.detach()
    return Product(x.wide.t(), x.tall.t(), x.factor)


@Product.implements(aten.mm.default)
def product_mm(a: Any, b: Any) -> Any:
    if isinstance(a, Product):
        right = b.to_plain() if isinstance(b, Product) else b
        return a.tall @ (a.wide @ right) * a.factor
    return (a @ b.tall) @ b.wide * b.factor


@Product.implements(aten.addmm.default)
def product_addmm(bias: Any, a: Any, b: Any, *, beta: float = 1, alpha: float = 1) -> Any:
    if isinstance(bias, Product):
        return NotImplemented
    return bias * beta + product_mm(a, b) * alpha


class Masked(WrapperTensor, views="broadcast"):
    """Declared: values, and whether each counts; those that do not are zero."""

    values: torch.Tensor
    counts: torch.Tensor  # bool

    def outer_metadata(self) -> Outer:
        return Outer.like(self.values)

    def to_plain(self) -> torch.Tensor:
        return torch.where(self.counts, self.values, torch.zeros_like(self.values))

    def from_plain(self, plain: torch.Tensor) -> Any:
        return Masked(plain.clone(), plain != 0)


@Masked.implements(aten.sum.dim_IntList)
def masked_sum(x: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    return torch.where(x.counts, x.values, x.values.new_zeros(())).sum(dim, keepdim, dtype=dtype)


@Masked.implements(aten.abs.default)
def masked_abs(x: Any) -> Any:
    return Masked(x.values.abs(), x.counts.clone())


class Read(torch.autograd.Function):
    """What a tensor by hand means, with a gradient."""

    @staticmethod
    def forward(ctx: Any, tensor: Any) -> torch.Tensor:
        return tensor.read()  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad


class Sum(torch.Tensor):
    """By hand: the sum of two tensors, in a note's words; operators that are linear work on each."""

    @staticmethod
    def __new__(cls, one: torch.Tensor, two: torch.Tensor, note: str = "") -> Any:
        if one.requires_grad or two.requires_grad or one.is_neg() or one.is_conj() or two.is_neg() or two.is_conj():
            raise ValueError("parts must not require grad, nor have the negative or conjugate bit")
        return torch.Tensor._make_wrapper_subclass(
            cls, one.shape, one.stride(), one.storage_offset(), dtype=one.dtype, device=one.device
        )

    def __init__(self, one: torch.Tensor, two: torch.Tensor, note: str = "") -> None:
        self.one, self.two, self.note = one, two, note

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        return ["one", "two"], (self.note,)

    @classmethod
    def __tensor_unflatten__(cls, inner: dict[str, Any], context: Any, size: Any, stride: Any) -> Any:
        return cls(inner["one"], inner["two"], context[0])

    def read(self) -> torch.Tensor:
        return self.one + self.two

    def to_plain(self) -> torch.Tensor:
        return Read.apply(self)  # type: ignore[no-any-return, no-untyped-call]

    def __repr__(self, *, tensor_contents: object = None) -> str:
        return f"Sum({list(self.shape)}, note={self.note!r})"

    def share_memory_(self) -> Any:
        raise NotImplementedError("it has no memory of its own")

    @property
    def data(self) -> Any:
        return self.detach()

    @data.setter
    def data(self, other: Any) -> None:
        self.one, self.two = other.one, other.two

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(hasattr(other, "__tensor_flatten__") and not issubclass(other, Sum) for other in types):
            return NotImplemented
        kwargs = kwargs or {}
        if func in EACH:
            out = cls(func(args[0].one, *args[1:], **kwargs), func(args[0].two, *args[1:], **kwargs), args[0].note)
            return return_and_correct_aliasing(func, args, kwargs, out)
        if func in LISTS:
            parts = zip(func(args[0].one, *args[1:], **kwargs), func(args[0].two, *args[1:], **kwargs), strict=True)
            return return_and_correct_aliasing(func, args, kwargs, [cls(one, two, args[0].note) for one, two in parts])
        if func in SCALED and not isinstance(args[1], torch.Tensor):
            out = cls(func(args[0].one, args[1]), func(args[0].two, args[1]), args[0].note)
            return return_and_correct_aliasing(func, args, kwargs, out)
        if func is aten.copy_.default and isinstance(args[0], Sum):
            target, source = args[:2]
            target.one.copy_(plain(source))
            target.two.zero_()
            return target
        if func is aten.zero_.default and isinstance(args[0], Sum):
            args[0].one.zero_()
            args[0].two.zero_()
            return args[0]
        if func in WRITES and isinstance(args[0], Sum):
            values = func(plain(args[0]).clone(), *map(plain, args[1:]), **kwargs)
            args[0].one.copy_(values)
            args[0].two.zero_()
            return args[0]
        if func.namespace == "c10d" or any(argument.alias_info is not None for argument in func._schema.arguments):
            raise NotImplementedError(f"{func} would write, or give a view")
        return func(*map(plain, args), **{name: plain(value) for name, value in kwargs.items()})

    __torch_function__ = torch._C._disabled_torch_function_impl


EACH = {
    aten.detach.default, aten.alias.default, aten.clone.default, aten._to_copy.default, aten.zeros_like.default,
    aten.empty_like.default, aten.new_zeros.default, aten.t.default, aten.transpose.int, aten.slice.Tensor,
    aten.select.int, aten.view.default, aten.unsqueeze.default, aten.squeeze.dim, aten.expand.default,
    aten.as_strided.default, aten._unsafe_view.default,
}  # fmt: skip
LISTS = {aten.split.Tensor, aten.unbind.int}
SCALED = {aten.mul.Tensor, aten.div.Tensor}
WRITES = {aten.mul_.Tensor, aten.add_.Tensor, aten.fill_.Scalar, aten.addcdiv_.default, aten.lerp_.Scalar}


def plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value.read() if isinstance(value, Sum) else value


class Coded(torch.Tensor):
    """By hand, with a table of rules, as torchao's classes are: codes and a scale for each row."""

    RULES: dict[Any, Any] = {}

    @staticmethod
    def __new__(cls, codes: torch.Tensor, scale: torch.Tensor) -> Any:
        if scale.requires_grad or scale.is_neg() or scale.is_conj():
            raise ValueError("scale must not require grad, nor have the negative or conjugate bit")
        return torch.Tensor._make_wrapper_subclass(
            cls, codes.shape, codes.stride(), codes.storage_offset(), dtype=scale.dtype, device=codes.device
        )

    def __init__(self, codes: torch.Tensor, scale: torch.Tensor) -> None:
        self.codes, self.scale = codes, scale

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        return ["codes", "scale"], ()

    @classmethod
    def __tensor_unflatten__(cls, inner: dict[str, Any], context: Any, size: Any, stride: Any) -> Any:
        return cls(inner["codes"], inner["scale"])

    def read(self) -> torch.Tensor:
        return self.codes.to(self.scale.dtype) * self.scale

    def dequantize(self) -> torch.Tensor:
        return Read.apply(self)  # type: ignore[no-any-return, no-untyped-call]

    @classmethod
    def quantize(cls, values: torch.Tensor, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
        scale = values.abs().amax(dim, keepdim=True).clamp(min=1e-12) / 127
        return (values / scale).round().clamp(-127, 127).to(torch.int8), scale

    def __repr__(self, *, tensor_contents: object = None) -> str:
        return f"Coded({list(self.shape)})"

    def share_memory_(self) -> Any:
        raise NotImplementedError("it has no memory of its own")

    @property
    def data(self) -> Any:
        return self.detach()

    @data.setter
    def data(self, other: Any) -> None:
        self.codes, self.scale = other.codes, other.scale

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(hasattr(other, "__tensor_flatten__") and not issubclass(other, Coded) for other in types):
            return NotImplemented
        kwargs = kwargs or {}
        if func in cls.RULES:
            return return_and_correct_aliasing(func, args, kwargs, cls.RULES[func](func, *args, **kwargs))
        if any(argument.alias_info is not None for argument in func._schema.arguments):
            raise NotImplementedError(f"{func} would write, or give a view")
        return func(*map(dense, args), **{name: dense(value) for name, value in kwargs.items()})

    __torch_function__ = torch._C._disabled_torch_function_impl


def dense(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [dense(each) for each in value]
    return value.read() if isinstance(value, Coded) else value


def rule(*operators: Any) -> Any:
    def register(function: Any) -> Any:
        Coded.RULES.update(dict.fromkeys(operators, function))
        return function

    return register


@rule(aten.detach.default, aten.alias.default)
def coded_alias(func: Any, x: Any) -> Any:
    return Coded(func(x.codes), func(x.scale))


@rule(aten.clone.default)
def coded_clone(func: Any, x: Any, memory_format: Any = None) -> Any:
    return Coded(func(x.codes, memory_format=memory_format), func(x.scale))


@rule(aten._to_copy.default)
def coded_to(func: Any, x: Any, dtype: Any = None, device: Any = None, **others: Any) -> Any:
    codes = x.codes.to(device=device, copy=True)
    return Coded(codes, x.scale.to(dtype=dtype or x.scale.dtype, device=device, copy=True))


@rule(aten.empty_like.default, aten.zeros_like.default)
def coded_like(func: Any, x: Any, **options: Any) -> Any:
    return Coded(torch.zeros_like(x.codes), torch.ones_like(x.scale))


@rule(aten.t.default)
def coded_t(func: Any, x: Any) -> Any:
    return Coded(x.codes.t(), x.scale.t())


@rule(aten.slice.Tensor)
def coded_slice(func: Any, x: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    scale = x.scale if x.scale.shape[dim] == 1 else func(x.scale, dim, start, end, step)
    if scale is x.scale:
        scale = scale.detach()
    return Coded(func(x.codes, dim, start, end, step), scale)


@rule(aten.copy_.default)
def coded_copy(func: Any, x: Any, source: Any, non_blocking: bool = False) -> Any:
    if not isinstance(x, Coded):
        return x.copy_(source.read())
    dim = 1 if x.scale.shape[1] == 1 else 0
    codes, scale = Coded.quantize(dense(source).to(x.scale.dtype).expand(x.shape), dim)
    x.codes.copy_(codes)
    x.scale.copy_(scale)
    return x


@rule(aten.mm.default)
def coded_mm(func: Any, a: Any, b: Any) -> Any:
    if isinstance(b, Coded) and b.scale.shape[0] == 1:
        return (dense(a) @ b.codes.to(b.scale.dtype)) * b.scale
    return dense(a) @ dense(b)


@rule(aten.mul.Tensor)
def coded_mul(func: Any, a: Any, b: Any) -> Any:
    if isinstance(b, torch.Tensor) or not isinstance(a, Coded):
        return func(dense(a), dense(b))
    return Coded(a.codes.clone(), a.scale * b)


class Halves(torch.Tensor):
    """By hand: a high and a low part of half the precision each, and the dtype outside as context."""

    @staticmethod
    def __new__(cls, high: torch.Tensor, low: torch.Tensor, dtype: torch.dtype) -> Any:
        for part in (high, low):
            if part.requires_grad or part.is_neg() or part.is_conj():
                raise ValueError("parts must not require grad, nor have the negative or conjugate bit")
        return torch.Tensor._make_wrapper_subclass(
            cls, high.shape, high.stride(), high.storage_offset(), dtype=dtype, device=high.device
        )

    def __init__(self, high: torch.Tensor, low: torch.Tensor, dtype: torch.dtype) -> None:
        self.high, self.low, self.outside = high, low, dtype

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        return ["high", "low"], self.outside

    @classmethod
    def __tensor_unflatten__(cls, inner: dict[str, Any], context: Any, size: Any, stride: Any) -> Any:
        return cls(inner["high"], inner["low"], context)

    def read(self) -> torch.Tensor:
        return self.high.to(self.outside) + self.low.to(self.outside)

    def to_plain(self) -> torch.Tensor:
        return Read.apply(self)  # type: ignore[no-any-return, no-untyped-call]

    @classmethod
    def of(cls, values: torch.Tensor) -> Any:
        high = values.to(torch.bfloat16)
        return cls(high, (values - high.to(values.dtype)).to(torch.bfloat16), values.dtype)

    def __repr__(self, *, tensor_contents: object = None) -> str:
        return f"Halves({list(self.shape)})"

    def share_memory_(self) -> Any:
        raise NotImplementedError("it has no memory of its own")

    @property
    def data(self) -> Any:
        return self.detach()

    @data.setter
    def data(self, other: Any) -> None:
        self.high, self.low = other.high, other.low

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(hasattr(other, "__tensor_flatten__") and not issubclass(other, Halves) for other in types):
            return NotImplemented
        kwargs = kwargs or {}
        if func in PARTS:
            x = args[0]
            out = cls(func(x.high, *args[1:], **kwargs), func(x.low, *args[1:], **kwargs), x.dtype)
            return return_and_correct_aliasing(func, args, kwargs, out)
        if func is aten._to_copy.default:
            values = args[0].read().to(kwargs.get("dtype") or args[0].dtype)
            return cls.of(values.to(kwargs.get("device") or args[0].device))
        values = func(*map(joined, args), **{name: joined(value) for name, value in kwargs.items()})
        if func._schema.is_mutable:
            known = func.__name__.split(".")[0][-1] == "_" and isinstance(args[0], Halves)
            if not known or values.shape != args[0].shape:
                raise NotImplementedError(f"{func} writes in a way that is not known")
            written = cls.of(values)
            args[0].high.copy_(written.high)
            args[0].low.copy_(written.low)
            return args[0]
        if any(result.alias_info is not None for result in func._schema.returns):
            raise NotImplementedError(f"{func} would give a view")
        return cls.of(values) if func in KEPT else values

    __torch_function__ = torch._C._disabled_torch_function_impl


PARTS = {
    aten.detach.default, aten.alias.default, aten.clone.default, aten.t.default, aten.transpose.int, aten.slice.Tensor,
    aten.select.int, aten.view.default, aten.unsqueeze.default, aten.squeeze.dim, aten.expand.default,
}  # fmt: skip
KEPT = {aten.mul.Tensor, aten.neg.default, aten.zeros_like.default, aten.empty_like.default, aten.new_zeros.default}


def joined(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [joined(each) for each in value]
    return value.read() if isinstance(value, Halves) else value


for each in (Sum, Coded, Halves):
    torch.serialization.add_safe_globals([each])


def make_grouped() -> Any:
    codes = torch.randint(-127, 128, (6, 8), dtype=torch.int8)
    return Grouped(codes, torch.rand(6, 4) / 100 + 0.01, torch.randn(6, 4) / 10, 2)


def make_product(factor: float = 0.75) -> Any:
    return Product(torch.randn(4, 2), torch.randn(2, 6), factor)


def make_masked() -> Any:
    values = torch.randn(4, 6)
    return Masked(values, values > -0.5)


def make_sum() -> Any:
    return Sum(torch.randn(4, 6), torch.randn(4, 6), "a")


def make_coded() -> Any:
    return Coded(torch.randint(-127, 128, (4, 6), dtype=torch.int8), torch.rand(4, 1) / 100 + 0.01)


def make_halves() -> Any:
    high = torch.randn(4, 6).bfloat16()
    return Halves(high, high / 512 * torch.rand(4, 6).bfloat16(), torch.float32)
