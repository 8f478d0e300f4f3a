"""Facts about operators: their kinds, tags, kernels and schemas."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeGuard

import torch

Operator = torch._ops.OpOverload
"""One overload of a dispatcher operator: the type of `torch.ops.aten.add.Tensor`."""

HigherOrderOperator = torch._ops.HigherOrderOperator
"""An operator that takes functions."""

AnyOperator = Operator | HigherOrderOperator
"""What `__torch_dispatch__` is given."""

OperatorPacket = torch._ops.OpOverloadPacket
"""All overloads of an operator: the type of `torch.ops.aten.add`."""

Schema = torch._C.FunctionSchema
"""What an operator takes and gives."""

SchemaArgument = torch._C.Argument
"""What a schema says of one argument or return."""


def schema_of(func: Operator) -> Schema:
    """Returns the schema of an operator overload; underscore by history, read by every operator library."""
    return func._schema


def negated_lazily(x: torch.Tensor) -> torch.Tensor:
    """Returns the view of a tensor that has the negative bit. The operator has no public name."""
    return torch._neg_view(x)


def call_of(func: Callable[..., Any]) -> Any:
    """Returns the fastest callable that is `func`: for a plain overload, what its `__call__` forwards to (0.3 us
    less).
    """
    return func._op if type(func) is torch._ops.OpOverload else func


PRIVATE_BINDINGS: dict[Operator, Callable[..., Any]] = {
    torch.ops.aten._log_softmax.default: torch._log_softmax,
    torch.ops.aten._softmax.default: torch._softmax,
    torch.ops.aten.silu.default: torch._C._nn.silu,
}
"""Functions of Python's that run one overload, as public ones do for others. When one goes: leave it out."""


def is_overload(func: object) -> TypeGuard[Operator]:
    """Returns whether `func` is one overload of a dispatcher operator, and not a higher-order operator."""
    return isinstance(func, torch._ops.OpOverload)


def is_packet(func: object) -> TypeGuard[OperatorPacket]:
    """Returns whether `func` is all overloads of an operator under one name."""
    return isinstance(func, torch._ops.OpOverloadPacket)


def is_higher_order(func: object) -> TypeGuard[HigherOrderOperator]:
    """Returns whether `func` is an operator that takes functions."""
    return isinstance(func, torch._ops.HigherOrderOperator)


def is_inplace(func: Operator) -> bool:
    """Returns whether `func` writes its first argument and returns it, as `add_` does.

    Torch 2.13 has a tag for it, a public one; in 2.11 and 2.12 the schema says it. When they go: the tag alone.
    """
    if _INPLACE is not None:
        return _INPLACE in func.tags
    arguments, returns = func._schema.arguments, func._schema.returns
    if len(returns) != 1 or not arguments or arguments[0].kwarg_only:
        return False
    written, returned = arguments[0].alias_info, returns[0].alias_info
    return written is not None and written.is_write and returned is not None


_INPLACE = getattr(torch.Tag, "inplace", None)


def has_reduction_tag(func: Operator) -> bool:
    """Returns whether torch says that `func` reduces; not all versions have the tag, and all forget some operators."""
    return _REDUCTION is not None and _REDUCTION in func.tags


_REDUCTION = getattr(torch.Tag, "reduction", None)


def registered_operators() -> Iterator[Operator]:
    """Yields the operators that the dispatcher has now, in alphabetical order. Nothing public lists them."""
    for full_name in sorted(torch._C._dispatch_get_all_op_names()):
        namespace, _, name = full_name.partition("::")
        packet_name, _, overload = name.partition(".")
        # The name of an operator whose library is gone may stay.
        func = getattr(getattr(getattr(torch.ops, namespace), packet_name, None), overload or "default", None)
        if func is not None:
            yield func


def names_of_aten() -> list[str]:
    """Returns the names of torch's own operators, as the dispatcher has them. No public list of them is as quick."""
    return [name for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::")]


def has_meta_kernel(func: Operator) -> bool:
    """Returns whether somebody wrote what `func` does on tensors without data. Else a kernel for all devices may run.

    Nothing public says so.
    """
    key = torch._C.DispatchKey.Meta
    return key in func.py_kernels or torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "Meta")


def call_meta_kernel(func: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Calls the kernel for tensors without data, also where no argument is one. Nothing public does so."""
    kernel = func.py_kernels.get(torch._C.DispatchKey.Meta)
    if kernel is not None:
        return kernel(*args, **kwargs)
    return func.redispatch(torch._C.DispatchKeySet(torch._C.DispatchKey.Meta), *args, **kwargs)


def has_cpu_kernel(func: Operator) -> bool:
    """Returns whether something runs for `func` on CPU tensors: a kernel for the CPU, or one for all devices.

    Nothing public says so.
    """
    return bool(torch._C._dispatch_has_computed_kernel_for_dispatch_key(func.name(), "CPU"))


def call_cpu_kernel(func: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Calls what runs for `func` on CPU tensors, below autograd, autocast and modes. Nothing public does so."""
    return func.redispatch(torch._C.DispatchKeySet(torch._C.DispatchKey.CPU), *args, **kwargs)


def is_factory(func: Operator) -> bool:
    """Returns True if the operator takes a `device` argument; read from the schema, which is private."""
    return any(a.name == "device" for a in func._schema.arguments)


def has_composite_implicit_kernel(func: Operator) -> bool:
    """Returns whether an operator is made of others that run in its place. `OpOverload` has no public query for it.

    A few operators, such as `silu_backward`, are made of others and have a kernel of their own as well, which runs
    then: autograd does not decompose them. Some operators are torchscript's only, such as `prim::layout` and
    `aten::sym_size`: the dispatcher does not know them, and queried for their kernels, raises where C++ may stand in
    between and end the process.
    """
    name = func.name()
    if not torch._C._dispatch_has_kernel(name):
        return False
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    return has_kernel(name, "CompositeImplicitAutograd") and not any(has_kernel(name, key) for key in _BACKENDS)


_BACKENDS = ("CPU", "CUDA", "XPU", "MPS", "Meta")


def can_decompose(func: Operator) -> bool:
    """Returns whether `func` is written in terms of other operators, which autograd would have called in its place."""
    return torch._C.DispatchKey.CompositeImplicitAutograd in func.py_kernels or has_composite_implicit_kernel(func)


def has_parts(func: Operator) -> bool:
    """Returns whether `func` is written in terms of other operators, be it that a kernel of its own runs in their
    place.
    """
    name = func.name()
    return torch._C._dispatch_has_kernel(name) and torch._C._dispatch_has_kernel_for_dispatch_key(
        name, "CompositeImplicitAutograd"
    )


def decomposition_of(func: Operator) -> Any:
    """Returns torch's decomposition of an operator, or None. `torch._decomp` is how the tables are documented."""
    return torch._decomp.decomposition_table.get(func)


def has_shape_by_data(func: Operator) -> bool:
    """Returns whether the shape of what `func` returns depends on values; torch 2.11 and 2.12 forgot the tag of
    `_unique`.
    """
    return torch.Tag.dynamic_output_shape in func.tags or func is torch.ops.aten._unique.default


DataDependentOutput: Any = torch._subclasses.fake_tensor.DataDependentOutputException
"""What torch's shape functions raise when a shape depends on values; public code has no name for it."""

METADATA_QUERIES = frozenset(
    {
        torch.ops.aten.sym_size.default,
        torch.ops.aten.sym_stride.default,
        torch.ops.aten.sym_numel.default,
        torch.ops.aten.sym_storage_offset.default,
        torch.ops.aten.dim.default,
        torch.ops.aten.numel.default,
        torch.ops.aten.is_contiguous.default,
        torch.ops.aten.is_contiguous.memory_format,
        torch.ops.aten.is_non_overlapping_and_dense.default,
        torch.ops.prim.layout.default,
        torch.ops.prim.device.default,
    }
)
"""Queries of C++ that a wrapper answers itself, some of them where an error would end the process."""


def overload_name_of(func: Operator) -> str:
    """Returns the name of an overload among those of its operator, "" for the first; `str(func)` has another for
    that.
    """
    return str(func._overloadname)
