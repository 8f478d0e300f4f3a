"""Python values as Python text."""

from __future__ import annotations

import enum
import math
import re
import sys
from typing import Any

import torch

from subclass_aot.base.codegen import identifier


class Names:
    """The values that a text refers to by name, and how it comes by them.

    >>> names = Names()
    >>> names.literal((1, slice(None), torch.float32, float("inf"), {"a": [True]}))
    "(1, slice(None, None, None), torch.float32, float('inf'), {'a': [True]})"
    """

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    def const(self, value: object, hint: str) -> str:
        """Returns the name of `value`; one name per object."""
        for name, known in self.values.items():
            if known is value:
                return name
        name = base = identifier(hint)
        suffix = 1
        while name in self.values or name == "torch":
            suffix += 1
            name = f"{base}_{suffix}"
        self.values[name] = value
        return name

    def literal(self, value: object) -> str:
        """Returns an expression for `value`; a name, for what has none."""
        if isinstance(value, float) and not math.isfinite(value):
            return f"float('{value}')"
        if value is None or value is Ellipsis or type(value) in (bool, int, float, complex, str, bytes, range):
            return "..." if value is Ellipsis else repr(value)
        if isinstance(value, torch.dtype | torch.layout | torch.memory_format):
            return str(value)
        if isinstance(value, torch.device):
            return f"torch.device({str(value)!r})"
        if isinstance(value, slice):
            return f"slice({self.literal(value.start)}, {self.literal(value.stop)}, {self.literal(value.step)})"
        if type(value) is tuple or type(value) is torch.Size:
            return f"({', '.join(map(self.literal, value))}{',' if len(value) == 1 else ''})"
        if type(value) is list:
            return f"[{', '.join(map(self.literal, value))}]"
        if type(value) is dict:
            return f"{{{', '.join(f'{self.literal(k)}: {self.literal(v)}' for k, v in value.items())}}}"
        if isinstance(value, enum.Enum):
            return f"{self.const(type(value), type(value).__name__)}.{value.name}"
        return self.const(value, getattr(value, "__name__", type(value).__name__.lower()))

    def imports(self, text: str) -> list[str]:
        """Returns the lines that bring what `text` mentions; a comment for what cannot be imported."""
        lines = ["import torch"]
        mentioned = set(re.findall(r"\w+", text))
        for name, value in sorted(self.values.items()):
            if name not in mentioned:
                continue
            home, qualname = _home(value)
            if home:
                lines.append(f"from {home} import {qualname}" + (f" as {name}" if name != qualname else ""))
            else:
                shown = f"a tensor {list(value.shape)}" if isinstance(value, torch.Tensor) else repr(value)
                lines.append(f"# {name}: yours, {shown.splitlines()[0]}")
        return lines


def _home(value: object) -> tuple[str, str]:
    """Returns the shortest module that has `value`, and its name there; nothing, if it cannot be imported."""
    module, qualname = getattr(value, "__module__", None), getattr(value, "__qualname__", "")
    if not isinstance(module, str) or module == "__main__":
        return "", ""
    parts = module.split(".")
    for count in range(1, len(parts) + 1):
        path = ".".join(parts[:count])
        if qualname and getattr(sys.modules.get(path), qualname, None) is value:
            return path, qualname
    return "", ""
