"""Counts which functions of the package a program enters, at two sizes: what grows faster than the program is found
without a clock.
"""

from __future__ import annotations

import cProfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = str(Path(__file__).resolve().parent.parent / "subclass_aot")
FEW = 6
"""Calls of a function for each unit that are few, whatever their growth."""


def superlinear(call: Callable[[int], Callable[[], Any]], size: int) -> dict[str, tuple[int, int]]:
    """Returns the functions of Python that are called three times as often where a program is twice as large.

    Args:
        call: Makes, for a size, what is run.
        size: The smaller of the two.
    """
    call(2 * size)()  # what the process keeps, as names, is there for both
    few, many = (_counted(call(n)) for n in (size, 2 * size))
    return {name: (few[name], n) for name, n in many.items() if n > 3 * few[name] and n > FEW * 2 * size}


def _counted(run: Callable[[], Any]) -> Counter[str]:
    profile = cProfile.Profile(builtins=False)
    profile.runcall(run)
    found: Counter[str] = Counter()
    for entry in profile.getstats():
        code = entry.code
        if not isinstance(code, str):
            found[f"{code.co_filename.removeprefix(ROOT)}:{code.co_firstlineno} {code.co_name}"] += entry.callcount
    return found
