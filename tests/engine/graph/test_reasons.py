"""Reasons why later calls would draw other numbers: an error has what, where and what to write instead."""

from __future__ import annotations

import pytest

from subclass_aot.engine.graph.reasons import Reason
from subclass_aot.errors import TraceError


def test_an_error_has_all_of_it() -> None:
    reason = Reason("on {device}", "draw on {device!r}")
    with pytest.raises(TraceError, match=r"draws on cuda\.\n.*test_reasons\.py:.*\n.*\n.*Instead: draw on 'cuda'"):
        raise reason.error("draws", device="cuda")
    with pytest.raises(TraceError, match=r"Where: +there"):
        raise reason.error("draws", "there", device="cpu")
