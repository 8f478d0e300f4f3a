"""When is a Python value the one that was traced."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from subclass_aot.call import vars_of_number


def same_constant(a: Any, b: Any) -> bool:
    """Equality to the last bit of Python values: `1`, `1.0` and `True` differ, `0.0` and `-0.0` too, NaN equals itself.

    What cannot be compared is compared by identity.
    """
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if getattr(a, "__dict__", None) and not _same_vars(vars_of_number(a), vars_of_number(b)):
        return False
    if isinstance(a, tuple | list):
        return len(a) == len(b) and all(map(same_constant, a, b))
    if isinstance(a, set | frozenset):
        return a == b and Counter(map(type, a)) == Counter(map(type, b))
    if hasattr(a, "tobytes") and hasattr(a, "dtype"):  # an array of numpy
        return bool(a.dtype == b.dtype and a.shape == b.shape and a.strides == b.strides and a.tobytes() == b.tobytes())
    if isinstance(a, float):
        return a == b and math.copysign(1, a) == math.copysign(1, b) or a != a and b != b
    try:
        equal = a == b
        return bool(equal.all()) if hasattr(equal, "all") and a.shape == b.shape else bool(equal)
    except Exception:
        return False


def _same_vars(a: dict[str, Any], b: dict[str, Any]) -> bool:
    return a.keys() == b.keys() and all(same_constant(value, b[name]) for name, value in a.items())
