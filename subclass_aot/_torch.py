"""Private names of torch, each with the reason it is needed and what to do when it goes.

No other file of this package touches a name of torch that starts with an underscore.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

make_wrapper_subclass: Any = torch.Tensor._make_wrapper_subclass
"""The only documented way to make a tensor with no storage of its own; every wrapper subclass uses it."""

disabled_torch_function_impl: Any = torch._C._disabled_torch_function_impl
"""Turns `__torch_function__` off for a class; else every attribute read passes through Python."""

disable_current_modes: Any = torch.utils._python_dispatch._disable_current_modes
"""Runs a block outside every dispatch mode, so that the user's own modes do not see shape inference. No public form."""

DataDependentOutput: Any = torch._subclasses.fake_tensor.DataDependentOutputException
"""What torch's shape functions raise when a shape depends on values; public code has no name for it."""


def has_composite_implicit_kernel(func: Any) -> bool:
    """True if the operator is made of others. `OpOverload` has no public question for it."""
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"))


def is_factory(func: Any) -> bool:
    """True if the operator takes a `device` argument; read from the schema, which is private."""
    return any(a.name == "device" for a in func._schema.arguments)


def decomposition_of(func: Any) -> Any:
    """Torch's decomposition of an operator, or None. `torch._decomp` is how the tables are documented."""
    return torch._decomp.decomposition_table.get(func)


def set_geometry(tensor: torch.Tensor, size: Any, stride: Any, offset: int) -> None:
    """Changes the size, stride and offset that C++ has for a wrapper, in place.

    `transpose_` and its kin change the tensor they are given; for a tensor that is only a wrapper there is no
    public way. `set_` does it when it runs below Python dispatch, on the wrapper's own empty storage.
    """
    meta_before = torch._C._meta_in_tls_dispatch_include()
    torch._C._set_meta_in_tls_dispatch_include(True)  # the meta kernel allocates nothing
    try:
        with torch.utils._mode_utils.no_dispatch():
            torch.ops.aten.set_.source_Storage_storage_offset(tensor, tensor.untyped_storage(), offset, size, stride)
    finally:
        torch._C._set_meta_in_tls_dispatch_include(meta_before)


def is_nested_int(size: Any) -> bool:
    """Whether `size` is the ragged dimension of a jagged tensor, a SymInt that stands for no number. No public test."""
    return isinstance(size, torch.SymInt) and size.node.is_nested_int()


def mirrors_requires_grad(cls: type) -> bool:
    """Whether `cls` sets `requires_grad` on its inner tensors itself, to no effect: autograd sees the outer one only.

    True of torch's own `DTensor` and jagged tensors, whose inner tensors nobody else holds.
    """
    return cls.__module__.startswith(("torch.distributed.tensor", "torch.nested."))

alias_outer_storage: Any = torch._functionalize_unsafe_set
"""Makes a wrapper that is a view share its base's (unused) storage: there torch reads what aliases what.

When it goes: `set_` below dispatch.
"""

disable_torch_dispatch: Any = torch._C._DisableTorchDispatch
"""While it lives, an operator acts on a wrapper's own sizes and strides, not on what it holds."""


def schema_of(func: Any) -> Any:
    """The schema of an operator overload; underscore by history, read by every operator library."""
    return func._schema


def call_of(func: Any) -> Any:
    """The fastest callable that is `func`: for a plain overload, what its `__call__` forwards to (0.3 us less)."""
    return func._op if type(func) is torch._ops.OpOverload else func


def is_overload(func: Any) -> bool:
    """Whether `func` is one overload of a dispatcher operator, and not a higher-order operator."""
    return isinstance(func, torch._ops.OpOverload)


def is_packet(func: Any) -> bool:
    """Whether `func` is all overloads of an operator under one name."""
    return isinstance(func, torch._ops.OpOverloadPacket)


def is_higher_order(func: Any) -> bool:
    """Whether `func` is an operator that takes functions."""
    return isinstance(func, torch._ops.HigherOrderOperator)


def can_decompose(func: Any) -> bool:
    """Whether `func` is written in terms of other operators, which autograd would have called in its place."""
    return bool(func._can_decompose())


def apply_to_outer(func: Any, args: Any, kwargs: Any) -> None:
    """Lets an operator such as `t_` change the sizes, strides and offset of the wrapper itself.

    The wrapper has no data, so the operator must run as on a meta tensor: hence the switch in thread-local state.
    """
    guard = disable_torch_dispatch()
    before = torch._C._meta_in_tls_dispatch_include()
    torch._C._set_meta_in_tls_dispatch_include(True)
    try:
        func(*args, **kwargs)
    finally:
        torch._C._set_meta_in_tls_dispatch_include(before)
        del guard


is_traceable_wrapper_subclass: Callable[[object], bool] = torch.utils._python_dispatch.is_traceable_wrapper_subclass
"""Torch's own test of the flatten protocol. When it goes: a subclass of `Tensor` that has both methods."""

is_opaque_value: Callable[[object], bool] = torch._library.opaque_object.is_opaque_value
"""Whether a value that is no tensor may stand among inner tensors, as the mesh of a `DTensor`. No public test."""


def last_sequence_number() -> int:
    """The number autograd gave to the gradient function it made last; pairs backward operators with forward lines."""
    return int(torch.autograd._get_sequence_nr()) - 1  # type: ignore[attr-defined]


def sequence_number_of_current_gradient() -> int:
    """The number of the gradient function that runs now, or -1. No public way asks the engine what it runs."""
    node = torch._C._current_autograd_node()
    return -1 if node is None else int(node._sequence_nr())


def view_function(view: torch.Tensor) -> Any:
    """A function that makes the same view of another base, by the view operators that made `view`.

    Autograd keeps this chain for itself; it is the only complete record of how a view was made.
    """
    return view._view_func_unsafe


force_view_tracking: Any = torch.autograd.grad_mode._force_original_view_tracking
"""Makes autograd keep the view operators also where it could do with `as_strided`, which most wrappers do not have."""


class DispatchMode(torch.utils._python_dispatch.TorchDispatchMode):
    """A dispatch mode whose handler is called as it is.

    Torch wraps the handler of every mode so that Dynamo does not look into it, at some microseconds per operator and
    an import of Dynamo. Traces run outside Dynamo, so ours is not wrapped. When the switch goes: derive from the base.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


def tensor_check(tensors: list[torch.Tensor]) -> Any:
    """A function that says whether tensors have class, dispatch keys, dtype, device, sizes and strides of `tensors`.

    It is what Dynamo's guards run: one call into C++ for any number of tensors. When it goes: compare in Python.
    """
    import torch._dynamo  # the C++ side looks up Python objects that this import makes

    sizes = [list(t.size()) for t in tensors]
    strides = [list(t.stride()) for t in tensors]
    make: Any = torch._C._dynamo.guards.TensorGuards
    return make(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides).check


def make_graph_module(root: Any, graph: Any, name: str) -> torch.fx.GraphModule:
    """A `GraphModule` that generates its Python code when it is first run or printed; most graphs never are."""
    with torch.fx._lazy_graph_module._use_lazy_graph_module(True):
        module: torch.fx.GraphModule = torch.fx._lazy_graph_module._make_graph_module(root, graph, name)
        return module


def fake_mode() -> Any:
    """A mode in which tensors are fake; inductor takes no other kind of example."""
    return torch._subclasses.fake_tensor.FakeTensorMode(allow_non_fake_inputs=True)


def fake_on_cpu(meta: torch.Tensor) -> Any:
    """A fake CPU tensor over a meta tensor, for shape functions that ask for the device. When it goes: no tensor."""
    global _mode_on_cpu
    _mode_on_cpu = _mode_on_cpu or fake_mode()
    return torch._subclasses.fake_tensor.FakeTensor(_mode_on_cpu, meta, torch.device("cpu"))


_mode_on_cpu: Any = None


def looks_channels_last(tensor: torch.Tensor) -> bool:
    """Whether kernels take a tensor for channels-last, which `is_contiguous` does not tell where a size is one."""
    return torch._prims_common.suggest_memory_format(tensor) is not torch.contiguous_format


def inductor_decompositions() -> Any:
    """The decompositions inductor expects to be done before it sees a graph."""
    from torch._inductor.decomposition import select_decomp_table

    return select_decomp_table()


def compile_with_inductor(graph: Any, fakes: list[Any], mode: Any, is_backward: bool) -> Any:
    """Inductor below AOTAutograd: takes a dense graph with fake values on its nodes. It has no public door there."""
    from torch._inductor.compile_fx import compile_fx_inner
    from torch.fx.passes.fake_tensor_prop import FakeTensorProp

    FakeTensorProp(graph, mode).propagate_dont_convert_inputs(*fakes)
    with torch._guards.tracing(torch._guards.TracingContext(mode)):
        return compile_fx_inner(graph, fakes, is_backward=is_backward)


def set_versions(tensors: tuple[torch.Tensor, ...], versions: tuple[int, ...]) -> None:
    """Sets version counters: for writes that eager makes below autograd, where none counts. Torch has no public way."""
    torch._C._autograd._unsafe_set_version_counter(tensors, versions)


def has_saved_tensor_hooks() -> bool:
    """Whether hooks see the tensors that autograd saves. The public module sets them and has no question for them."""
    return torch._C._autograd._top_saved_tensors_default_hooks(True) is not None


def foreign_two_tensor() -> Any:
    """Torch's own example of a wrapper class: one that knows nothing of this library, to test with."""
    from torch.testing._internal.two_tensor import TwoTensor

    return TwoTensor
