"""Operators that take a tensor apart, and what writes into that tensor instead."""

from __future__ import annotations

import torch

from subclass_aot.base import _torch

_aten = torch.ops.aten

VIEW_OF: dict[object, _torch.operators.Operator] = {
    _aten.select_scatter.default: _aten.select.int,
    _aten.slice_scatter.default: _aten.slice.Tensor,
    _aten.diagonal_scatter.default: _aten.diagonal.default,
}
"""The view that an operator writes into."""

BACKWARD_OF: dict[object, _torch.operators.Operator] = {
    _aten.select_backward.default: _aten.select.int,
    _aten.slice_backward.default: _aten.slice.Tensor,
}
"""The view whose gradient an operator computes."""

WRITING: dict[object, _torch.operators.Operator] = {
    getattr(getattr(_aten, name), overload): getattr(getattr(_aten, f"{name}_"), overload)
    for name, overloads in {
        "index_put": ("default",),
        "index_copy": ("default",),
        "index_add": ("default",),
        "index_fill": ("int_Scalar", "int_Tensor"),
        "scatter": ("src", "value"),
        "scatter_add": ("default",),
        "scatter_reduce": ("two",),
        "masked_fill": ("Scalar", "Tensor"),
        "masked_scatter": ("default",),
        "fill": ("Scalar", "Tensor"),
    }.items()
    for overload in overloads
}
"""Operators that change a part of their first argument, and their forms that write it."""

OVERWRITING: dict[object, _torch.operators.Operator] = {
    getattr(getattr(_aten, name), overload): getattr(getattr(_aten, f"{name}_"), overload)
    for overload, names in {
        "default": (
            "abs", "ceil", "cos", "erf", "exp", "expm1", "floor", "log", "log1p", "neg", "reciprocal", "relu", "round",
            "rsqrt", "sigmoid", "sin", "sqrt", "tanh", "clamp_min", "clamp_max", "clamp", "addcmul", "addcdiv",
        ),
        "Tensor": ("add", "sub", "mul", "div", "lerp"),
        "Scalar": ("add", "sub", "mul", "div", "lerp"),
    }.items()
    for name in names
}  # fmt: skip
"""Pointwise operators, and their forms that write the result into their first argument."""

STRIDED = {_aten.as_strided.default, _aten.as_strided_scatter.default, _aten.as_strided_copy.default}
"""Operators that reach all of the memory of a tensor."""
