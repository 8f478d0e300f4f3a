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
from typing import Any, Literal

import torch

from subclass_aot.base._torch.wrappers import disabled_torch_function_impl, make_wrapper_subclass
from subclass_aot.base.put_back import PutBack

without_torch_function: Any = torch._C.DisableTorchFunctionSubclass
"""A block in which classes do not see functions of torch by `__torch_function__`. The public form lets nothing out."""

_make_subclass: Callable[..., Any] = torch.Tensor._make_subclass
"""Makes a tensor of another class that shares memory and version with one, and is no view. No public form."""

MAKE_SUBCLASS, NEW = (torch.Tensor, "_make_subclass", True), (torch.Tensor, "__new__", True)
NEW_PARAMETER = torch.nn.Parameter, "__new__", True
"""Where torch makes tensors of another class, in C++ and below all that modes see: what `stands_in` takes."""

_dense_dispatch = torch.Tensor.__torch_dispatch__
_parameter: Any = torch.nn.parameter  # the stubs of torch do not have the class
_lazy: type = _parameter.UninitializedTensorMixin
_C: Any = torch._C
"""Reads and sets whether classes see functions of torch. The public forms are blocks that only turn it off."""
_States = _C._TorchFunctionState


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
        args, kwargs = leaves_of_fronts((args, kwargs or {}), [])
        return func(*args, **kwargs)

    def __repr__(self, *, tensor_contents: object = None) -> str:  # type: ignore[override]
        return repr(leaf_of(self))


leaves: dict[int, tuple[weakref.ref[torch.Tensor], torch.Tensor]] = {}
"""The leaf of each front that is alive, by the id of the front. Mostly there is none, and nobody need ask for more."""


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
    leaves[key] = weakref.ref(front, lambda _: leaves.pop(key, None)), leaf
    return front


def give_up_fronts(is_over: Callable[[Any], bool]) -> None:
    """Takes their class from fronts whose leaf belongs to a trace that is over: nothing sees operators on them."""
    for ref, leaf in list(leaves.values()):
        front: Any = ref()
        if front is not None and is_over(leaf):
            object.__setattr__(front, "__class__", TracedTensor)


def leaf_of(tensor: object) -> Any:
    """Returns the leaf behind a front; any other value as it is."""
    found = leaves.get(id(tensor)) if leaves else None
    return found[1] if found is not None and found[0]() is tensor else tensor


def is_front(value: object) -> bool:
    """Returns whether a value is a front."""
    return leaf_of(value) is not value


def leaves_of_fronts(value: object, met: list[tuple[Any, Any]]) -> Any:
    """Returns the arguments of an operator, or one of them, with leaves in the place of fronts.

    Args:
        value: What may have fronts in it.
        met: Gets each front, with its leaf.
    """
    kind: Any = type(value)
    if isinstance(value, tuple | list) and kind in (tuple, list):
        return kind([leaves_of_fronts(x, met) for x in value])
    if isinstance(value, dict) and kind is dict:
        return {key: leaves_of_fronts(x, met) for key, x in value.items()}
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


@contextmanager
def classes_see(what: Literal["nothing", "functions", "as outside"]) -> Iterator[None]:
    """Runs a block in which classes see functions of torch by `__torch_function__`, or do not.

    Args:
        what: `nothing` in a block of this library; in that, `as outside` for what is the program's, as its classes
            saw it where it called this library; `functions` for compilers, also where they are called in backward,
            around which classes may see nothing.
    """
    before, outside = _C._get_torch_function_state(), _outside.state
    at_call = before if outside is None else outside
    state = {
        "nothing": before if before == _States.ALL_DISABLED else _States.SUBCLASSES_DISABLED,
        "as outside": at_call,
        "functions": _States.ENABLED,
    }[what]
    with PutBack(partial(_C._set_torch_function_state, before)), PutBack(partial(setattr, _outside, "state", outside)):
        _outside.state = at_call if what == "nothing" else outside
        _C._set_torch_function_state(state)
        yield


class _Outside(threading.local):
    """The state that classes of this thread saw outside of this library; None where it is not in this library."""

    state: Any = None


_outside = _Outside()
