"""Tensors of plain subclasses in a trace: making them, and queries that C++ would answer from memory.

See Note [Plain subclasses].
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.base._torch.stand_ins import stands_in
from subclass_aot.base.put_back import PutBack
from subclass_aot.engine.graph.assignments import refuse_history
from subclass_aot.engine.graph.recorder import Recorder
from subclass_aot.meta import MetaTensor, texts

_aten = torch.ops.aten


@stands_in(torch, "as_subclass")  # a name that fastai gives to torch's, and calls it by in a method that it puts there
def _as_subclass(torchs: Callable[..., Any], tensor: torch.Tensor, cls: type[torch.Tensor]) -> Any:
    recorder = _recorder_of(tensor, cls)
    return torchs(tensor, cls) if recorder is None else _converted(recorder, _aten.alias.default, tensor, cls)


@stands_in(torch.Tensor, "as_subclass")
def _as_subclass_of(there: Callable[..., Any], *args: object, **kwargs: object) -> Any:
    converted: Callable[..., Any] = there if hasattr(torch, "as_subclass") else partial(_as_subclass, there)
    return converted(*args, **kwargs)


@stands_in(*_torch.plain_subclasses.MAKE_SUBCLASS)
def _make_subclass(
    torchs: Callable[..., Any],
    cls: type[torch.Tensor],
    data: torch.Tensor,
    require_grad: bool = False,
    *others: object,
    **options: object,
) -> Any:
    recorder = None if others or options else _recorder_of(data, cls)
    if recorder is None:
        return torchs(cls, data, require_grad, *others, **options)
    return _detached(recorder, data, cls, require_grad)


def _detached(recorder: Recorder, data: torch.Tensor, cls: type[torch.Tensor], require_grad: bool) -> Any:
    made = _converted(recorder, _aten.detach.default, data, cls)
    with _torch.dispatch.disable_torch_function():
        return made.requires_grad_() if require_grad else made


@stands_in(*_torch.plain_subclasses.NEW)
def _new(torchs: Callable[..., Any], cls: type[torch.Tensor], *args: object, **options: object) -> Any:
    if options or not _torch.plain_subclasses.is_plain_subclass(cls) or _running() is None:
        return torchs(cls, *args, **options)
    is_copy = len(args) == 1 and isinstance(args[0], torch.Tensor)
    tensor: Any = args[0] if is_copy else torch.Tensor(*args)
    recorder = _recorder_of(tensor, cls)
    return torchs(cls, *args) if recorder is None else _converted(recorder, _aten.alias.default, tensor, cls)


@stands_in(*_torch.plain_subclasses.NEW_PARAMETER)
def _new_parameter(
    torchs: Callable[..., Any],
    cls: type[torch.Tensor],
    data: torch.Tensor | None = None,
    requires_grad: bool = True,
    **options: object,
) -> Any:
    recorder = None if options or cls is torch.nn.Parameter else _recorder_of(data, cls)
    if recorder is None or data is None or _torch.plain_subclasses.is_front(data):
        return torchs(cls, data, requires_grad, **options)
    return _detached(recorder, data, cls, requires_grad)


def _recorder_of(tensor: object, cls: type) -> Recorder | None:
    """Finds what records a traced tensor of which a program wants one of a class; None for others, torch's business."""
    leaf = _torch.plain_subclasses.leaf_of(tensor)
    is_given = cls in (torch.Tensor, torch.nn.Parameter) or _torch.plain_subclasses.is_plain_subclass(cls)
    is_traced = type(leaf) is MetaTensor and leaf.meta_tag is not None
    return _running() if is_given and is_traced else None


def _running() -> Recorder | None:
    """Returns the innermost recorder of this thread."""
    return next((mode for mode in reversed(_torch.dispatch.dispatch_modes()) if isinstance(mode, Recorder)), None)


def _converted(recorder: Recorder, operator: Callable[..., Any], tensor: torch.Tensor, cls: type[torch.Tensor]) -> Any:
    """Runs an operator whose result is of a class, to autograd as well."""
    with _torch.dispatch.disable_torch_function():
        if cls is torch.Tensor:
            return operator(tensor)
        if cls is torch.nn.Parameter:
            made = operator(tensor)
            _torch.autograd.mark_as_parameter(made)
            return made
        with PutBack(partial(setattr, recorder, "class_of_next", None)):
            recorder.class_of_next = cls
            return operator(tensor)


def _by_leaf(name: str) -> Callable[..., Any]:
    """Makes the rule of a method that speaks of memory or values: a leaf knows what to say."""

    def rule(recorder: Recorder, tensor: Any, *args: Any, **kwargs: Any) -> Any:
        leaf = _torch.plain_subclasses.leaf_of(tensor)
        return NotImplemented if leaf is tensor else getattr(leaf, name)(*args, **kwargs)

    return rule


def _data_replaced(recorder: Recorder, tensor: Any, value: torch.Tensor) -> Any:
    leaf = _torch.plain_subclasses.leaf_of(tensor)
    if leaf is tensor:
        return NotImplemented
    with _torch.dispatch.disable_torch_function():
        refuse_history(tensor)  # the leaf has none: autograd sees the front
        leaf.data = _torch.plain_subclasses.leaf_of(value)
        _tensor.data.__set__(tensor, _torch.plain_subclasses.as_class(leaf, type(tensor)))
    return None


def _repr(recorder: Recorder, tensor: Any, *args: object, **kwargs: object) -> Any:
    """Makes the text of a front. See Note [Texts of tensors]."""
    leaf = _torch.plain_subclasses.leaf_of(tensor)
    if leaf is tensor:
        return NotImplemented
    if texts.is_asked_for(sys._getframe(1), leaf):
        return texts.text_of(leaf, type(tensor), tensor, None)
    return texts.metadata_text(leaf).replace(MetaTensor.__name__, type(tensor).__name__, 1)


def as_object(recorder: Recorder, tensor: Any, form: str) -> Any:
    """Formats a front, of which `_repr` makes the text: torch writes the number into that of a plain `Tensor` alone."""
    return object.__format__(tensor, form) if _torch.plain_subclasses.is_front(tensor) else NotImplemented


def _deepcopy(recorder: Recorder, tensor: Any, memo: dict[int, Any]) -> Any:
    """Copies a leaf of autograd's graph, as torch does: the class stays, and attributes are copied."""
    if not _torch.plain_subclasses.is_front(tensor) or not tensor.is_leaf:
        return NotImplemented
    with _torch.dispatch.disable_torch_function():
        values = tensor.detach().clone()
        made = _converted(recorder, _aten.detach.default, values, type(tensor)).requires_grad_(tensor.requires_grad)
    memo[id(tensor)] = made
    if tensor.grad is not None:
        made.grad = copy.deepcopy(tensor.grad, memo)
    made.__dict__.update(copy.deepcopy(tensor.__dict__, memo))
    return made


_OF_MEMORY = (
    "tolist", "untyped_storage", "data_ptr", "apply_", "__dlpack__", "__dlpack_device__", "__reduce_ex__", "numpy",
    "__array__",
)  # fmt: skip

_tensor: Any = torch.Tensor  # whose properties are functions of torch

FRONTS: dict[Any, Callable[..., Any]] = {
    **{getattr(torch.Tensor, name): _by_leaf(name) for name in _OF_MEMORY},
    _tensor.data.__set__: _data_replaced,
    torch.Tensor.__repr__: _repr,
    torch.Tensor.__format__: as_object,
    torch.Tensor.__deepcopy__: _deepcopy,
}
"""What is called in place of functions of torch, with the recorder as first argument."""
