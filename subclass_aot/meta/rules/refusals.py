"""What kernels refuse by the sizes of tensors, and torch's rules for shapes take.

Dtypes, dims and options are asked of the kernels: Note [Errors of kernels]. So is what is raised here, on the CPU:
these words are those of other devices.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from subclass_aot.base import _torch
from subclass_aot.base._torch.operators import Operator
from subclass_aot.meta.infer import checks
from subclass_aot.meta.symbols import Number

Tensor = torch.Tensor
_aten = torch.ops.aten


def _scattered(scatter: Operator, part: Operator) -> None:
    @checks(scatter)
    def _(self: Tensor, src: Tensor, *place: object, **named: object) -> None:
        given = part(self, *place, **named).shape
        _refuse(_differ(src.shape, given), f"src has the size {list(src.shape)}, and the slice of self {list(given)}")


_scattered(_aten.slice_scatter.default, _aten.slice.Tensor)
_scattered(_aten.select_scatter.default, _aten.select.int)
_scattered(_aten.diagonal_scatter.default, _aten.diagonal.default)


def _indexed(name: str, is_copied: bool = False) -> None:
    packet = getattr(_aten, name)

    @checks(packet.default, getattr(_aten, name + "_").default)
    def _(self: Tensor, dim: int, index: Tensor, source: Tensor, *options: object, **named: object) -> None:
        _refuse(index.dim() > 1, f"{name}(): index should be a vector, but has {index.dim()} dims", IndexError)
        if self.dim() == source.dim() != 0:
            dim = dim % self.dim() if -self.dim() <= dim < self.dim() else 0
            others = [*self.shape[:dim], *self.shape[dim + 1 :]], [*source.shape[:dim], *source.shape[dim + 1 :]]
            _refuse(_differ(*others), f"{name}(): self is {list(self.shape)}, source {list(source.shape)}")
            _refuse(_differ([index.numel()], [source.shape[dim]]),
                    f"{name}(): there are {index.numel()} indices, and {source.shape[dim]} of source")  # fmt: skip


_indexed("index_add")
_indexed("index_reduce")


@checks(_aten.index_put.default, _aten.index_put_.default, _aten._unsafe_index_put.default)
def _(self: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False) -> None:
    if all(i is None or i.dtype in (torch.int64, torch.int32) for i in indices):
        given = _aten.index.Tensor(self, indices).shape
        _refuse(not _expands(values.shape, given),
                f"values of {list(values.shape)} cannot be broadcast to what is indexed, {list(given)}")  # fmt: skip


@checks(_aten.put.default, _aten.put_.default)
def _(self: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> None:
    _refuse(_differ([source.numel()], [index.numel()]),
            f"put(): there are {index.numel()} indices, and {source.numel()} of source", IndexError)  # fmt: skip


@checks(_aten.addmm.default)
def _(self: Tensor, mat1: Tensor, mat2: Tensor, **options: object) -> None:
    given = [*mat1.shape[:1], *mat2.shape[1:]]
    _refuse(not _expands(self.shape, given), f"a tensor of the size {list(self.shape)} cannot be expanded to {given}")


@checks(_aten._softmax_backward_data.default, _aten._log_softmax_backward_data.default)
def _(grad_output: Tensor, output: Tensor, *options: object) -> None:
    _refuse(_differ(grad_output.shape, output.shape),
            f"a gradient of {list(grad_output.shape)}, of an output of {list(output.shape)}")  # fmt: skip


@checks(_aten.multinomial.default, _aten.multinomial.out)
def _(
    self: Tensor, num_samples: int, replacement: bool = False, *, generator: object = None, out: Tensor | None = None
) -> None:
    _refuse(not self.dtype.is_floating_point,
            f"multinomial only supports floating-point dtypes for input, got: {self.dtype}")  # fmt: skip
    _refuse(out is not None and out.dtype is not torch.int64, "multinomial expects Long tensor out")
    if self.dim() and _has_example(num_samples) and _has_example(self.shape[-1]):
        _refuse(num_samples <= 0, "cannot sample n_sample <= 0 samples")
        _refuse(not replacement and num_samples > self.shape[-1],
                "cannot sample n_sample > prob_dist.size(-1) samples without replacement")  # fmt: skip
        _refuse(self.shape[-1] > 2**24, "number of categories cannot exceed 2^24")


@checks(_aten.linalg_lstsq.default)
def _(self: Tensor, b: Tensor, *options: object, **named: object) -> None:
    _refuse(self.dim() < 2, "torch.linalg.lstsq: input must have at least 2 dimensions.")
    _refuse(b.dim() < 1, "torch.linalg.lstsq: other must have at least 1 dimension.")


@checks(_aten._histogramdd_bin_edges.default, _aten._histogramdd_from_bin_cts.default)
def _(self: Tensor, bins: Sequence[int], **options: object) -> None:
    _refuse(self.dim() > 0 and _differ([len(bins)], self.shape[-1:]),
            "histogramdd: The size of bins must be equal to the innermost dimension of the input.")  # fmt: skip
    _refuse(any(type(n) is int and n <= 0 for n in bins), f"torch.histogram(): bins must be > 0, but got {bins}")


@checks(_aten.histogram.bin_ct)
def _(self: Tensor, bins: int = 100, **options: object) -> None:
    _refuse(bins <= 0, f"torch.histogram(): bins must be > 0, but got {bins} for dimension 0")


def _refuse(whether: bool, text: str, kind: type[Exception] = RuntimeError) -> None:
    if whether:
        raise kind(text)


def _differ(a: Sequence[Number], b: Sequence[Number]) -> bool:
    """Returns whether sizes are others."""
    return len(a) != len(b) or any(_is_other(x, y) for x, y in zip(a, b, strict=True))


def _expands(a: Sequence[Number], b: Sequence[Number]) -> bool:
    """Returns whether a tensor of sizes `a` may be expanded to sizes `b`; one of values may have more dims of one
    place.
    """
    more = a[: max(len(a) - len(b), 0)]
    pairs = zip(reversed(a), reversed(b), strict=False)
    return not any(_is_other(x, 1) for x in more) and not any(_is_other(x, y) and _is_other(x, 1) for x, y in pairs)


def _is_other(a: Number, b: Number) -> bool:
    """Returns whether numbers differ in the example, which is assumed of the call then. That they are equal is not."""
    if type(a) is type(b) is int:
        return a != b
    example_of = _torch.symbolic.example_of
    return _has_example(a) and _has_example(b) and example_of(a) != example_of(b) and bool(a != b)


def _has_example(number: Number) -> bool:
    """Returns whether a number does not depend on data."""
    return type(number) is int or _torch.symbolic.has_example(number)
