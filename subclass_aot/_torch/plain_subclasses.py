"""Subclasses of `Tensor` without the flatten protocol, and the tensors of such classes that a trace has.

Note [Plain subclasses]
~~~~~~~~~~~~~~~~~~~~~~~
A class without `__tensor_flatten__` adds what Python sees to a dense tensor: methods, attributes, `__torch_function__`.
A program may check `type(x) is ...`, and torch hands such tensors to their class. So where a program has one, a trace
has a *front*: a tensor of exactly that class, without data, which autograd knows and which the program sees. Behind it
is its leaf, which operators get in its place: a mode sees each of them, since a front has the dispatch key of classes
with a `__torch_dispatch__`, and none itself. So a plain subclass is read as a wrapper with one inner tensor would be.

Where a call runs, there are no fronts: the leaf of a plain subclass is the tensor itself. Graphs run with
`__torch_function__` of classes off, since what it does is in the graph already.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from subclass_aot._torch.wrappers import disabled_torch_function_impl, make_wrapper_subclass
from subclass_aot.put_back import PutBack, attributes_put_back

without_torch_function: Any = torch._C.DisableTorchFunctionSubclass
"""A block in which classes do not see functions of torch by `__torch_function__`. The public form lets nothing out."""

_make_subclass: Callable[..., Any] = torch.Tensor._make_subclass
"""Makes a tensor of another class that shares memory and version with one, and is no view. No public form."""

_dense_dispatch = torch.Tensor.__torch_dispatch__
_parameter: Any = torch.nn.parameter  # the stubs of torch do not have the class
_lazy: type = _parameter.UninitializedTensorMixin
_C: Any = torch._C
"""Reads and sets whether classes see functions of torch. The public forms are blocks that only turn it off."""


def is_plain_subclass(cls: type) -> bool:
    """Returns whether a class is derived from `Tensor`, says nothing of inner tensors, and has no
    `__torch_dispatch__`.
    """
    return (
        cls not in (torch.Tensor, torch.nn.Parameter)
        and issubclass(cls, torch.Tensor)
        and cls.__torch_dispatch__ is _dense_dispatch
        and not hasattr(cls, "__tensor_flatten__")
        and not issubclass(cls, _lazy)
    )


def sees_functions(cls: type[torch.Tensor]) -> bool:
    """Returns whether torch calls the `__torch_function__` of a class; parameters turn it off."""
    return cls.__torch_function__ is not disabled_torch_function_impl


class TracedTensor(torch.Tensor):
    """The class of a front before it gets its own, and again when its trace is over: then its leaf says so."""

    __torch_function__ = disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Callable[..., Any], types: object, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        args, kwargs = _without_fronts((args, kwargs or {}), [])
        return func(*args, **kwargs)

    def __repr__(self, *, tensor_contents: object = None) -> str:  # type: ignore[override]
        return repr(leaf_of(self))


_leaves: dict[int, tuple[weakref.ref[torch.Tensor], torch.Tensor]] = {}
"""The leaf of each front that is alive, by the id of the front."""


def notes_functions(value: object) -> bool:
    """Returns whether a value is a tensor of a class that sees each function of torch, and has attributes."""
    return is_plain_subclass(type(value)) and sees_functions(type(value)) and bool(vars(value))  # type: ignore[arg-type]


def make_front(cls: type[torch.Tensor], leaf: torch.Tensor, *metadata: object) -> Any:
    """Makes a tensor of a plain subclass that stands before a leaf.

    Args:
        cls: The class.
        leaf: The leaf.
        *metadata: What `_make_wrapper_subclass` takes after the class.

    Raises:
        TypeError: Tensors of the class have slots, or another layout in memory.
    """
    front: Any = make_wrapper_subclass(TracedTensor, *metadata)
    object.__setattr__(front, "__class__", cls)
    key = id(front)
    _leaves[key] = weakref.ref(front, lambda _: _leaves.pop(key, None)), leaf
    return front


def give_up_fronts(is_over: Callable[[Any], bool]) -> None:
    """Takes their class from fronts whose leaf belongs to a trace that is over: nothing sees operators on them."""
    for ref, leaf in list(_leaves.values()):
        front: Any = ref()
        if front is not None and is_over(leaf):
            object.__setattr__(front, "__class__", TracedTensor)


def leaf_of(tensor: object) -> Any:
    """Returns the leaf behind a front; any other value as it is."""
    found = _leaves.get(id(tensor)) if _leaves else None
    return found[1] if found is not None and found[0]() is tensor else tensor


def is_front(value: object) -> bool:
    """Returns whether a value is a front."""
    return leaf_of(value) is not value


def leaves_of_fronts(values: object, met: list[tuple[Any, Any]]) -> Any:
    """Returns the arguments of an operator with leaves in the place of fronts.

    Args:
        values: A tuple, list or dict of arguments.
        met: Gets each front, with its leaf.
    """
    if not _leaves:
        return values
    return _without_fronts(values, met)


def _without_fronts(value: object, met: list[tuple[Any, Any]]) -> Any:
    kind: Any = type(value)
    if isinstance(value, tuple | list) and kind in (tuple, list):
        return kind([_without_fronts(x, met) for x in value])
    if isinstance(value, dict) and kind is dict:
        return {key: _without_fronts(x, met) for key, x in value.items()}
    leaf = leaf_of(value)
    if leaf is not value:
        met.append((value, leaf))
    return leaf


def as_class(tensor: torch.Tensor, cls: type[torch.Tensor]) -> Any:
    """Returns a tensor of a plain subclass that shares memory and version with `tensor`; of a traced leaf, a front."""
    if type(tensor) is cls:
        return tensor
    front = getattr(type(tensor), "meta_front", None)  # a leaf without data makes it itself
    return _make_subclass(cls, tensor) if front is None else front(tensor, cls)


def _as_it_is(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


@contextmanager
def conversions_replaced(
    as_subclass: Callable[..., Any], make_subclass: Callable[..., Any], new: Callable[..., Any]
) -> Iterator[None]:
    """Runs the block with other functions called first where a tensor of another class is made, in all threads.

    Torch makes such tensors in C++, below all that modes see. Each function gets the arguments of the one that it
    stands for, and gives `NotImplemented` where that is to be called.

    Args:
        as_subclass: For `Tensor.as_subclass`.
        make_subclass: For `Tensor._make_subclass`, and for `Parameter` of a class derived from it.
        new: For `Tensor.__new__`.
    """

    def or_else(first: Callable[..., Any], torchs: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: object, **kwargs: object) -> Any:
            made = first(*args, **kwargs)
            return torchs(*args, **kwargs) if made is NotImplemented else made

        return call

    def new_parameter(cls: type, data: object = None, requires_grad: bool = True, **kwargs: object) -> Any:
        if cls is torch.nn.Parameter or kwargs or is_front(data):
            return NotImplemented
        return make_subclass(cls, data, requires_grad)

    tensor: Any = torch.Tensor
    parts: list[tuple[Any, str, Callable[..., Any], Callable[[Any], Any]]] = [
        (tensor, "_make_subclass", make_subclass, staticmethod),
        (tensor, "__new__", new, staticmethod),
        (torch.nn.Parameter, "__new__", new_parameter, staticmethod),
    ]
    # Fastai puts another method there, which calls torch's by a name that it gives to it.
    other = vars(tensor).get("as_subclass") is not None and hasattr(torch, "as_subclass")
    parts.append((torch if other else tensor, "as_subclass", as_subclass, _as_it_is))
    with PutBack(attributes_put_back((owner, name) for owner, name, _, _ in parts)):
        for owner, name, first, as_method in parts:
            setattr(owner, name, as_method(or_else(first, getattr(owner, name))))
        yield


@contextmanager
def classes_see_nothing() -> Iterator[None]:
    """Runs a block of this library in which classes do not see functions of torch; see `classes_see_again`."""
    with PutBack(partial(setattr, _outside, "state", _outside.state)):
        if _outside.state is None:
            _outside.state = _C._get_torch_function_state()
        with without_torch_function():
            yield


@contextmanager
def classes_see_functions() -> Iterator[None]:
    """Runs a block in which classes see functions of torch; in backward they may not, if they did not where it was
    called.
    """
    with PutBack(partial(_C._set_torch_function_state, _C._get_torch_function_state())):
        _C._set_torch_function_state(_C._TorchFunctionState.ENABLED)
        yield


@contextmanager
def classes_see_again() -> Iterator[None]:
    """Runs a user's program within `classes_see_nothing`: classes see functions of torch as they did outside of it."""
    inside = _C._get_torch_function_state()
    if _outside.state is None or inside == _outside.state:
        yield
        return
    with PutBack(partial(_C._set_torch_function_state, inside)):
        _C._set_torch_function_state(_outside.state)
        yield


class _Outside(threading.local):
    """The state that classes of this thread saw outside of this library; None where it is not in this library."""

    state: Any = None


_outside = _Outside()
