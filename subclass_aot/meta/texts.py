"""Texts of traced tensors.

Note [Texts of tensors]
~~~~~~~~~~~~~~~~~~~~~~~
`f"{n}"`, `str(x)` and `"%s" % x` read the values of a tensor, as `item()` does: the text may choose a branch, be a key,
or be a result. So where a program asks for one, it gets that of eager mode, made of the values of the call that is
traced, and each call compares the text (not the values: those that read alike need no other graph). Who calls `print`
asks for a text, too, and nobody can tell what becomes of one.

Messages of this library and of torch, debuggers, and whoever has a tensor that no trace has made get the metadata.
"""

from __future__ import annotations

from types import FrameType
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.base._stack import user_line
from subclass_aot.base.asked import asks_for_text, refuse_history
from subclass_aot.errors import DataDependentError
from subclass_aot.meta.listener import Answers, Leaf

_NO_VALUES = """The text of a tensor is asked for, as by print, str or an f-string, and nobody knows its values here.
  Your line:  {line}
  The tensor: {tensor}
  Values are known to a call of what `aot_compile` made with values="trace", but not while gradients are computed.
  Instead: write x.shape or x.dtype into the text, return the tensor, or make the text outside of the function."""


def plain_text(value: torch.Tensor, form: str | None) -> str:
    """Returns the text of a tensor with data, without what autograd adds to it.

    Args:
        value: The tensor.
        form: How a number is formatted, as in `f"{n:>4}"`; None for `repr`.
    """
    with _torch.dispatch.disable_current_modes(), _torch.dispatch.disable_torch_function():
        value = value.detach()
        return repr(value) if form is None else format(value, form)


def text_of(leaf: Leaf, cls: type[torch.Tensor], autograd: torch.Tensor, form: str | None) -> str:
    """Returns the text that a traced tensor has in eager mode, and has each call compare it.

    Args:
        leaf: The leaf.
        cls: The class that the tensor has in eager mode.
        autograd: The tensor that autograd has for it: the leaf, or what stands before it.
        form: What it is formatted by; None for `repr`.

    Raises:
        DataDependentError: Nobody knows the values.
    """
    is_number = form is not None and cls is torch.Tensor and not leaf.dim()
    if form and not is_number:
        return object.__format__(_named(cls, None)(), form)  # raises, as in eager mode
    value = _value_of(leaf, form if is_number else None)
    return plain_text(value, form) if is_number else _text(value, cls, autograd)


def _value_of(leaf: Leaf, form: str | None) -> torch.Tensor:
    modes = reversed(_torch.dispatch.dispatch_modes())
    stream = next((mode for mode in modes if isinstance(mode, Answers)), None)
    value = None if stream is None else stream.shown(leaf, form)
    if value is None:
        raise DataDependentError(_NO_VALUES.format(line=user_line(), tensor=metadata_text(leaf)))
    return value


def metadata_text(leaf: Leaf) -> str:
    """Returns what a tensor without data is, as text."""
    grad = ", requires_grad=True" if leaf.requires_grad else ""
    return f"MetaTensor({leaf.meta_spec!r}{grad})".replace("Spec(", "", 1).replace(")", "", 1)


def is_asked_for(frame: FrameType | None, tensor: Any) -> bool:
    """Returns whether a program asks for the text of a tensor that a trace has made."""
    node = getattr(tensor, "meta_tag", None)
    return node is not None and not getattr(getattr(node, "graph", None), "is_over", False) and asks_for_text(frame)


def _text(value: torch.Tensor, cls: type[torch.Tensor], autograd: torch.Tensor) -> str:
    with _torch.dispatch.disable_torch_function():
        node: Any = autograd.grad_fn
    refuse_history(node)
    with _torch.dispatch.disable_current_modes(), _torch.dispatch.disable_torch_function():
        made = value.detach()
        if node is not None or cls not in (torch.Tensor, torch.nn.Parameter):
            made = _torch.plain_subclasses.as_class(made, _named(cls, node))
        elif cls is torch.nn.Parameter:
            made = torch.nn.Parameter(made, autograd.requires_grad)
        if node is None and autograd.requires_grad:
            made.requires_grad_()
        if isinstance(made, _OfName):
            text: str = torch.Tensor.__repr__(made)  # type: ignore[no-untyped-call]
            return text
        return repr(made)


class _OfName:
    """Torch writes the name of a class, and that of the operator behind a tensor: both may be any."""


def _named(cls: type[torch.Tensor], node: object) -> Any:
    """Returns a class whose tensors read as those of another class that have a history do."""
    name = "tensor" if node is not None and cls is torch.Tensor else cls.__name__
    base: Any = torch.nn.Parameter if issubclass(cls, torch.nn.Parameter) else torch.Tensor
    names: dict[str, Any] = {"__torch_function__": _torch.wrappers.disabled_torch_function_impl}
    if node is not None:
        names["grad_fn"] = property(lambda self: node)
    return type(name, (_OfName, base), names)
