"""Operators that are there for what they do beside computing.

Note [Effects of operators]
~~~~~~~~~~~~~~~~~~~~~~~~~~~
An operator may do something that no schema tells: it writes to a log, counts, or sends. It says so by
`register_effect`, by `torch.fx.node.has_side_effect`, or in that it returns nothing. Eager mode runs it once in each
call, whether somebody reads its result or not, and so does what is compiled:

- it is never left out, computed again, or merged with another one, and such operators keep their order;
- it does not run while a program is traced: neither for the shape of its result nor for values that the program reads;
- where values that were read are compared at each call, it stands behind the comparisons, since a call that finds
  another value begins again.

What checks something and raises (`_assert_async`) may run twice.
"""

from __future__ import annotations

from subclass_aot.base import _torch
from subclass_aot.base.operators.schema import effects_of


def runs_once(func: object) -> bool:
    """Returns whether an operator does something that must not happen twice in a call. See Note [Effects of operators].

    >>> import torch
    >>> runs_once(torch.ops.aten._print.default), runs_once(torch.ops.aten._assert_async.msg)
    (True, False)
    """
    if not _torch.operators.is_overload(func) or func.namespace in _torch.collectives.COLLECTIVES:
        return False
    if func.namespace in _CHECKING:
        return _torch.side_effects.has_effect(func)
    effects = effects_of(func)
    return not (effects.returns or effects.writes) or _torch.side_effects.has_side_effect(func)


_CHECKING = frozenset({"aten", "prims", "prim", "profiler", "inductor", "subclass_aot"})
"""Those of which operators without results, and those in torch's list of side effects, check something."""
