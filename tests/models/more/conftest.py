"""Tests of packages that `make test` does not install; `make test-all` runs them."""

from __future__ import annotations

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """What these packages use that will go, and what they would rather find on a machine, is their business."""
    for kind in ("DeprecationWarning", "FutureWarning", "UserWarning:peft"):
        config.addinivalue_line("filterwarnings", f"ignore::{kind}")
