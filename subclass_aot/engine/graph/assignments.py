"""Assignments to the `.data` of a tensor that a call could not do again."""

from __future__ import annotations

import torch

from subclass_aot.base._stack import user_line
from subclass_aot.engine.graph.messages import DATA_ASSIGNED
from subclass_aot.errors import LastingChangeError

_HISTORY = "the tensor has a history of autograd's, which its gradient would go through"


def refuse_history(tensor: torch.Tensor) -> None:
    """Refuses an assignment to a tensor that autograd has computed.

    Raises:
        LastingChangeError: It is one.
    """
    if tensor.grad_fn is not None:
        raise not_assigned(_HISTORY)


def not_assigned(what: str, where: str | None = None) -> LastingChangeError:
    """Returns the error for an assignment.

    Args:
        what: Why it cannot be done again.
        where: The line or the path of the tensor; the line of the program if left out.
    """
    return LastingChangeError(DATA_ASSIGNED.format(what=what, where=user_line() if where is None else where))
