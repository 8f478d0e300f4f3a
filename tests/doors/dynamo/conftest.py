"""Nothing that Dynamo compiled in one test is there in another."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _fresh(fresh_dynamo: None) -> None:
    """Each test here compiles with Dynamo."""
