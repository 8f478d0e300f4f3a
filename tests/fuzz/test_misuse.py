"""Random calls that may be wrong: what a program catches around them is as in eager mode."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, given, settings

from tests.fuzz.misuse import CALLS, DrawnMisuse, check_misuse, misuses


@settings(max_examples=60, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))
@given(misuses())
def test_what_is_caught_is_eagers(drawn: DrawnMisuse) -> None:
    check_misuse(drawn)


@pytest.mark.parametrize("call", CALLS)
def test_each_call_is_a_program(call: str) -> None:
    """Each of them raises for one of these."""
    sizes = ((3, 2), (2, 3)), ((3, 3), (3,)), ((2, 3, 3), (2, 3)), ((3,), (2,))
    for dtypes in ((torch.float32, torch.complex64), (torch.int64, torch.float32), (torch.bool, torch.bool)):
        assert all(check_misuse(DrawnMisuse(call, dtypes, each, 2)) for each in sizes)
