"""Errors for code that reads values not through an operator: no trace can see it beforehand."""

from __future__ import annotations

import linecache
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from subclass_aot.base import _torch
from subclass_aot.base._stack import PACKAGE, user_line, user_line_of
from subclass_aot.errors import DataDependentError, TraceError
from subclass_aot.meta import MetaTensor

_READ = """`{call}` reads the values of a tensor or asks where they are, and a traced tensor has none.
  Your line:  {line}
  Torch says: {reason}
  Instead: read the values outside the traced function and pass what was read as a Python value, as a list of
  indices instead of a tensor of them."""

_NO_MEMORY = """A tensor was made of the memory of a traced tensor, which has none.
  Your line:  {line}
  Instead: make it outside the traced function, or put what needs the memory into a custom operator."""

_UNKNOWN = """The program branches on a number that depends on data, and a traced tensor has none.
  Your line:  {line}
  The number: {number}
  Instead: compute both sides and choose with torch.where, or say what is true of the number before it is used, as in
  torch._check(n >= 2)."""

_UNKNOWN_PARTS = """{path} is a {cls}, which is made of other tensors, and its class does not say which they are.
  Instead: give {cls} the methods __tensor_flatten__ and __tensor_unflatten__, or pass its tensors and make it inside;
  for a torch.masked.MaskedTensor take a subclass_aot.tensors.MaskedTensor."""

_TORCH_SAYS = (
    "its data is not allocated yet",
    "is not supported for tensor subclasses",
    "on an invalid python storage",
    'set the storage of a tensor on device "meta"',
)


def refuse_without_memory(tensor: torch.Tensor, path: str = "") -> None:
    """Refuses what is no traced tensor, and has no memory either: kernels would read at address zero.

    Args:
        tensor: The tensor.
        path: Where it stands, if it may be one of parts that nobody knows.

    Raises:
        DataDependentError: It was made of the memory of a traced tensor, as `from_dlpack(to_dlpack(x))` does.
        TraceError: It is made of other tensors, and its class does not say which they are.
    """
    if path:
        refuse_unknown_parts(path, tensor)
    # Tensors of other classes are not read: many have no memory of their own.
    real = type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout is torch.strided
    if real and tensor.device.type in ("cpu", "cuda") and tensor.numel() and not tensor.data_ptr():
        raise DataDependentError(_NO_MEMORY.format(line=user_line()))


def refuse_unknown_parts(path: str, tensor: torch.Tensor) -> None:
    """Refuses a tensor that is made of others of which its class does not say what they are.

    Raises:
        TraceError: `path` is such a tensor.
    """
    if (
        type(tensor) not in _KNOWN
        and not isinstance(tensor, MetaTensor)
        and _torch.wrappers.says_nothing_of_parts(tensor)
    ):
        raise TraceError(_UNKNOWN_PARTS.format(path=path, cls=type(tensor).__name__))


_KNOWN = (torch.Tensor, torch.nn.Parameter)


@contextmanager
def reads_are_refused() -> Iterator[None]:
    """Turns torch's errors on reading a tensor without data into one that names the call and the user's line.

    Raises:
        DataDependentError: The block read values, as `tensor_split` does with a tensor of indices, or `tolist()`.
    """
    try:
        yield
    except RuntimeError as error:
        if _torch.symbolic.is_unbacked_asked(error):
            number = str(error).split("expression ")[-1].split("(unhinted")[0].strip()
            raise DataDependentError(_UNKNOWN.format(line=user_line_of(error), number=number)) from error
        if isinstance(error, TraceError) or not any(text in str(error) for text in _TORCH_SAYS):
            raise
        reason = str(error).splitlines()[0]
        raise DataDependentError(_READ.format(call=_call_of(error), line=user_line_of(error), reason=reason)) from error


def _call_of(error: BaseException) -> str:
    """Returns the expression that raised `error`, as it stands in the source."""
    frames = traceback.extract_tb(error.__traceback__)
    frame = next((f for f in reversed(frames) if not f.filename.startswith(PACKAGE)), frames[-1])
    if frame.lineno != frame.end_lineno or frame.colno is None or frame.end_colno is None:
        return frame.line or frame.name
    indented = linecache.getline(frame.filename, frame.lineno or 0)
    # Columns count bytes.
    return indented.encode()[frame.colno : frame.end_colno].decode() or frame.name
