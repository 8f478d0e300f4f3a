"""Wrapper tensors: how they are made, and what C++ has of them; the classes that torch brings itself."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

import torch

from subclass_aot.base._torch.operators import Operator

make_wrapper_subclass: Any = torch.Tensor._make_wrapper_subclass
"""The only documented way to make a tensor with no storage of its own; every wrapper subclass uses it."""

disabled_torch_function_impl: Any = torch._C._disabled_torch_function_impl
"""Turns `__torch_function__` off for a class; else every attribute read passes through Python."""

if TYPE_CHECKING:

    class Wrapper(torch.Tensor):
        """A tensor with the flatten protocol. Torch has a type for it, which is not known to be a tensor."""

        def __tensor_flatten__(self) -> tuple[Sequence[str], Any]: ...

        @staticmethod
        def __tensor_unflatten__(inner: Any, context: Any, size: Sequence[Any], stride: Sequence[Any]) -> Any: ...

    def is_traceable_wrapper_subclass(value: object) -> TypeGuard[Wrapper]: ...

else:

    def is_traceable_wrapper_subclass(value: object) -> bool:
        """Returns whether a tensor has the flatten protocol, by torch's own test.

        When that goes: a subclass of `Tensor` that has both methods.
        """
        return type(value) not in DENSE and _has_flatten_protocol(value)


_has_flatten_protocol = torch.utils._python_dispatch.is_traceable_wrapper_subclass
DENSE: set[type] = {torch.Tensor, torch.nn.Parameter}
"""Classes of tensors that are no wrappers, most of those that there are."""


def says_nothing_of_parts(tensor: torch.Tensor) -> bool:
    """Returns whether a tensor without memory is made of others, and its class has no flatten protocol that would name
    them.

    Only the function that makes such tensors knows: their memory cannot be read. When it goes: any class with a
    `__torch_dispatch__` of its own, and without the protocol.
    """
    cls = type(tensor)
    if cls.__torch_dispatch__ is torch.Tensor.__torch_dispatch__ or is_traceable_wrapper_subclass(tensor):
        return False
    if isinstance(tensor, _MADE_BY_TRACES):
        return False
    try:
        with torch._C.DisableTorchFunctionSubclass():
            tensor.untyped_storage().data_ptr()
    except RuntimeError:
        return True
    return False


is_opaque_value: Callable[[object], bool] = torch._library.opaque_object.is_opaque_value
"""Whether a value that is no tensor may stand among inner tensors, as the mesh of a `DTensor`. No public test."""


def is_distributed(value: object) -> bool:
    """Returns whether a value is a `DTensor`, whose module is slow to import; what was not imported cannot be one."""
    module: Any = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(value, module.DTensor)


_MADE_BY_TRACES = torch._subclasses.fake_tensor.FakeTensor, torch._subclasses.functional_tensor.FunctionalTensor


def is_of_torchs_trace(tensor: object) -> bool:
    """Returns whether a dense tensor is one that torch's own tracers make: without data, or one that writes replace."""
    return isinstance(tensor, _MADE_BY_TRACES)


def is_of_another_tracer(value: object) -> bool:
    """Returns whether a value is a tensor that stands for another one while a tracer of torch's runs, or has such
    inside: a fake tensor, or one that a transform replaces where it is written. Nothing public says so.
    """
    if not isinstance(value, torch.Tensor):
        return False
    if isinstance(value, _MADE_BY_TRACES) or torch._is_functional_tensor(value):
        return True
    if not is_traceable_wrapper_subclass(value):
        return False
    return any(is_of_another_tracer(getattr(value, name)) for name in value.__tensor_flatten__()[0])


def behind_functionalization(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the tensor that stands now for one which `torch.func.functionalize` makes for a function; any other as it
    is. Nothing public gives it.
    """
    while torch._is_functional_tensor(tensor):
        torch._sync(tensor)  # type: ignore[attr-defined, no-untyped-call]
        tensor = torch._from_functional_tensor(tensor)
    return tensor


NEW_DTYPES: frozenset[torch.dtype] = frozenset(torch.storage._new_dtypes())
"""Dtypes of tensors that `torch.save` takes and `pickle` does not: their storages have no dtype. No public list."""


def set_geometry(
    tensor: torch.Tensor,
    size: Sequence[int | torch.SymInt],
    stride: Sequence[int | torch.SymInt],
    offset: int | torch.SymInt,
) -> None:
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


def apply_to_outer(func: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
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


disable_torch_dispatch: Any = torch._C._DisableTorchDispatch
"""While it lives, an operator acts on a wrapper's own sizes and strides, not on what it holds."""

alias_outer_storage: Any = torch._functionalize_unsafe_set
"""Makes a wrapper that is a view share its base's (unused) storage: there torch reads what aliases what.

When it goes: `set_` below dispatch.
"""


def contiguous_stride(size: tuple[Any, ...]) -> tuple[Any, ...]:
    """Returns the strides of a tensor whose elements lie one after the other. Torch's function takes symbols, too.

    When it goes: products of the sizes, from the last one on.
    """
    stride, step = [], 1
    for n in reversed(size):
        if type(n) is not int:
            return torch._prims_common.make_contiguous_strides_for(size)
        stride.append(step)
        step *= n or 1
    return tuple(reversed(stride))


def is_nested_int(size: object) -> bool:
    """Returns whether `size` is the ragged dimension of a jagged tensor, a SymInt that stands for no number.

    No public test.
    """
    return isinstance(size, torch.SymInt) and size.node.is_nested_int()


def same_number(one: int | torch.SymInt, other: int | torch.SymInt) -> bool:
    """Returns whether two numbers of one trace are one expression. `==` would add a guard; no public test."""
    a, b = (n.node.expr if isinstance(n, torch.SymInt) else n for n in (one, other))
    return bool(a == b)


def is_jagged(cls: type) -> bool:
    """Returns whether `cls` is torch's class of tensors with a ragged dimension.

    See Note [Jagged tensors]. It has no name.
    """
    return cls.__module__ == "torch.nested._internal.nested_tensor" and cls.__name__ == "NestedTensor"


JAGGED_VALUES = "_values"
"""The inner tensor of a jagged tensor that holds its elements; the others say where each row begins and ends."""


def context_of_new(cls: type, context: Any) -> Any:
    """Returns the context to make a wrapper with: a jagged tensor has `requires_grad` in it, which is the call's to
    set.
    """
    return {**context, "requires_grad": False} if is_jagged(cls) else context


def mirrors_requires_grad(cls: type) -> bool:
    """Returns whether `cls` sets `requires_grad` on its inner tensors itself, to no effect: autograd sees the outer one
    only.

    True of torch's own `DTensor`, jagged tensors and results of collectives, whose inner tensors nobody else holds.
    """
    return cls.__module__.startswith(("torch.distributed.", "torch.nested."))


def may_tell_requires_grad(cls: type) -> bool:
    """Returns whether `cls` is a wrapper whose context may repeat its `requires_grad`, and is compared with it."""
    return hasattr(cls, "__tensor_flatten__") and not mirrors_requires_grad(cls)


def is_lazy(tensor: torch.Tensor) -> bool:
    """Returns whether a dense tensor is conjugated or negated by a bit that its data do not show."""
    return not is_traceable_wrapper_subclass(tensor) and (tensor.is_conj() or tensor.is_neg())


def is_jagged_or_lazy(tensor: torch.Tensor) -> bool:
    """Returns whether a tensor has sizes that are no numbers, or a bit that its data do not show."""
    return is_jagged(type(tensor)) or is_lazy(tensor)


def forget_jagged_dummy() -> None:
    """Releases the jagged tensor that torch makes once for its own use, if that was while a function was traced."""
    module = sys.modules.get("torch.nested._internal.nested_tensor")
    dummy = getattr(module, "_dummy_instance", None)
    if dummy is not None and not type(dummy._offsets) is type(dummy._values) is torch.Tensor:
        module._dummy_instance = None  # type: ignore[union-attr]


def foreign_two_tensor() -> Any:
    """Returns torch's own example of a wrapper class: one that knows nothing of this library, to test with."""
    from torch.testing._internal.two_tensor import TwoTensor

    return TwoTensor


def ragged_dim_of(jagged: object) -> int:
    """Returns which dimension of a jagged tensor is ragged. Only its size is public, which is a nested int there."""
    return int(getattr(jagged, "_ragged_idx"))  # noqa: B009


def ragged_size_of(jagged: torch.Tensor) -> Any:
    """Returns the size of the ragged dimension of a jagged tensor, a nested int; None of any other tensor."""
    return jagged.shape[ragged_dim_of(jagged)] if is_jagged(type(jagged)) else None


def nested_int_of(structure: torch.Tensor) -> Any:
    """Returns the nested int of the jagged tensors that have these offsets (these lengths, if they have some)."""
    from torch.nested._internal.nested_tensor import get_tensor_symint

    return get_tensor_symint(structure, coeff=1)


def structure_behind(nested_int: Any) -> torch.Tensor | None:
    """Returns the offsets, or the lengths, that a nested int stands for. Only torch's registry of them says it."""
    from torch.nested._internal.nested_tensor import _tensor_symint_registry

    return next((x for x, known in [*_tensor_symint_registry.items()] if known.node is nested_int.node), None)


def view_as_jagged(
    values: torch.Tensor,
    offsets: torch.Tensor,
    lengths: torch.Tensor | None = None,
    ragged_dim: int = 1,
    *known: torch.Tensor | None,
) -> torch.Tensor:
    """Makes the view of its elements that a jagged tensor is.

    The operator is also given an example of the class, which torch makes once, for itself. The public function makes
    the tensors that hold the known lengths, and is given these.
    """
    from torch.nested._internal.nested_tensor import _nt_view_dummy

    view: torch.Tensor = torch._nested_view_from_jagged(values, offsets, _nt_view_dummy(), lengths, ragged_dim, *known)
    return view


def parts_of_jagged(jagged: object) -> tuple[Any, Any]:
    """Returns the elements of a jagged tensor, and the offsets of its rows; the public methods make views, which
    are traced.
    """
    return getattr(jagged, JAGGED_VALUES), getattr(jagged, "_offsets")  # noqa: B009


def parts_of_sparse(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the indices and the values of a tensor in coordinate format; the public methods refuse one not
    coalesced.
    """
    return tensor._indices(), tensor._values()


def known_lengths_of(jagged: object) -> tuple[int | None, int | None]:
    """Returns the shortest and the longest row of a jagged tensor, where it knows them. The public way would count."""
    return getattr(jagged, "_maybe_min_seqlen"), getattr(jagged, "_maybe_max_seqlen")  # noqa: B009


def dispatch_keys(tensor: torch.Tensor) -> Any:
    """Returns the dispatch keys of a tensor, by which operators find their kernels. No public form."""
    return torch._C._dispatch_keys(tensor)


_DECORATORS = (
    "torch/_compile.py",
    "torch/_dynamo/",
    "torch/_export/",
    "torch/compiler/",
    "torch/export/",
    "torch/utils/_python_dispatch.py",
)


def decorates_constructors(filename: str) -> bool:
    """Returns whether a file of torch has what decorates constructors of wrappers, which leaves nothing behind.

    It keeps Dynamo out of them, and reports them to exports. Its files have no public names.
    """
    return filename.startswith(_ROOT) and filename.removeprefix(_ROOT).replace("\\", "/").startswith(_DECORATORS)


_ROOT = torch.__file__.removesuffix("torch/__init__.py")


def _exported_constructor(self: torch.Tensor, /, *args: object, **kwargs: object) -> None:
    """Does nothing: torch's decorator needs a constructor to wrap, and the tensor is made already."""


_exported_constructor.__name__ = _exported_constructor.__qualname__ = "__init__"  # torch takes no other


def tell_export_constructed(made: torch.Tensor, fields: Mapping[str, Any]) -> None:
    """Reports to an export, if one records calls now, that `made` is what its class makes of `fields`.

    A graph before dispatch has operators on wrappers, so one that the program makes has to come from a node. Torch
    offers a decorator of `__init__` for that, which is private yet. A field that no node gave is left alone: what is
    made of it stands for an input. When it goes: leave this out, and exports of programs that make wrappers fail.
    """
    from torch import _export

    wrappers: Any = _export.wrappers
    mode = wrappers._maybe_find_pre_dispatch_tf_mode_for_export()
    tensors = [x for x in torch.utils._pytree.tree_leaves(dict(fields)) if isinstance(x, torch.Tensor)]
    if mode is None or any(mode.tracer.unwrap_proxy(x) is x for x in tensors):
        return
    wrappers.mark_subclass_constructor_exportable_experimental(_exported_constructor)(made, **fields)
