"""Arguments of one operator that share memory, where it would see its own writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from subclass_aot import _torch
from subclass_aot._stack import user_line
from subclass_aot.errors import MutationError
from subclass_aot.graph.auto_functionalize import has_no_functional_variant, is_whole, listed
from subclass_aot.graph.listener import GraphListener
from subclass_aot.meta import MetaTensor, Storage
from subclass_aot.operators import argument_at, effects_of
from subclass_aot.symbols import SizesMustBeKnown

if TYPE_CHECKING:  # which has this listener
    from subclass_aot.graph.recorder import Recorder

_OVERLAP = """{operator} writes `{written}`, and `{other}` has elements in the same places of memory.
  Your line:  {line}
  The tensors: {target} and {x}
  What it does to such elements depends on the order in which it takes them.
  Instead: give it a copy of one of them, as in x.clone(), or parts that lie apart, as in x[0] and x[1]."""


class ArgumentOverlap(GraphListener):
    """Refuses operators without a functional variant of torch's that write what another of their arguments shares.

    Parts of one tensor that lie apart are no such call (see Note [Strided sets]), nor is one tensor that is written,
    and is given whole once more to be read.

    Attributes:
        of_inputs: By its storage, the flat slots of inputs that an input overlaps.
    """

    def __init__(self) -> None:
        self.of_inputs: dict[Storage, tuple[int, ...]] = {}

    def wants(self, func: _torch.Operator) -> bool:
        return has_no_functional_variant(func)

    def on_operator(
        self, recorder: Recorder, func: _torch.Operator, args: tuple[Any, ...], kwargs: dict[str, Any], result: object
    ) -> None:
        writes = effects_of(func).writes
        places = [(i, a.name) for i, a in enumerate(_torch.schema_of(func).arguments)]
        given = [(p, x) for p in places for x in listed(argument_at(p, args, kwargs)) if isinstance(x, MetaTensor)]
        for i, (place, target) in enumerate(given):
            if place not in writes:
                continue
            for j, (other, x) in enumerate(given):
                read_again = x is target and other not in writes and is_whole(func, place) and is_whole(func, other)
                if i == j or self._memory(x) != self._memory(target) or read_again or x.spec.lies_apart(target.spec):
                    continue
                if x.spec.solver is not None or target.spec.solver is not None:  # which may tell that they do
                    raise SizesMustBeKnown
                which = {"written": place[1], "other": other[1], "target": target.spec, "x": x.spec}
                raise MutationError(_OVERLAP.format(operator=func, line=user_line(), **which))

    def _memory(self, leaf: MetaTensor) -> Any:
        """What is equal for leaves that may share memory."""
        storage = Storage.of(leaf)
        return self.of_inputs.get(storage, storage)
