"""Deep copies that share what cannot be copied and does not change: a Python module, a lock."""

from __future__ import annotations

import copy
import threading
from types import ModuleType
from typing import Any

from subclass_aot.base._stack import pass_on_interruption
from subclass_aot.base.left_alone import reached


def deep_copied(value: Any, memo: dict[int, Any]) -> Any:
    """Returns a deep copy of a value, in which modules of Python and locks are the same objects.

    Args:
        value: Any object, which a copy does not change.
        memo: As of `copy.deepcopy`: by id, what stands for an object. Gets what was copied.

    >>> import threading
    >>> table = {"lock": threading.Lock(), "rows": [1]}
    >>> other = deep_copied(table, {})
    >>> other["lock"] is table["lock"], other["rows"] is table["rows"]
    (True, False)
    """
    try:
        return _copied(value, memo)
    except Exception as error:  # of whatever is in it
        pass_on_interruption(error)
        shared = {id(x): x for x in reached([value]) if id(x) not in memo and isinstance(x, _SHARED)}
        if not shared:
            raise
        memo.update(shared)
        return _copied(value, memo)


def _copied(value: Any, memo: dict[int, Any]) -> Any:
    tried = dict(memo)  # what fails leaves halves of objects there
    found = copy.deepcopy(value, tried)
    alive = tried.pop(id(tried), [])  # what must live as long as its id is in there
    memo.update(tried)
    memo.setdefault(id(memo), []).extend(alive)
    return found


_SHARED = (ModuleType, type(threading.Lock()), type(threading.RLock()))
"""What a program uses and does not change. One that would be, as a generator, is not shared."""
