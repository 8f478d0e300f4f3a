"""Operators of a library that are made of operators of torch, which a trace can write out in their place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

WRITTEN_OUT: dict[Any, Callable[..., Any]] = {}
"""By operators of a library, what they compute, in operators of torch. Who defines one puts it here."""
