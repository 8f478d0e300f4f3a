"""The error for an assignment to `.data` names the line, or what was assigned to."""

from __future__ import annotations

import pytest
import torch

from subclass_aot.engine.graph.assignments import not_assigned, refuse_history
from subclass_aot.errors import LastingChangeError


def test_what_autograd_has_computed_is_refused() -> None:
    x = torch.ones(2, requires_grad=True)
    refuse_history(x)
    with pytest.raises(LastingChangeError, match="history of autograd's"):
        refuse_history(x * 2)


def test_where_it_is() -> None:
    assert "args[0]" in str(not_assigned("that is too late", "args[0]"))
    assert "and that is too late" in str(not_assigned("that is too late"))
