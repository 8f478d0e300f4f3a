"""Private names of torch, each with the reason it is needed and what to do when it goes.

No other file of this package touches a name of torch that starts with an underscore.
"""

from __future__ import annotations

import importlib
import logging
import operator
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from functools import cache
from typing import Any, TypeVar

import torch

_Function = TypeVar("_Function", bound=Callable[..., Any])

make_wrapper_subclass: Any = torch.Tensor._make_wrapper_subclass
"""The only documented way to make a tensor with no storage of its own; every wrapper subclass uses it."""

disabled_torch_function_impl: Any = torch._C._disabled_torch_function_impl
"""Turns `__torch_function__` off for a class; else every attribute read passes through Python."""

disable_torch_function: Any = torch._C.DisableTorchFunction
"""While it lives, no mode and no class sees calls of torch. The public form keeps the modes."""


def _pytree_namespace() -> str:
    """The namespace, once it walks dicts as they were filled: torch switches that on in this import, in some trace."""
    importlib.import_module("torch.utils._cxx_pytree")
    return "torch"


PYTREE_NAMESPACE = _pytree_namespace()
"""Where optree knows what `torch.utils._pytree.register_pytree_node` was given. Torch's module for it is private."""

disable_current_modes: Any = torch.utils._python_dispatch._disable_current_modes
"""Runs a block outside every dispatch mode, so that the user's own modes do not see shape inference. No public form."""

current_dispatch_mode: Callable[[], Any] = torch.utils._python_dispatch._get_current_dispatch_mode
"""The mode that sees an operator first. No public form."""

DataDependentOutput: Any = torch._subclasses.fake_tensor.DataDependentOutputException
"""What torch's shape functions raise when a shape depends on values; public code has no name for it."""


def has_composite_implicit_kernel(func: Any) -> bool:
    """True if the operator is made of others. `OpOverload` has no public question for it.

    Some operators are torchscript's only, such as `prim::layout` and `aten::sym_size`: the dispatcher does not know
    them, and asked for their kernels, raises where C++ may stand in between and end the process.
    """
    name = func.name()
    if not torch._C._dispatch_has_kernel(name):
        return False
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(name, "CompositeImplicitAutograd"))


def is_factory(func: Any) -> bool:
    """True if the operator takes a `device` argument; read from the schema, which is private."""
    return any(a.name == "device" for a in func._schema.arguments)


def decomposition_of(func: Any) -> Any:
    """Torch's decomposition of an operator, or None. `torch._decomp` is how the tables are documented."""
    return torch._decomp.decomposition_table.get(func)


def set_geometry(tensor: torch.Tensor, size: Any, stride: Any, offset: Any) -> None:
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


def is_jagged(cls: type) -> bool:
    """Whether `cls` is torch's class of tensors with a ragged dimension. See Note [Jagged tensors]. It has no name."""
    return cls.__module__ == "torch.nested._internal.nested_tensor" and cls.__name__ == "NestedTensor"


JAGGED_VALUES = "_values"
"""The inner tensor of a jagged tensor that holds its elements; the others say where each row begins and ends."""


def context_of_new(cls: type, context: Any) -> Any:
    """The context to make a wrapper with: a jagged tensor has `requires_grad` in it, which is the caller's to set."""
    return {**context, "requires_grad": False} if is_jagged(cls) else context


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


def is_inplace(func: Any) -> bool:
    """Whether `func` writes its first argument and returns it, as `add_` does.

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


COLLECTIVES = frozenset({"c10d", "_c10d_functional", "_c10d_functional_autograd"})
"""The libraries of operators that communicate. They have no tag."""


def has_shape_by_data(func: Any) -> bool:
    """Whether the shape of what `func` returns depends on values; torch 2.11 and 2.12 forgot the tag of `_unique`."""
    return torch.Tag.dynamic_output_shape in func.tags or func is torch.ops.aten._unique.default


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


def sequence_number_of(function: Any) -> int:
    """The number autograd gave to a gradient function; those of leaves have one above all others. Not public."""
    return int(function._sequence_nr())


pad_packed_sequence: Any = torch._VF._pad_packed_sequence
"""What `torch.nn.utils.rnn.pad_packed_sequence` calls: a function in C++ that writes through pointers."""


def dense_flex_attention(*args: Any, **kwargs: Any) -> Any:
    """Flex attention with a matrix of all scores, made of ordinary operators: what torch runs where it has no kernel.

    Takes and gives what the operator does. When it goes: apply the functions to the scores by `torch.vmap`.
    """
    from torch._higher_order_ops.flex_attention import math_attention

    return math_attention(*args, **kwargs)


@contextmanager
def flex_attention_anywhere() -> Iterator[None]:
    """Within the block, `flex_attention` takes tensors that require grad on any device.

    Torch refuses those for which it has no kernel, before anybody else sees the call. For all threads, but traces run
    one at a time, and a kernel that is not there refuses, too. When it goes: such calls are refused.
    """
    module: Any = sys.modules.get("torch.nn.attention.flex_attention")
    before = getattr(module, "_validate_device", None)
    if before is not None:
        module._validate_device = lambda *_: None
    try:
        yield
    finally:
        if before is not None:
            module._validate_device = before


def view_function(view: torch.Tensor) -> Any:
    """A function that makes the same view of another base, by the view operators that made `view`.

    Autograd keeps this chain for itself; it is the only complete record of how a view was made.
    """
    return view._view_func_unsafe


def view_rules(view: torch.Tensor) -> Any:
    """How autograd lets `view` be written, from where it was made: under `no_grad`, as one of several results, ...

    No public way asks for it; only errors of in-place writes tell.
    """
    return torch._C._autograd._get_creation_meta(view)


def set_view_rules(view: torch.Tensor, rules: Any) -> None:
    """Makes autograd treat `view` like one whose `view_rules` are given."""
    torch._C._autograd._set_creation_meta(view, rules)


def made_without_grad(rules: Any) -> bool:
    """Whether a view with these `view_rules` was made where autograd was off."""
    return rules is not None and rules.name in ("NO_GRAD_MODE", "INFERENCE_MODE")


force_view_tracking: Any = torch.autograd.grad_mode._force_original_view_tracking
"""Makes autograd keep the view operators also where it could do with `as_strided`, which most wrappers do not have."""


class DispatchMode(torch.utils._python_dispatch.TorchDispatchMode):
    """A dispatch mode whose handler is called as it is.

    Torch wraps the handler of every mode so that Dynamo does not look into it, at some microseconds per operator and
    an import of Dynamo. Traces run outside Dynamo, so ours is not wrapped. When the switch goes: derive from the base.

    Torch remembers in three flags of the process that a mode is on, and each mode puts back what it found: with two
    that overlap in time on two threads, they stay on, and `torch.compile` compiles nothing any more. So the flags are
    left alone while one of ours is on, and put back by the last.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __enter__(self) -> Any:
        with _flags_of_modes.lock:
            _flags_of_modes.enter()
            return super().__enter__()  # type: ignore[no-untyped-call]

    def __exit__(self, *error: Any) -> None:
        with _flags_of_modes.lock:
            before = _flags_of_modes.read()
            super().__exit__(*error)  # type: ignore[no-untyped-call]
            _flags_of_modes.leave(before)


class _FlagsOfModes:
    """What `torch.utils._python_dispatch` says to all threads, while modes of ours are on. Its lock is to be held."""

    _NAMES = (
        "_is_in_torch_dispatch_mode",
        "_is_in_non_infra_torch_dispatch_mode",
        "_is_in_any_mode_without_ignore_compile_internals",
    )

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._on = 0
        self._before: dict[str, bool] = {}

    def read(self) -> dict[str, bool]:
        return {name: getattr(torch.utils._python_dispatch, name) for name in self._NAMES}

    def enter(self) -> None:
        if not self._on:
            self._before = self.read()
        self._on += 1

    def leave(self, flags: dict[str, bool]) -> None:
        """Puts the flags as they were before the first mode, or leaves them as they are while there are others."""
        self._on -= 1
        for name, value in (flags if self._on else self._before).items():
            setattr(torch.utils._python_dispatch, name, value)
        if not torch._C._len_torch_dispatch_stack():  # this flag is the thread's
            torch._C._dynamo.guards.set_is_in_mode_without_ignore_compile_internals(False)


_flags_of_modes = _FlagsOfModes()


def tensor_check(tensors: list[torch.Tensor], sizes: list[list[int | None]], strides: list[list[int | None]]) -> Any:
    """A function that says whether tensors have class, dispatch keys, dtype and device of `tensors`, sizes and strides.

    Sizes and strides that are None may be anything.

    It is what Dynamo's guards run: one call into C++ for any number of tensors. When it goes: compare in Python.
    """
    import torch._dynamo  # the C++ side looks up Python objects that this import makes

    make: Any = torch._C._dynamo.guards.TensorGuards
    return make(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides).check


def make_graph_module(root: Any, graph: Any, name: str) -> torch.fx.GraphModule:
    """A `GraphModule` that generates its Python code when it is first run or printed; most graphs never are."""
    with torch.fx._lazy_graph_module._use_lazy_graph_module(True):
        module: torch.fx.GraphModule = torch.fx._lazy_graph_module._make_graph_module(root, graph, name)
        return module


def fake_mode(solver: Any = None) -> Any:
    """A mode in which tensors are fake; inductor takes no other kind of example. `solver` is for symbolic sizes.

    Without a solver, if only one that knows no symbol, inductor does not look into its cache of compiled graphs.
    """
    return torch._subclasses.fake_tensor.FakeTensorMode(allow_non_fake_inputs=True, shape_env=solver)


def fake_on_cpu(meta: torch.Tensor) -> Any:
    """A fake CPU tensor over a meta tensor, for shape functions that ask for the device. When it goes: no tensor."""
    global _mode_on_cpu
    _mode_on_cpu = _mode_on_cpu or fake_mode()
    return torch._subclasses.fake_tensor.FakeTensor(_mode_on_cpu, meta, torch.device("cpu"))


_mode_on_cpu: Any = None


def looks_channels_last(tensor: torch.Tensor) -> bool:
    """Whether kernels take a tensor for channels-last, which `is_contiguous` does not tell where a size is one."""
    return torch._prims_common.suggest_memory_format(tensor) is not torch.contiguous_format


def force_strides(graph: Any, node: Any, strides: tuple[int, ...]) -> Any:
    """Appends what gives a tensor of a graph for inductor these strides: no public operator leaves it to the kernel."""
    from torch._inductor import inductor_prims

    return graph.call_function(inductor_prims.force_stride_order, (node, strides))


def inductor_decompositions() -> Any:
    """The decompositions inductor expects to be done before it sees a graph."""
    importlib.import_module("torch._inductor.lowering")  # some use it and do not import it
    from torch._inductor.decomposition import select_decomp_table

    return select_decomp_table()


def compile_with_inductor(
    graph: Any, fakes: list[Any], mode: Any, is_backward: bool, static: list[int], free: frozenset[int]
) -> tuple[Any, list[Any]]:
    """Inductor below AOTAutograd: takes a dense graph with fake values on its nodes. It has no public door there.

    It does not look at each call whether the inputs at the positions `static` are aligned. It chooses the strides of
    the outputs at the positions `free`, and gives the strides that all outputs have, as AOTAutograd asks it for them.
    What is free, and what it does not assert, is no part of the key under which it caches compiled graphs: hence the
    tag.
    """
    import torch.compiler.config
    from torch._inductor.compile_fx import compile_fx_inner

    output = graph.graph.output_node()
    tensors = [i for i, node in enumerate(output.args[0]) if isinstance(node, torch.fx.Node) and "spec" in node.meta]
    output.meta["user_visible_output_idxs"] = fixed = [i for i in tensors if i not in free]
    with ExitStack() as stack:
        stack.enter_context(_without_asserts(mode.shape_env))
        tag = f"{torch.compiler.config.cache_key_tag} subclass_aot {fixed} without asserts"
        stack.enter_context(torch.compiler.config.patch(cache_key_tag=tag))  # type: ignore[attr-defined]
        stack.enter_context(torch._guards.tracing(torch._guards.TracingContext(mode)))
        with torch._guards.TracingContext.report_output_strides() as strides:
            compiled = compile_fx_inner(graph, fakes, is_backward=is_backward, static_input_idxs=static)
        return compiled, list(strides or [None] * len(output.args[0]))


@contextmanager
def _without_asserts(env: Any) -> Iterator[None]:
    """Within the block inductor asserts nothing of numbers that depend on data: the calls of this library check them.

    It would assert what a solver is told, and that a number is in its range.
    """
    from torch.utils._sympy.numbers import int_oo
    from torch.utils._sympy.value_ranges import ValueRanges

    class Whole(ValueRanges[Any]):
        def issubset(self, other: Any) -> bool:
            return True

    before = env.deferred_runtime_asserts
    env.deferred_runtime_asserts = {}
    env._default_unspecified_value_range = lambda: Whole(-int_oo, int_oo)
    try:
        yield
    finally:
        del env._default_unspecified_value_range
        env.deferred_runtime_asserts = before


def draw_as_inductor(graph: Any, mode: Any) -> None:
    """Replaces operators that draw random numbers by inductor's own: it does so to joint graphs, which it is not given.

    Args:
        graph: A graph with fake values on its nodes. It is changed.
        mode: Their mode.
    """
    from torch._inductor.fx_passes.replace_random import replace_random_passes
    from torch._inductor.virtualized import V

    with V.set_fake_mode(mode), mode:
        replace_random_passes(graph)
    graph.recompile()


@contextmanager
def without_mkldnn() -> Iterator[None]:
    """Within the block torch does not choose kernels of oneDNN; the public form warns of what machines do not have.

    The switch is the process's: what other threads run meanwhile is computed by other kernels, too.
    """
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before)


class _Switch:
    """A flag of the process that is on while anybody, in any thread, has it on."""

    def __init__(self, read: Callable[[], bool], write: Callable[[bool], None]) -> None:
        self._read, self._write = read, write
        self._lock, self._users, self._before = threading.Lock(), 0, False

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with self._lock:
            if not self._users:
                self._before = self._read()
                self._write(True)
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    self._write(self._before)


compiling = _Switch(
    lambda: torch.compiler._is_compiling_flag, lambda value: setattr(torch.compiler, "_is_compiling_flag", value)
)
"""Within the block `torch.compiler.is_compiling()` is true. Only torch's own exporter sets what it reads."""

_literals_are_moved_late = _Switch(torch._C._only_lift_cpu_tensors, torch._C._set_only_lift_cpu_tensors)
"""Within the block the memory of `torch.tensor(literal, device=...)` is on the CPU until modes have seen the tensor."""


class PassOn(DispatchMode):
    """A dispatch mode that does nothing."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class _Shield(PassOn):
    """Stands where torch looks for a mode of fake tensors."""

    def __init__(self) -> None:
        super().__init__()
        self._mode_key = torch._C._TorchDispatchModeKey.FAKE


@contextmanager
def devices_untouched() -> Iterator[None]:
    """Within the block, no device is started because a program names it, so that none need be there.

    Torch starts a device before any mode hears of the operator, except where it knows that tensors are fake.
    """
    fake: Any = torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE)
    with _literals_are_moved_late(), _Shield() if fake is None else nullcontext():
        yield


dispatch_modes: Callable[[], list[Any]] = torch.utils._python_dispatch._get_current_dispatch_mode_stack
"""The dispatch modes of this thread, innermost last. Only the innermost one has a name, and that is private, too."""


@contextmanager
def without_dynamo() -> Iterator[None]:
    """Within the block, what `torch.compile` made runs the Python function that it was made of.

    Else generated code would be run, or the compiler started, on tensors without data. The stance is public, but is
    the process's, and may not be set where Dynamo is at work; for that, it is switched off on this thread.
    """
    set_eval_frame: Any = torch._C._dynamo.eval_frame.set_eval_frame
    before = set_eval_frame(None)
    try:
        with torch.compiler.set_stance("force_eager"):
            yield
    finally:
        set_eval_frame(before)


functional_collectives: Any = torch.ops._c10d_functional
"""Collectives that return their results. Torch's own module of them in Python is a beta that takes other arguments."""


def group_name_of(group: Any) -> str:
    """The name of a process group that an operator was given as a script object."""
    return str(torch.distributed.ProcessGroup.unbox(group).group_name)


def group_size_of(group: Any) -> int:
    """How many ranks such a group has."""
    return int(torch.distributed.ProcessGroup.unbox(group).size())


def reduction_of(op: Any) -> str | None:
    """What functional collectives call a reduction; None for one that they do not know."""
    names = ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR")
    kinds: Any = torch.distributed.ReduceOp.RedOpType
    return next((name.lower() for name in names if int(getattr(kinds, name)) == int(op.op())), None)


def finished_work() -> Any:
    """What stands for a collective that is done: `Work` has no constructor in Python but this one, made for fakes."""
    return torch._C._distributed_c10d.FakeWork().boxed()


def has_flat_parameters(module: torch.nn.Module) -> bool:
    """Whether `module` is FSDP's first version, which keeps parameters as views of one. Its class is slow to import."""
    found = sys.modules.get("torch.distributed.fsdp.fully_sharded_data_parallel")
    return found is not None and isinstance(module, found.FullyShardedDataParallel)


def forget_jagged_dummy() -> None:
    """Lets go of the jagged tensor that torch makes once for its own use, if that was while a function was traced."""
    module = sys.modules.get("torch.nested._internal.nested_tensor")
    dummy = getattr(module, "_dummy_instance", None)
    if dummy is not None and not type(dummy._offsets) is type(dummy._values) is torch.Tensor:
        module._dummy_instance = None  # type: ignore[union-attr]


def is_parallel_wrapper(module: torch.nn.Module) -> str | None:
    """What a module was given to, so that its call talks to other devices, such as `fully_shard`.

    None for other modules. What was not imported cannot have been used, and is slow to import.
    """
    if isinstance(module, torch.nn.parallel.DistributedDataParallel):
        return "DistributedDataParallel"
    if isinstance(module, torch.nn.DataParallel) and module.device_ids:
        return "DataParallel"
    composable = sys.modules.get("torch.distributed._composable.replicate")
    if composable is not None and isinstance(module, composable.DDP):
        return "replicate"
    fsdp = sys.modules.get("torch.distributed.fsdp")
    if fsdp is not None and isinstance(module, fsdp.FullyShardedDataParallel):
        return "FullyShardedDataParallel"
    return "fully_shard" if fsdp is not None and isinstance(module, fsdp.FSDPModule) else None


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
"""What C++ asks a wrapper that answers such questions itself, some of them where an error would end the process."""


def set_versions(tensors: tuple[torch.Tensor, ...], versions: tuple[int, ...]) -> None:
    """Sets version counters: for writes that eager makes below autograd, where none counts. Torch has no public way."""
    torch._C._autograd._unsafe_set_version_counter(tensors, versions)


def has_saved_tensor_hooks() -> bool:
    """Whether hooks see the tensors that autograd saves. The public module sets them and has no question for them."""
    return torch._C._autograd._top_saved_tensors_default_hooks(True) is not None


is_any_autocast_enabled: Callable[[], bool] = torch._C._is_any_autocast_enabled
"""Whether autocast is on for any device, at a tenth of the time of asking for one. When it goes: ask for each."""

disable_autocast: Any = torch._C._DisableAutocast
"""Runs a block without autocast on any device; the public form is per device, and slow."""

number_of_function_modes: Callable[[], int] = torch._C._len_torch_function_stack
"""How many modes see what a program calls in torch: a default device is one. When it goes: the length of the stack."""


def function_modes() -> tuple[Any, ...]:
    """What the modes are that see calls of torch: devices for those that set one, others as they are."""
    from torch.utils._device import DeviceContext

    modes = torch.overrides._get_current_function_mode_stack()
    return tuple(mode.device if type(mode) is DeviceContext else mode for mode in modes)


@contextmanager
def without_function_modes() -> Iterator[None]:
    """Within the block no mode sees what is called in torch. The public way takes one mode off, and is for its author.

    When it goes: `torch.overrides` has to offer the stack, which it keeps.
    """
    with ExitStack() as stack:
        for _ in range(number_of_function_modes()):
            stack.enter_context(torch.overrides._pop_mode_temporarily())
        yield


def inside_transform() -> bool:
    """Whether `torch.func` (`grad`, `vmap`, ...) or forward-mode autograd is at work. Torch has no public question."""
    return torch._C._are_functorch_transforms_active() or torch.autograd.forward_ad._current_level >= 0


def without_transforms() -> Any:
    """Runs a block outside `torch.func`: operators there mean what they say. The public way does not exist."""
    from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

    return temporarily_clear_interpreter_stack()


def dynamo_inlines(function: Any) -> Callable[[_Function], _Function]:
    """Makes Dynamo look into the decorated function wherever `function` is called; a run outside it costs nothing more.

    Dynamo itself puts this mark on what it makes. When it goes: `torch.compiler.is_dynamo_compiling()` in each call.
    """

    def mark(inlined: _Function) -> _Function:
        function._torchdynamo_inline = inlined
        return inlined

    return mark


def is_bookkeeping(attribute: str) -> bool:
    """Whether `fully_shard` and its kin keep notes of a module in this attribute, which no forward reads.

    They make the names when they are imported, from one root. When it goes: they are attributes like others.
    """
    return attribute.startswith("__composable_api_state_key")


def has_hooks(tensor: torch.Tensor) -> bool:
    """Whether gradient hooks are registered on a tensor. Only the methods that register them are public."""
    return bool(tensor._backward_hooks or tensor._post_accumulate_grad_hooks)


def shape_env() -> Any:
    """Torch's solver for symbolic sizes. Importing it brings sympy, so it waits for the first trace that wants one."""
    return _solver_class()()


@cache
def _solver_class() -> Any:
    import sympy
    from sympy.logic.boolalg import Boolean
    from torch.fx.experimental.symbolic_shapes import ShapeEnv
    from torch.utils._sympy.symbol import SymT, symbol_is_type

    def is_solved(asked: Any, symbols: list[Any]) -> bool:
        """Whether the solver can tell a symbol from an equation: there is one, and it is linear."""
        linear = (sympy.Add, sympy.Mul, sympy.Symbol, sympy.Number, sympy.core.relational.Relational)
        return len(symbols) == 1 and all(isinstance(part, linear) for part in sympy.preorder_traversal(asked))

    class Solver(ShapeEnv):
        """Learns that a size by data is zero or one, where a program says so.

        Torch's own keeps such a size a symbol, since it answers some questions as if there were two or more: then the
        code that inductor makes for `x * y` would read a `y` of one element as if it had as many as `x`.

        Where an operator is content with a guess (`guard_or_false`), and the guess is wrong of values that are known,
        these decide.

        Attributes:
            is_cautious: They decide in any case.
        """

        is_cautious = False

        def evaluate_sym_node(self, sym_node: Any, size_oblivious: bool = False, fallback_value: Any = None) -> Any:
            values = self.real_tensor_prop_unbacked_vals
            asked = self.simplify(sym_node.expr) if values else sympy.true
            unbacked = [s for s in asked.free_symbols if symbol_is_type(s, (SymT.UNBACKED_INT, SymT.UNBACKED_FLOAT))]
            if unbacked and all(s in values for s in unbacked):
                actual = asked.xreplace({s: values[s] for s in unbacked}).xreplace(self.backed_var_to_val)
                is_size = fallback_value is not None or not isinstance(asked, Boolean)
                if self.is_cautious or actual != fallback_value:
                    fallback_value = None
                if fallback_value is None and is_size and not is_solved(asked, unbacked):
                    for symbol in unbacked:  # of `2 - u0 % 2 == 1` it would remember nothing that inductor hears
                        self.evaluate_expr(sympy.Eq(symbol, values[symbol]))
            return super().evaluate_sym_node(sym_node, size_oblivious, fallback_value)

        def _set_replacement(self, a: Any, tgt: Any, msg: str) -> None:
            if tgt.is_Integer and tgt < 2:
                self.size_like.discard(a)
            super()._set_replacement(a, tgt, msg)

    return Solver


def new_size(env: Any, hint: int, name: str, bounds: tuple[int, int | None] | None) -> Any:
    """A symbolic size, or the number itself where torch never makes it symbolic (zero and one).

    Args:
        env: The solver.
        hint: The size of the example.
        name: What errors of the solver call it.
        bounds: The least and the greatest value that the user promised.
    """
    from torch._dynamo.source import ConstantSource
    from torch.fx.experimental.symbolic_shapes import DimDynamic
    from torch.utils._sympy.numbers import int_oo
    from torch.utils._sympy.value_ranges import ValueRanges

    source = ConstantSource(name)
    symbol = env.create_symbol(hint, source, dynamic_dim=DimDynamic.DYNAMIC)
    if symbol.is_Integer:
        return int(symbol)
    if bounds is not None:
        least, most = bounds
        limits = ValueRanges(max(least, 2), int_oo if most is None else most)
        env.var_to_range[symbol] = env.var_to_range[symbol] & limits
    return env.create_symintnode(symbol, hint=hint, source=source)


def solver_of(number: Any) -> Any:
    """The `ShapeEnv` that a symbolic number belongs to."""
    return number.node.shape_env


def expression_of(number: Any) -> Any:
    """The sympy expression of a symbolic number, as far as it is known now; numbers have no public access to it."""
    return number.node.expr


def value_ranges(env: Any) -> dict[Any, tuple[int | None, int | None]]:
    """For each symbol of a solver, the least and the greatest value that were assumed; None where there is none."""
    found = {}
    for symbol, limits in env.var_to_range.items():
        found[symbol] = tuple(int(x) if x.is_Integer else None for x in (limits.lower, limits.upper))
    return found  # type: ignore[return-value]


def assumptions(env: Any) -> list[tuple[Any, str]]:
    """What the solver assumed of its symbols on the way: expressions, simplified, each with a place in the source."""
    found: list[tuple[Any, str]] = []
    for guard in env.guards:
        expression = env.simplify(env.replace(guard.expr))
        if expression not in (True, False):
            frame = guard.sloc.framework_loc
            place = guard.sloc.maybe_user_loc or (f"{frame.filename}:{frame.lineno}" if frame is not None else "")
            found.append((expression, place))
    return found


def original_expression_of(number: Any) -> Any:
    """The sympy expression that a symbolic number was made with, whatever is known of it by now."""
    return number.node._expr


def assertions(env: Any) -> list[tuple[Any, Any, bool]]:
    """What must hold of numbers that only the run will tell, as `torch._check` demanded, each with its stack.

    The third element says that the program only assumed it: see `tell_unknowns`.
    """
    asserts = [a for group in env.deferred_runtime_asserts.values() for a in group]
    return [(a.expr, a.stack.summary(), str(a.msg).startswith(_ASSUMED)) for a in asserts]


def is_checked_by(is_file: Callable[[str], bool], stack: Any) -> bool:
    """Whether code of some files called `torch._check` itself, in the stack of an assertion.

    Args:
        is_file: Says which files.
        stack: From the outermost frame to the innermost.
    """
    names = [frame.filename for frame in stack]
    check = max((i for i, name in enumerate(names) if name.endswith(os.path.join("torch", "__init__.py"))), default=0)
    while check and names[check].endswith(os.path.join("torch", "__init__.py")):
        check -= 1
    return is_file(names[check])


def as_python(expression: Any, names: Mapping[Any, str]) -> str:
    """A sympy expression as Python text; torch's own printer knows the functions that sizes are made with."""
    from torch.utils._sympy.printers import PythonPrinter

    class Printer(PythonPrinter):
        def _print_Symbol(self, expr: Any) -> str:
            return names[expr]

        def _print_IsNonOverlappingAndDenseIndicator(self, expr: Any) -> str:
            return f"torch.utils._sympy.functions.{expr.func.__name__}({', '.join(map(self._print, expr.args))})"

    text: str = Printer().doprint(expression)
    return text


def evaluate(expression: Any, values: Mapping[Any, Any]) -> Any:
    """Computes a sympy expression by Python operators on `values`, which may be proxies of a graph."""
    from torch.utils._sympy.interp import sympy_interp
    from torch.utils._sympy.reference import PythonReferenceAnalysis

    return sympy_interp(PythonReferenceAnalysis, dict(values), expression)


def python_dispatcher() -> Any:
    """Lets shape functions written in Python go before those in C++, which take no symbolic sizes."""
    from torch._dispatch.python import enable_python_dispatcher

    return enable_python_dispatcher()


def statically_known_true(condition: Any) -> bool:
    """Whether a condition on sizes holds for all sizes that are possible. Assumes nothing new."""
    if isinstance(condition, bool):
        return condition
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    return bool(statically_known_true(condition))


def bindings_of(env: Any, numbers: list[Any], result: Any) -> Any:
    """Where in an operator's result its unknown numbers are found, as inductor wants it on the node."""
    from torch.fx.experimental.symbolic_shapes import compute_unbacked_bindings

    env.pending_fresh_unbacked_symbols[:] = [s for n in numbers for s in n.node.expr.free_symbols]
    return compute_unbacked_bindings(env, result)


def new_unbacked(env: Any, kind: str) -> Any:
    """A number that depends on data: a "size", which is not negative, an "int", a "float" or a "bool"."""
    from torch.fx.experimental.symbolic_shapes import _constrain_range_for_size

    make = {"bool": env.create_unbacked_symbool, "float": env.create_unbacked_symfloat}
    number = make.get(kind, env.create_unbacked_symint)()
    if kind == "size":
        _constrain_range_for_size(number)
    env.pending_fresh_unbacked_symbols.clear()  # which operator made it is known here, and not to be searched for
    return number


def tell_unknowns(env: Any, value_of: Callable[[Any], Any], is_cautious: bool) -> None:
    """Has a solver decide what a program assumes of numbers that depend on data, where their values are known.

    Each assumption is then among `assertions`, by its message. Torch does so where it propagates real tensors.

    Args:
        env: The solver.
        value_of: Gives the value of a symbol, or None.
        is_cautious: Whether they decide, too, where an operator is content with a guess.
    """
    import sympy

    class Values(dict[Any, Any]):
        """Asked when it is needed, and not before: a value costs a run of what was recorded."""

        def __len__(self) -> int:
            return 1

        def __contains__(self, symbol: object) -> bool:
            return isinstance(symbol, sympy.Symbol) and value_of(symbol) is not None

        def __getitem__(self, symbol: Any) -> Any:
            return sympy.sympify(value_of(symbol))

        def get(self, symbol: Any, default: Any = None) -> Any:
            return self[symbol] if symbol in self else default

    env.real_tensor_prop_unbacked_vals = Values()
    env.is_cautious = is_cautious


@contextmanager
def quiet_about_unknowns() -> Iterator[None]:
    """Within the block the solver does not log a warning for each assumption of that kind."""
    log = logging.getLogger("torch.fx.experimental.symbolic_shapes")

    def passes(record: logging.LogRecord) -> bool:
        return not str(record.msg).startswith(_ASSUMED)

    log.addFilter(passes)
    try:
        yield
    finally:
        log.removeFilter(passes)


_ASSUMED = "propagate_real_tensors"


def is_unbacked_asked(error: BaseException) -> bool:
    """Whether an error says that a program branches on a number that depends on data."""
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

    return isinstance(error, GuardOnDataDependentSymNode)


def mark_static_address(tensor: torch.Tensor) -> None:
    """Torch's own mark for tensors that stay in place. Its function is in `torch._dynamo`, which is slow to import."""
    tensor._dynamo_static_input_type = "unguarded"  # type: ignore[attr-defined]


def has_static_address(tensor: torch.Tensor) -> bool:
    """Whether a tensor has the mark that `torch._dynamo.mark_static_address` makes. No public way asks for it."""
    return getattr(tensor, "_dynamo_static_input_type", None) is not None


def foreign_two_tensor() -> Any:
    """Torch's own example of a wrapper class: one that knows nothing of this library, to test with."""
    from torch.testing._internal.two_tensor import TwoTensor

    return TwoTensor


BASE = "_base"
base_of: Callable[[Any], Any] = operator.attrgetter(BASE)
"""The tensor that autograd knows a tensor to be a view of, or None. The manual of autograd has no other name for it."""

IS_VIEW = "_is_view"
is_view: Callable[[Any], bool] = operator.methodcaller(IS_VIEW)
"""Whether autograd knows a tensor to be a view, which may be so where it does not say of what. No public question."""

version_of: Callable[[Any], int] = operator.attrgetter("_version")
"""How often a tensor was written, which is what autograd compares. The manual of autograd has no other name for it."""


def is_held_in_cpp(tensor: torch.Tensor) -> bool:
    """Whether C++ refers to a tensor, too, beside its Python object. No public way counts what C++ has."""
    return bool(tensor._use_count() > 1)  # type: ignore[attr-defined]


def mark_as_parameter(tensor: torch.Tensor) -> None:
    """Makes `isinstance(tensor, nn.Parameter)` true, as torch does for parameters of other classes than `Tensor`."""
    tensor._is_param = True


def is_mark(attribute: str) -> bool:
    """Whether torch itself keeps a note on a tensor in this attribute: that it is a parameter, or one of Dynamo's."""
    return attribute.startswith(("_dynamo_", "_is_param"))


def overload_name_of(func: Any) -> str:
    """The name of an overload among those of its operator, "" for the first; `str(func)` has another for that."""
    return str(func._overloadname)


def ragged_dim_of(jagged: Any) -> int:
    """Which dimension of a jagged tensor is ragged. Only its size is public, which is a nested int there."""
    return int(jagged._ragged_idx)


def parts_of_jagged(jagged: Any) -> tuple[Any, Any]:
    """The elements of a jagged tensor, and the offsets of its rows; the public methods make views, which are traced."""
    return getattr(jagged, JAGGED_VALUES), jagged._offsets


def known_lengths_of(jagged: Any) -> tuple[int | None, int | None]:
    """The shortest and the longest row of a jagged tensor, where it knows them. The public way would count."""
    return jagged._maybe_min_seqlen, jagged._maybe_max_seqlen


BOXED = "_boxed_call"
"""The attribute by which a function says whether it takes its arguments as one list, which AOTAutograd made a rule."""

PARAMETERS, BUFFERS, SUBMODULES = "_parameters", "_buffers", "_modules"
MODULE_TABLES = (PARAMETERS, BUFFERS, SUBMODULES)
"""The tables of every module that hold tensors and modules. The public methods make new ones, and leave out None."""

parameters_of: Callable[[torch.nn.Module], dict[str, Any]] = operator.attrgetter(PARAMETERS)
buffers_of: Callable[[torch.nn.Module], dict[str, Any]] = operator.attrgetter(BUFFERS)
submodules_of: Callable[[torch.nn.Module], dict[str, Any]] = operator.attrgetter(SUBMODULES)

MODULE_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
"""The tables of every module that hold functions which run when it is called. Public are only those that register."""

HOW_HOOKS_RUN = (
    "_forward_hooks_with_kwargs", "_forward_hooks_always_called", "_forward_pre_hooks_with_kwargs",
    "_is_full_backward_hook",
)  # fmt: skip
"""What every module notes of its hooks: of the same kind."""

NOT_READ_BY_FORWARD = (
    "_non_persistent_buffers_set", "_state_dict_hooks", "_state_dict_pre_hooks", "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks", "_compiled_call_impl",
)  # fmt: skip
"""What every module notes, and no forward reads. When a name goes, so does it here; a new one is an attribute."""
