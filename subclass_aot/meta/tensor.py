"""`MetaTensor`: a leaf without data."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, SupportsIndex

import torch

from subclass_aot.base import _torch
from subclass_aot.base._stack import is_own, user_line
from subclass_aot.base.codegen import constant_checks
from subclass_aot.base.later import Later
from subclass_aot.base.missing import noting_getattr
from subclass_aot.base.shown_type import show_as
from subclass_aot.base.weak import is_weak
from subclass_aot.errors import DataDependentError, TraceError
from subclass_aot.meta.listener import Answers
from subclass_aot.meta.spec import Spec, indexed, native_device
from subclass_aot.meta.storage import Storage
from subclass_aot.meta.texts import is_asked_for, metadata_text, text_of
from subclass_aot.meta.threads import real_input

_NO_MEMORY = """`{call}` asks for the memory of a tensor, and a traced tensor has none.
  Your line:  {line}
  The tensor: {tensor}
  Instead: call it outside the traced function, or put what needs the memory into a custom operator."""

_CONSTANT = """A tensor of a trace, which has no data, would be a constant of generated code, and stay it at each call.
  The constant: {name} = {value!r:.200}
  The tensor:   {tensor}
  Instead: hold the tensor as an argument, as an attribute, or in a list or dict, where a call finds its own one."""

_UNKNOWN_PARTS = """A {cls} has no form without data: it is made of other tensors, and its class does not say which.
  Instead: give {cls} the methods __tensor_flatten__ and __tensor_unflatten__, or pass its tensors and make it inside;
  for a torch.masked.MaskedTensor take a subclass_aot.tensors.MaskedTensor."""

_NO_FRONT = """A traced tensor cannot be of the class {cls}: {reason}
  Your line:  {line}
  Its objects have another layout in memory than those of `Tensor`, as with `__slots__`.
  Instead: keep such attributes in the `__dict__`, without slots; or use `x.as_subclass(torch.Tensor)` there."""

_NO_LEAF = """Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment.
  If you were attempting to deepcopy a module, this may be because of a torch.nn.utils.weight_norm usage, see
  https://github.com/pytorch/pytorch/pull/103001"""
"""What torch says of a copy of a tensor that autograd has computed."""

_GRAD: Any = torch.Tensor.grad  # the property
_CLASS: Any = vars(object)["__class__"]


class _OfClass:
    """A function of the class alone: a tensor has no such attribute, and a program may give it one."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.__wrapped__ = function
        self.__doc__ = function.__doc__

    def __get__(self, tensor: object, cls: type | None = None) -> Any:
        if tensor is not None:
            raise AttributeError(f"{type(tensor).__name__!r} object has no attribute {self.__wrapped__.__name__!r}")
        return self.__wrapped__


class _Spec:
    """Shows the metadata of a tensor without data, except to a program that is traced: its tensors have no such
    attribute, unless it gives them one.
    """

    def __get__(self, tensor: Any, cls: type | None = None) -> Any:
        if tensor is None:
            return self
        if tensor.meta_tag is not None:
            raise AttributeError(f"{type(tensor).__name__!r} object has no attribute 'spec'")
        return tensor.meta_spec


around_backward: Later[..., AbstractContextManager[None]] = Later("gradients_without_data", nullcontext)
"""Makes what `backward` of a tensor without data runs in. `mode.py` imports this file."""


class MetaTensor(torch.Tensor):
    """A tensor without data: it has a `Spec`, takes part in autograd, and costs no memory and no arithmetic.

    Args:
        tensor: Any dense tensor; its size, stride, dtype and device are taken, its data is not.
        device: The device to claim instead of the tensor's. Hardware is not needed.

    Raises:
        TraceError: For sparse tensors and for lazily conjugated or negated ones.

    >>> x = MetaTensor(torch.rand(10**10, 3, device="meta"))
    >>> (x @ x.new_empty(3, 5)).shape
    torch.Size([10000000000, 5])
    """

    __slots__ = ("meta_spec", "meta_tag", "meta_storage", "_is_param")
    __torch_function__ = _torch.wrappers.disabled_torch_function_impl
    __torch_dispatch__: Any  # is set in `dispatch.py`, which makes tensors of this class

    meta_spec: Spec
    meta_tag: Any
    """Belongs to the recorder; None where there is none. One whose `graph` says `is_over` is of a finished trace."""
    is_over: Callable[[object], bool]
    """Whether a value is a tensor of a trace that is over."""
    spec = _Spec()
    """Its metadata."""
    meta_front: Callable[[MetaTensor, type[torch.Tensor]], Any]
    """Makes a tensor of a plain subclass, which stands before a leaf."""
    meta_storage: Storage
    """What it shares with its views: see `Storage.of`."""
    _is_param: bool
    """Whether it is a parameter, as torch notes it; beside the `__dict__`, which is the program's to read and clear."""

    def __new__(cls, tensor: torch.Tensor, device: str | torch.device | None = None) -> MetaTensor:
        return new_leaf(Spec.of(tensor, indexed(device) if device is not None else None))

    @_OfClass
    def like(tensor: torch.Tensor, device: str | torch.device | None = None) -> Any:
        """Returns a tensor without data like `tensor`: same class, sizes, strides, dtype and `requires_grad`.

        A wrapper tensor stays one: its inner tensors become `MetaTensor`s.

        Args:
            tensor: A dense tensor, a traceable wrapper, or a parameter of either kind.
            device: The device to claim instead of the tensor's own.

        Raises:
            TraceError: It is made of other tensors, and its class does not say which they are.
        """
        return _like(tensor, torch.device(device) if device is not None else None)

    @property
    def __class__(self) -> type:
        """Its class; to a program that is traced, that of a tensor at a call. See Note [Types in a trace]."""
        return _shown_type(self)

    @__class__.setter
    def __class__(self, cls: type) -> None:
        if cls is not _shown_type(self):  # as `swap_tensors` assigns it to another
            _CLASS.__set__(self, cls)

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return self.meta_spec.device

    @property
    def is_cuda(self) -> bool:  # type: ignore[override]
        """Whether it claims a device of the type `cuda`."""
        return self.meta_spec.device.type == "cuda"

    def get_device(self) -> int:
        """Returns the index of its device; -1 of those that have none."""
        return -1 if self.meta_spec.device.type in ("cpu", "meta") else self.meta_spec.device.index

    @property
    def is_meta(self) -> bool:  # type: ignore[override]
        """True, since it has no data; in a trace, what the tensor says that it stands for."""
        return getattr(self, "meta_tag", None) is None or self.meta_spec.device.type == "meta"

    @property
    def data(self) -> Any:
        """This tensor without its autograd history. Assigning gives it the metadata and the storage of another."""
        return torch.Tensor.data.__get__(self)  # type: ignore[attr-defined]

    @data.setter
    def data(self, value: torch.Tensor) -> None:
        for mode in _torch.dispatch.dispatch_modes():
            if isinstance(mode, Answers):
                stands_for_it = mode.replaced(self, value)
                value = value if stands_for_it is None else stands_for_it
        torch.Tensor.data.__set__(self, value)  # type: ignore[attr-defined]
        self.meta_spec = value.meta_spec if isinstance(value, MetaTensor) else Spec.of(value)
        self.meta_storage = Storage.of(value)
        self.meta_tag = value.meta_tag if isinstance(value, MetaTensor) else None

    @property
    def grad(self) -> Any:
        """Its gradient. A trace notes that it was asked for: whether an input has one is a fact of the call."""
        real = real_input(getattr(self, "meta_tag", None))
        if real is not None:
            return real.grad
        _note_gradient(self)
        return _GRAD.__get__(self)

    @grad.setter
    def grad(self, value: torch.Tensor | None) -> None:
        real = real_input(getattr(self, "meta_tag", None))
        _note_gradient(self)
        _GRAD.__set__(self if real is None else real, value)

    @grad.deleter
    def grad(self) -> None:
        _note_gradient(self)
        _GRAD.__delete__(self)

    def storage_offset(self) -> Any:
        """Returns where it begins in its storage, and notes in a trace that a program reads it: that is a fact of
        the call.
        """
        node: Any = Storage.of(self).tag
        if hasattr(node, "graph") and hasattr(node.graph, "begins_read") and not is_own(sys._getframe(1)):
            node.graph.begins_read.append(node)
        return self.meta_spec.offset

    def to(self, *args: Any, **kwargs: Any) -> Any:
        """Does what `Tensor.to` does; a device without an index, for which C++ would need the current one, may be
        absent.
        """
        other = args[0] if args else kwargs.pop("other", None)
        if isinstance(other, torch.Tensor):  # C++ does not know the device that it claims
            args = other.device, other.dtype, *args[1:]
        if kwargs.get("device") is not None:
            kwargs["device"] = indexed(kwargs["device"])
        args = tuple([indexed(a) if isinstance(a, str | torch.device) else a for a in args])
        own = self.meta_spec.device
        if native_device(own) != own:  # C++ does not know that it is there
            if kwargs.get("device") == own:
                del kwargs["device"]
            elif args and args[0] in (own, None):
                _, dtype, *options = (*args, None) if len(args) == 1 else args
                args = dtype or self.dtype, *options
            args = args if args or kwargs.get("dtype") is not None else (self.dtype,)
        return torch.Tensor.to(self, *args, **kwargs)

    def type_as(self, other: torch.Tensor) -> Any:
        """Does what `Tensor.type_as` does, with the device that the other one claims."""
        return self.to(other.device, other.dtype)

    def cuda(self, device: str | int | torch.device | None = None, *args: object, **kwargs: object) -> Any:
        """Does what `Tensor.cuda` does, in `meta()` without the hardware, too."""
        device = torch.device("cuda", device) if isinstance(device, int) else torch.device(device or "cuda")
        return self.to(device, None, *args, **kwargs)

    def backward(self, *args: Any, **kwargs: Any) -> None:
        """Does what `Tensor.backward` does. What autograd makes on the way has no data either."""
        with around_backward(self):
            torch.Tensor.backward(self, *args, **kwargs)  # type: ignore[no-untyped-call]

    def untyped_storage(self) -> torch.UntypedStorage:
        """Returns its storage, which has a size and no memory."""
        real = real_input(self.meta_tag)
        return self.meta_storage.handle() if real is None else real.untyped_storage()

    def set_(self, source: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Does what `Tensor.set_` does.

        A tensor as source of which a part is taken is a storage: C++ would read its own.
        """
        if isinstance(source, torch.Tensor) and (args or kwargs):
            source = source.untyped_storage()
        return torch.Tensor.set_(self, *[x for x in (source, *args) if x is not None], **kwargs)

    def data_ptr(self) -> int:
        """Returns zero, and raises in a trace."""
        real = real_input(getattr(self, "meta_tag", None))
        if real is None and getattr(self, "meta_tag", None) is not None:
            raise _no_memory(self, "data_ptr()")
        return torch.Tensor.data_ptr(self if real is None else real)

    def tolist(self) -> Any:
        """Returns the elements, where they are known."""
        values = _elements(self) if self.dim() else None
        if values is not None:
            return values.tolist()
        try:
            return [part.tolist() for part in self.unbind()] if self.dim() else self.item()
        except DataDependentError:
            return torch.Tensor.tolist(self)  # says what was called

    def numpy(self, *, force: bool = False) -> Any:
        """Returns the elements, where they are known and may be read."""
        real, stream = real_input(getattr(self, "meta_tag", None)), _torch.dispatch.current_dispatch_mode()
        if real is not None or not isinstance(stream, Answers):
            return torch.Tensor.numpy(self if real is None else real, force=force)
        if not force and self.requires_grad and torch.is_grad_enabled():  # eager mode gives no array either
            with _torch.dispatch.disable_current_modes():
                return torch.empty(0, requires_grad=True).numpy()
        values = stream.memory(self)
        if values is None:
            return torch.Tensor.numpy(self, force=force)
        with _torch.dispatch.disable_current_modes():
            array = values.numpy(force=force).copy(order="K")  # which the program may write
        stream.on_array(self, array)
        return array

    __getattr__ = noting_getattr

    def __format__(self, spec: str) -> str:
        real = real_input(getattr(self, "meta_tag", None))
        if real is not None:
            return format(real, spec)
        if is_asked_for(sys._getframe(1), self):
            return text_of(self, _shown_type(self), self, spec)
        stream = _torch.dispatch.current_dispatch_mode()
        known = stream.value_of(self) if isinstance(stream, Answers) and not self.dim() else None
        if known is not None:
            return format(known.item(), spec)
        return format(self.item(), spec) if not self.dim() and spec else torch.Tensor.__format__(self, spec)  # type: ignore[no-untyped-call]

    def apply_(self, callable: object) -> Any:
        """Returns an error: it would run on memory that is not there."""
        raise _no_memory(self, "apply_()")

    def __dlpack__(self, *args: object, **kwargs: object) -> Any:
        raise _no_memory(self, "__dlpack__()")  # consumers would read at address zero

    def __dlpack_device__(self) -> Any:  # consumers call this first
        raise _no_memory(self, "__dlpack_device__()")

    def __repr__(self, *, tensor_contents: object = None) -> str:  # type: ignore[override]
        real = real_input(getattr(self, "meta_tag", None))
        if real is not None:
            return repr(real)
        if is_asked_for(sys._getframe(1), self):
            return text_of(self, _shown_type(self), self, None)
        return metadata_text(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        real = real_input(getattr(self, "meta_tag", None))
        if real is not None:
            return copy.deepcopy(real, memo)
        if getattr(self, "meta_tag", None) is not None:  # in a trace, a copy is computed
            return self.meta_copied(memo)
        fake: MetaTensor = _rebuild(self.meta_spec, self.requires_grad, isinstance(self, torch.nn.Parameter))
        memo[id(self)] = fake
        return fake

    def meta_copied(self, memo: dict[int, Any]) -> Any:
        """Copies a traced tensor as torch copies one with data; a parameter without its `.grad` and attributes."""
        is_parameter = isinstance(self, torch.nn.Parameter)
        if not self.is_leaf and not is_parameter:
            raise RuntimeError(_NO_LEAF)
        made: Any = self.detach().clone().requires_grad_(self.requires_grad)
        if is_parameter:
            made = torch.nn.Parameter(made, self.requires_grad)
        memo[id(self)] = made
        if not is_parameter:
            if self.grad is not None:
                made.grad = copy.deepcopy(self.grad, memo)
            others = {name: value for name, value in vars(self).items() if name not in vars(made)}
            vars(made).update(copy.deepcopy(others, memo))
        return made

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        real = real_input(getattr(self, "meta_tag", None))
        if real is not None:
            return real.__reduce_ex__(protocol)
        if getattr(self, "meta_tag", None) is not None:
            raise _no_memory(self, "copy or pickle")
        return _rebuild, (self.meta_spec, self.requires_grad, isinstance(self, torch.nn.Parameter))


def _note_gradient(leaf: MetaTensor) -> None:
    """Notes in the graph of a trace that a program reads or changes the `.grad` of a tensor that has this leaf."""
    node: Any = getattr(leaf, "meta_tag", None)
    if hasattr(node, "graph") and hasattr(node.graph, "gradients_asked_for"):
        node.graph.gradients_asked_for.append(node)


def in_front_of(leaf: MetaTensor, cls: type[torch.Tensor]) -> Any:
    """Makes a tensor of a plain subclass, which stands before a leaf. See Note [Plain subclasses].

    Raises:
        TraceError: Tensors of the class cannot be made so.
    """
    spec = leaf.meta_spec
    try:
        metadata = spec.size, spec.stride, spec.offset, None, spec.dtype, spec.layout, native_device(spec.device)
        return _torch.plain_subclasses.make_front(cls, leaf, *metadata)
    except TypeError as error:
        raise TraceError(_NO_FRONT.format(cls=cls.__qualname__, line=user_line(), reason=error)) from error


def _elements(leaf: MetaTensor) -> torch.Tensor | None:
    stream = _torch.dispatch.current_dispatch_mode()
    return stream.elements(leaf) if isinstance(stream, Answers) else None


def _no_memory(leaf: MetaTensor, call: str) -> DataDependentError:
    return DataDependentError(_NO_MEMORY.format(call=call, line=user_line(), tensor=leaf))


def new_leaf(spec: Spec, storage: Storage | None = None) -> MetaTensor:
    """Makes a new leaf.

    Args:
        spec: Its metadata.
        storage: The memory that it shares with others; a new one if left out.
    """
    leaf: MetaTensor = _make(MetaTensor, *spec._blank_args)
    leaf.meta_spec = spec
    leaf.meta_tag = None
    leaf.meta_storage = Storage(spec) if storage is None else storage
    return leaf


def is_over(value: object) -> bool:
    """Returns whether a value is a tensor of a trace that is over."""
    return isinstance(value, MetaTensor) and getattr(getattr(value.meta_tag, "graph", None), "is_over", False)


def _shown_type(value: MetaTensor) -> type:
    if value.meta_tag is None:
        return MetaTensor
    try:
        is_parameter = _IS_PARAMETER.__get__(value)
    except AttributeError:
        return torch.Tensor
    return torch.nn.Parameter if is_parameter else torch.Tensor


show_as(MetaTensor, _shown_type)
show_as(torch.SymInt, lambda _: int)
show_as(torch.SymFloat, lambda _: float)
show_as(torch.SymBool, lambda _: bool)

MetaTensor.meta_front = _OfClass(in_front_of)  # type: ignore[assignment]
MetaTensor.is_over = _OfClass(is_over)  # type: ignore[assignment]


def set_spec(leaf: MetaTensor, spec: Spec) -> None:
    """Gives a leaf another spec in place, as `transpose_` and `resize_` do."""
    _torch.wrappers.set_geometry(leaf, spec.size, spec.stride, spec.offset)
    leaf.meta_spec = spec
    leaf.meta_storage.make_room(spec, leaf.meta_tag is not None and leaf.meta_tag is leaf.meta_storage.tag)


def _rebuild(spec: Spec, requires_grad: bool, is_parameter: bool) -> Any:
    leaf = new_leaf(spec)
    return torch.nn.Parameter(leaf, requires_grad) if is_parameter else leaf.requires_grad_(requires_grad)


def _like(tensor: torch.Tensor, device: torch.device | None) -> Any:
    if _torch.wrappers.is_traceable_wrapper_subclass(tensor):
        in_run = any(isinstance(mode, Answers) for mode in _torch.dispatch.dispatch_modes())
        if device is not None and native_device(device) != device and not in_run:
            raise TraceError(
                f"A {type(tensor).__name__} cannot claim {device}: there is no such device here, and a "
                "wrapper, unlike a MetaTensor, has no device but its own. Leave `device` out, or use a dense tensor."
            )
        names, context = tensor.__tensor_flatten__()
        inner = {}
        for name in names:
            value = getattr(tensor, name)
            inner[name] = _like(value, device) if isinstance(value, torch.Tensor) else value
        fake = type(tensor).__tensor_unflatten__(inner, context, tensor.size(), tensor.stride())
    elif not isinstance(tensor, MetaTensor) and _torch.wrappers.says_nothing_of_parts(tensor):
        raise TraceError(_UNKNOWN_PARTS.format(cls=type(tensor).__name__))
    else:
        fake = new_leaf(Spec.of(tensor.detach(), indexed(device) if device is not None else None))
    return fake.requires_grad_(tensor.requires_grad)


def _refuse_traced(value: object, name: str) -> None:
    """Refuses a constant of generated code that is a traced tensor, or holds one.

    Raises:
        TraceError: It is one.
    """
    for tensor in _tensors_in(value):
        if tensor.meta_tag is not None:
            raise TraceError(_CONSTANT.format(name=name, value=value, tensor=tensor))


def _tensors_in(value: object, depth: int = 5) -> Iterator[MetaTensor]:
    """Yields the leaves in a constant. One that holds itself is walked up to a depth."""
    if is_weak(value):  # a constant, which holds nothing
        return
    if isinstance(value, MetaTensor):
        yield value
    elif type(value) in (tuple, list, set, frozenset, dict) and depth:
        items: Any = value
        for part in (*items, *items.values()) if type(value) is dict else items:
            yield from _tensors_in(part, depth - 1)
    elif isinstance(value, torch.Tensor) and _torch.wrappers.is_traceable_wrapper_subclass(value):
        for name in value.__tensor_flatten__()[0]:
            yield from _tensors_in(getattr(value, name), depth)


constant_checks.append(_refuse_traced)
_make = _torch.wrappers.make_wrapper_subclass
_IS_PARAMETER: Any = vars(MetaTensor)["_is_param"]  # which notes nowhere that a tensor does not have it
_torch.wrappers.DENSE.add(MetaTensor)
