"""Errors that only kernels raise: torch's rules for shapes do not check all that a kernel checks.

Note [Errors of kernels]
~~~~~~~~~~~~~~~~~~~~~~~~
A program that catches an error catches what eager mode raises, at the line of the operator. So on the CPU, whose
kernels are always there, the kernel itself is asked, in two places:

- *Before a rule*, with tensors of one element and as many dims. A kernel checks dtypes, dims and options before all
  else, and what it says of one element it says of many. How sizes fit, `rules/refusals.py` checks; of an expanded
  `out=` the second way is taken.
- *Where a rule raises*, with tensors of the sizes of the call. What the kernel raises is raised: a rule in Python fails
  by an `AssertionError`, or divides by zero, where a kernel has a `RuntimeError`.

Operators that draw are given a generator of their own, and are not asked if they take none. Of other devices nobody can
be asked where they are not there, and their kernels take other dtypes. Errors that values decide no trace knows.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from numbers import Number
from typing import Any

import optree
import torch

from subclass_aot.base import _torch
from subclass_aot.base._stack import pass_on_interruption
from subclass_aot.base._torch.operators import Operator, OperatorPacket
from subclass_aot.base.operators import effects_of, without_out
from subclass_aot.errors import SubclassAotError
from subclass_aot.meta.rules.elementwise import is_iterated
from subclass_aot.meta.spec import Spec

Tensor = torch.Tensor
_aten = torch.ops.aten


def is_checked(func: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:  # noqa: C901  # one frame
    """Returns whether a kernel may refuse what its rule takes: not plain tensors of one precision, which most take.

    Args:
        func: The operator.
        args: Its arguments, every tensor replaced by its `Spec`.
        kwargs: Its named arguments, likewise.
    """
    found = _asked.get(id(func))
    if found is None:
        found = _asked[id(func)] = _read(func)
        _held.append(func)  # so that its `id` stays its own
    if found is not _ASKED:
        return found is _ALWAYS_ASKED
    dtype = None
    for x in (*args, *kwargs.values()) if kwargs else args:
        for spec in x if type(x) is list or type(x) is tuple else (x,):
            if type(spec) is Spec:
                if dtype is None and spec.dtype in _PLAIN:
                    dtype = spec.dtype
                if spec.dtype is not dtype:
                    return True
                for n in spec.size:
                    if type(n) is int and n == 0:
                        return True
            elif type(spec) is complex:
                return True
    return False


def check_by_kernel(func: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Checks dtypes, dims and options as the kernel for the CPU does.

    Args:
        func: The operator.
        args: Its arguments; tensors are on meta.
        kwargs: Its named arguments, likewise.

    Raises:
        Exception: What the kernel raises.
    """
    tensors = list(_tensors((*args, *kwargs.values())))
    if effects_of(func).writes and any(map(_is_expanded, _tensors(kwargs.values()))):
        error = error_of_kernel(func, args, kwargs, _Nothing())
        if type(error) is not _Nothing:
            raise error
    if not _is_of_few(func) or func.overloadpacket in _WITH_SIZES and any(map(_is_empty, tensors)):
        return
    given = effects_of(func).bind(args, kwargs)
    try:
        asked = {name: _few(func, name, value) for name, value in given.items()}
    except Exception as error:  # a dtype of which nothing can be made
        pass_on_interruption(error)
        return
    places = tuple([asked[name] for name, _ in zip(given, args, strict=False)])
    found = _error_of(func, places, {name: asked[name] for name in kwargs})
    if found is not None:  # of tensors as they are it may complain of sizes first
        raise error_of_kernel(func, args, kwargs, found)


def error_of_kernel(func: Operator, args: tuple[Any, ...], kwargs: dict[str, Any], error: Exception) -> Exception:
    """Returns what the kernel for the CPU raises where a rule has raised; the error of the rule if it raises nothing.

    Args:
        func: The operator.
        args: Its arguments; tensors are on meta.
        kwargs: Its named arguments, likewise.
        error: What the rule has raised.
    """
    if isinstance(error, SubclassAotError) or not _can_be_asked(func):
        return error
    tree: Any = (args, kwargs)
    try:
        if sum(map(_extent, _tensors((*args, *kwargs.values())))) > _MOST_ELEMENTS:
            return error
        examples: Any = optree.tree_map(_example, tree, none_is_leaf=True)
    except Exception as other:  # a number that depends on data, or a dtype of which nothing can be made
        pass_on_interruption(other)
        return error
    return _error_of(func, *examples) or error


_MOST_ELEMENTS = 1 << 20
"""Of an operator on more elements a rule's own error is raised, so that nothing large is made for an error."""


def _error_of(func: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Exception | None:
    """Returns what a kernel raises. What draws has a generator of its own for that."""
    kinds = zip(args, effects_of(func).parameters.values(), strict=False)  # a kernel takes no number for a tensor
    args = tuple([torch.tensor(x) if kind == "tensor" and isinstance(x, Number) else x for x, kind in kinds])
    if effects_of(func).random:
        kwargs = {**kwargs, "generator": torch.Generator()}
    try:
        with warnings.catch_warnings(action="ignore"):
            _torch.operators.call_cpu_kernel(func, args, kwargs)
    except Exception as error:  # of the kernel
        pass_on_interruption(error)
        return error.with_traceback(None)
    return None


def _read(func: Operator) -> str:
    """Returns when the kernel of an operator is asked."""
    is_out = bool(effects_of(func).writes) and without_out(func) is not None
    if not _can_be_asked(func) or not (is_out or _is_of_few(func)):
        return ""
    return _ALWAYS_ASKED if is_out or func.overloadpacket in _ALSO_OF_FLOATS else _ASKED


def _is_of_few(func: Operator) -> bool:
    """Returns whether a kernel takes a few elements wherever it takes many."""
    packet = func.overloadpacket
    return torch.Tag.pointwise in func.tags or is_iterated(func) or packet in _OF_FEW_ELEMENTS or packet in _SIZES


_ASKED, _ALWAYS_ASKED = "asked", "always asked"
_PLAIN = (torch.float32, torch.float64)
_asked: dict[int, str] = {}
_held: list[Operator] = []


def _can_be_asked(func: Operator) -> bool:
    """Returns whether running the kernel of an operator on tensors of our own changes nothing."""
    effects = effects_of(func)
    if func.namespace != "aten" or effects.data_dependent or effects.random and "generator" not in effects.parameters:
        return False
    return _torch.operators.has_cpu_kernel(func)


class _Nothing(Exception):
    """Stands for the error of a rule that has raised none."""


def _is_expanded(x: Tensor) -> bool:
    return any(type(step) is int and step == 0 for step in x.stride())


def _is_empty(x: Tensor) -> bool:
    return any(type(n) is int and n == 0 for n in x.shape)


def _tensors(values: Any) -> Iterator[Tensor]:
    for x in values:
        if isinstance(x, Tensor):
            yield x
        elif isinstance(x, list | tuple):
            yield from _tensors(x)


def _few(func: Operator, name: str, value: Any) -> Any:
    """Returns what a kernel is given for an argument: tensors of few elements, and numbers that fit them."""
    if isinstance(value, list | tuple):
        return [_few(func, name, x) for x in value]
    if isinstance(value, Tensor):
        few = _SIZES.get(func.overloadpacket, 1)
        size = [
            0 if type(n) is int and n == 0 else few for n in value.shape
        ]  # of no elements, some kernels say nothing
        make = torch.zeros if name in _INDICES else torch.ones
        return make(size, dtype=value.dtype, device="cpu")
    if isinstance(value, torch.device):
        return torch.device("cpu")
    if isinstance(value, torch.SymInt | torch.SymFloat):
        return 1 if isinstance(value, torch.SymInt) else 1.0
    return _FITTING.get(name, value) if type(value) is int and func.overloadpacket in _WITH_SIZES else value


def _extent(x: Tensor) -> int:
    """Returns how many elements the memory of a tensor has."""
    example_of = _torch.symbolic.example_of
    steps = [(example_of(n) - 1) * example_of(step) for n, step in zip(x.shape, x.stride(), strict=True)]
    return 1 + example_of(x.storage_offset()) + sum(steps)


def _example(x: object) -> Any:
    """Returns a tensor of zeros for a tensor, and its value in the example for a symbolic number."""
    example_of = _torch.symbolic.example_of
    if isinstance(x, Tensor):
        size, stride = [example_of(n) for n in x.shape], [example_of(n) for n in x.stride()]
        memory = torch.zeros(max(_extent(x), 0), dtype=x.dtype, device="cpu")
        return memory.as_strided(size, stride, example_of(x.storage_offset()))
    if isinstance(x, torch.device):
        return torch.device("cpu")
    return example_of(x) if isinstance(x, torch.SymInt) else x


def _packets(names: str) -> frozenset[OperatorPacket]:
    return frozenset(getattr(_aten, name) for name in names.split() if hasattr(_aten, name))


_INDICES = frozenset({"index", "indices", "mask", "target"})
"""Parameters whose values are places, the first one, or say which."""

_FITTING = dict.fromkeys("padding output_padding".split(), 0) | dict.fromkeys(
    "normalized_shape N C HxW group groups stride dilation kernel_size output_size k last_dim_size".split(), 1
)
"""Numbers that are sizes, with one that fits a tensor of one element."""

_WITH_SIZES = _packets(
    "avg_pool2d avg_pool3d convolution kthvalue max_pool2d_with_indices max_pool3d_with_indices native_group_norm"
    " _fft_c2r native_layer_norm reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d"
    " replication_pad3d topk"
)
"""Operators that are given such numbers."""

_SIZES = {packet: 2 for packet in _packets("glu grid_sampler_2d")} | {
    packet: 3 for packet in _packets("grid_sampler_3d linalg_cross")
}
"""Operators that take no tensors of one element, with the size that all dims have instead."""

_OF_FEW_ELEMENTS = _WITH_SIZES | _packets(
    # products
    "addbmm addmm addmv baddbmm bmm mm mv"
    # reductions, and what goes along a dim
    " amax amin aminmax argmax argmin cummax cummin cumprod cumsum dist hash_tensor histc logcumsumexp _log_softmax max"
    " median min nansum nanmedian _safe_softmax _softmax _softmax_backward_data sort std std_mean trace var var_mean"
    # places
    " bucketize embedding index_add index_copy index_fill index_put index_reduce index_select masked_scatter put"
    " scatter_add _unsafe_masked_index _unsafe_masked_index_put_accumulate"
    # losses, norms and images
    " _adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_max_pool2d adaptive_max_pool3d binary_cross_entropy"
    " binary_cross_entropy_with_logits"
    " log_sigmoid_forward max_unpool2d max_unpool3d mse_loss multilabel_margin_loss_forward multi_margin_loss"
    " native_batch_norm nll_loss2d_forward nll_loss_forward smooth_l1_loss huber_loss soft_margin_loss"
    " _upsample_bilinear2d_aa upsample_bicubic2d upsample_bilinear2d upsample_linear1d upsample_nearest1d"
    " upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d _upsample_nearest_exact2d upsample_trilinear3d"
    # linear algebra, histograms and numbers
    " _cdist_forward _fft_c2c _fft_r2c rsub bernoulli normal normal_ rrelu_with_noise uniform uniform_"
    " cholesky cholesky_inverse complex geqrf heaviside linalg_cholesky_ex"
    " linalg_eig _linalg_eigh linalg_inv_ex linalg_ldl_factor_ex linalg_lu linalg_lu_factor_ex"
    " linalg_matrix_exp linalg_qr linalg_solve_triangular _linalg_solve_ex _linalg_svd mvlgamma polar polygamma"
    # made like another tensor
    " fill full_like new_full"
)
"""Operators that take tensors of few elements, beside those that are elementwise."""

_ALSO_OF_FLOATS = _packets(
    "bitwise_and bitwise_or bitwise_xor bitwise_not bitwise_left_shift bitwise_right_shift gcd lcm"
    " bitwise_and_ bitwise_or_ bitwise_xor_ bitwise_not_ bitwise_left_shift_ bitwise_right_shift_ gcd_ lcm_"
    " bucketize index_add index_copy index_fill index_put index_reduce index_select _log_softmax mvlgamma"
    " put _safe_softmax _softmax"
    " sort uniform uniform_"
)
"""Operators whose kernels refuse floats (as places, too), or dims and numbers that their rules take."""
