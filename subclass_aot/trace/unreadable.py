"""What is said of code that reads values without asking through an operator: no trace hears of it beforehand."""

from __future__ import annotations

import linecache
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from subclass_aot import _torch
from subclass_aot._stack import user_line_of
from subclass_aot.errors import DataDependentError, TraceError

_READ = """`{call}` reads the values of a tensor, and a traced tensor has none.
  Your line:  {line}
  Torch says: {reason}
  Instead: read the values outside the traced function and pass what was read as a Python value, as a list of
  indices instead of a tensor of them."""

_UNKNOWN = """The program branches on a number that depends on data, and a traced tensor has none.
  Your line:  {line}
  The number: {number}
  Instead: compute both sides and choose with torch.where, or say what is true of the number before it is used, as in
  torch._check(n >= 2)."""

_TORCH_SAYS = ("its data is not allocated yet", "is not supported for tensor subclasses")


@contextmanager
def reads_are_refused() -> Iterator[None]:
    """Turns torch's errors on reading a tensor without data into one that names the call and the user's line.

    Raises:
        DataDependentError: The block read values, as `tensor_split` does with a tensor of indices, or `tolist()`.
    """
    try:
        yield
    except RuntimeError as error:
        if _torch.is_unknown_asked(error):
            number = str(error).split("expression ")[-1].split("(unhinted")[0].strip()
            raise DataDependentError(_UNKNOWN.format(line=user_line_of(error), number=number)) from error
        if isinstance(error, TraceError) or not any(text in str(error) for text in _TORCH_SAYS):
            raise
        reason = str(error).splitlines()[0]
        raise DataDependentError(_READ.format(call=_call_of(error), line=user_line_of(error), reason=reason)) from error


def _call_of(error: BaseException) -> str:
    """The expression that raised `error`, as it stands in the source."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    if frame.lineno != frame.end_lineno or frame.colno is None or frame.end_colno is None:
        return frame.line or frame.name
    indented = linecache.getline(frame.filename, frame.lineno or 0)
    return indented.encode()[frame.colno : frame.end_colno].decode() or frame.name
