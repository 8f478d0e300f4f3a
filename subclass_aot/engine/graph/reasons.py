"""Says why later calls would draw other numbers than eager mode does."""

from __future__ import annotations

from typing import NamedTuple

from subclass_aot.base._stack import user_line
from subclass_aot.errors import TraceError

_REFUSED = """The traced function {does} {what}.
  Where:   {where}
  Later calls would draw other numbers than eager does.
  Instead: {instead}"""


class Reason(NamedTuple):
    """A reason why later calls would draw other numbers.

    Attributes:
        what: What is the case.
        instead: What to write instead.
    """

    what: str
    instead: str

    def error(self, does: str, where: str = "", **texts: str) -> TraceError:
        """Makes the error that says so.

        Args:
            does: What the function does, up to `what`.
            where: Where it does so; the line of the user's, if left out.
            **texts: What stands in the braces of the reason.
        """
        reason = {name: text.format(**texts) for name, text in self._asdict().items()}
        return TraceError(_REFUSED.format(does=does, where=where or user_line(), **reason))
