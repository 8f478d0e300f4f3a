"""Operators that take functions: what torch makes of a call before it reaches the operator."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from torch.utils import _pytree

from subclass_aot.base._torch.stand_ins import stands_in


def dense_flex_attention(*args: Any, **kwargs: Any) -> Any:
    """Returns flex attention with a matrix of all scores, by ordinary operators, as torch runs it without a kernel.

    Takes and gives what the operator does. When it goes: apply the functions to the scores by `torch.vmap`.
    """
    from torch._higher_order_ops.flex_attention import math_attention

    return math_attention(*args, **kwargs)


@stands_in("torch.nn.attention.flex_attention", "_validate_device")
@stands_in("torch._higher_order_ops.cond", "validate_subgraph_args_types")
def _takes_anything(torchs: Callable[..., Any], *args: object) -> None:
    """Does nothing in place of torch's checks of the arguments of operators that take functions.

    Torch refuses calls that its own rules cannot serve, before anybody else sees them: `flex_attention` of tensors that
    require grad on a device without a kernel, `torch.cond` of operands in dicts. When they go: such calls are refused.
    """


class CarryStructure:
    """The tree that the tensors are, which a loop hands from step to step.

    Args:
        spec: What torch says of the tree.
    """

    def __init__(self, spec: _pytree.TreeSpec) -> None:
        self._spec = spec

    def leaves(self, tree: Any) -> list[Any]:
        """Returns the tensors of a tree, in the order of the carry; dicts may have been filled in another one.

        Raises:
            ValueError: It is another tree.
        """
        return list(self._spec.flatten_up_to(tree))

    def tree(self, leaves: list[Any]) -> Any:
        """Returns the tree of tensors that are in the order of the carry."""
        return _pytree.tree_unflatten(leaves, self._spec)


def structure_of_carry(step: Callable[..., Any]) -> CarryStructure | None:
    """Returns what a step of a loop carries; None for a step whose tensors stand in a row, as Dynamo makes them.

    Torch gives its operators a function of tensors in a row, and in it the structure in which the program's own
    function takes them. What that function returns comes out as it is, so nothing else says what a loop gives that is
    left at once. When the names change: `scan` and `while_loop` take trees only as `torch.compile` hands them over.
    """
    if isinstance(step, functools.partial):
        spec = step.keywords.get("spec_init", step.keywords.get("spec"))
    else:
        code: Any = getattr(step, "__code__", None)
        names = getattr(code, "co_freevars", ())
        closure: Any = getattr(step, "__closure__", ())
        # Beside the carry stands what else the function takes, which is nothing for those who call it themselves.
        both = closure[names.index("in_spec")].cell_contents if "in_spec" in names else None
        spec = None if both is None else _pytree.tree_structure(_pytree.tree_unflatten([0] * both.num_leaves, both)[0])
    return CarryStructure(spec) if isinstance(spec, _pytree.TreeSpec) else None
