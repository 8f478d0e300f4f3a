"""Operators of other namespaces than torch's own: collectives, say. Who knows them registers what serves them.

>>> from subclass_aot.kit.wrapper.serve.namespaces import SERVED
>>> {'_c10d_functional', 'c10d', 'fsdp'} <= set(SERVED)
True
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from subclass_aot.base import _torch
from subclass_aot.base._torch.operators import AnyOperator, Operator
from subclass_aot.base.later import Registry
from subclass_aot.kit.wrapper.kind import Wrapper

Maker = Callable[[type[Wrapper], Operator], Callable[..., Any] | None]
"""Makes what serves an operator on wrappers of a class, called as the operator is; None where it is served as others
are.
"""

SERVED: Registry[Maker] = Registry("namespace")
"""By the namespace of operators."""


def handler_of_namespace(cls: type[Wrapper], func: AnyOperator) -> Callable[..., Any] | None:
    """Returns what serves an operator because of its namespace; None where nothing does.

    Args:
        cls: The wrapper class.
        func: The operator.
    """
    if not _torch.operators.is_overload(func) or func.namespace not in SERVED:
        return None
    return SERVED[func.namespace](cls, func)
