"""Tensors where a trace does not look, so that they become constants of the graph: attributes of a class."""

from __future__ import annotations

from typing import Any


def out_of_sight(value: Any) -> Any:
    """Gives a class whose attribute `kept` is the value: one of a library, whose attributes are not walked."""
    return type("Place", (), {"kept": value, "__module__": "logging"})
