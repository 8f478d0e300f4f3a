"""Arguments of one operator that share memory, where it would see its own writes.

An operator without a functional variant is refused. Torch's own have one, which reads all before it writes; many of
their kernels refuse such arguments, and some do not. Which, the kernel says: it is run on small tensors of the same
sizes and strides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import optree
import torch

from subclass_aot import _torch
from subclass_aot._stack import pass_on_interruption, user_line
from subclass_aot.errors import MutationError
from subclass_aot.graph.functional.auto_functionalize import has_no_functional_variant, is_whole, listed
from subclass_aot.graph.listeners.listener import GraphListener
from subclass_aot.meta import MetaTensor, Spec, Storage
from subclass_aot.operators import argument_at, effects_of
from subclass_aot.symbols import SizesMustBeKnown

if TYPE_CHECKING:  # which has this listener
    from subclass_aot.graph.recorder import Recorder

_OVERLAP = """{operator} writes `{written}`, and `{other}` has elements in the same places of memory.
  Your line:  {line}
  The tensors: {target} and {x}
  What it does to such elements depends on the order in which it takes them.
  Instead: give it a copy of one of them, as in x.clone(), or parts that lie apart, as in x[0] and x[1]."""


_REFUSED = """{operator} writes where another of its arguments has elements, and its kernel refuses that.
  Your line:   {line}
  Torch says:  {reason}
  Instead: give it a copy of one of them, as in x.clone()."""

_UNSUPPORTED = "unsupported operation"
"""How messages of kernels begin that refuse arguments which share memory."""

_ROWS = 3
"""What a size that depends on data is taken for: where arguments overlap does not depend on it."""

_LARGEST = 1 << 22
"""Bytes of memory on which a kernel is tried at the most."""


class ArgumentOverlap(GraphListener):
    """Refuses operators that write what another of their arguments shares, where eager mode would refuse or guess.

    Parts of one tensor that lie apart are no such call (see Note [Strided sets]), nor is one tensor that is written,
    and is given whole once more to be read.

    Attributes:
        of_inputs: By its storage, the flat slots of inputs that an input overlaps.
    """

    def __init__(self) -> None:
        self.of_inputs: dict[Storage, tuple[int, ...]] = {}

    def wants(self, func: _torch.operators.Operator) -> bool:
        return bool(effects_of(func).writes)

    def on_operator(
        self,
        recorder: Recorder,
        func: _torch.operators.Operator,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        result: object,
    ) -> None:
        writes = effects_of(func).writes
        places = [(i, a.name) for i, a in enumerate(_torch.operators.schema_of(func).arguments)]
        given = [(p, x) for p in places for x in listed(argument_at(p, args, kwargs)) if isinstance(x, MetaTensor)]
        for i, (place, target) in enumerate(given):
            if place not in writes:
                continue
            for j, (other, x) in enumerate(given):
                read_again = x is target and other not in writes and is_whole(func, place) and is_whole(func, other)
                if (
                    i == j
                    or self._memory(x) != self._memory(target)
                    or read_again
                    or x.meta_spec.lies_apart(target.meta_spec)
                ):
                    continue
                if not has_no_functional_variant(func):
                    # Collectives talk to other ranks, and random draws move the generator: they are not tried.
                    if func.namespace == "aten" and not effects_of(func).draws(args, kwargs):
                        self._refuse_as_its_kernel(func, args, kwargs)
                    return
                if x.meta_spec.solver is not None or target.meta_spec.solver is not None:  # which may know that they do
                    raise SizesMustBeKnown
                which = {"written": place[1], "other": other[1], "target": target.meta_spec, "x": x.meta_spec}
                raise MutationError(_OVERLAP.format(operator=func, line=user_line(), **which))

    def _refuse_as_its_kernel(
        self, func: _torch.operators.Operator, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Runs an operator on other tensors that share memory as its arguments do.

        Raises:
            MutationError: Its kernel refuses them.
        """
        everything: Any = (args, kwargs)
        leaves = [x for x in optree.tree_leaves(everything) if isinstance(x, MetaTensor)]
        known = {id(x): _example(x.meta_spec) for x in leaves}
        sizes: dict[Any, int] = {}
        for x in leaves:
            spec = known[id(x)]
            sizes[self._memory(x)] = max(
                sizes.get(self._memory(x), 0), (spec.offset + spec.extent) * spec.dtype.itemsize
            )
        if sum(sizes.values()) > _LARGEST:
            return
        memory: dict[Any, torch.Tensor] = {}

        def real(value: Any) -> Any:
            if isinstance(value, torch.SymInt):
                return _likely(value)
            if not isinstance(value, MetaTensor):
                return value
            key, spec = self._memory(value), known[id(value)]
            if key not in memory:
                memory[key] = torch.zeros(sizes[key], dtype=torch.uint8, device="cpu")
            made = torch.empty(0, dtype=spec.dtype, device="cpu")
            return made.set_(memory[key].untyped_storage(), spec.offset, spec.size, spec.stride)

        try:
            with _torch.dispatch.disable_current_modes(), torch.no_grad():
                func(*_torch.modules.map_tree(real, args), **_torch.modules.map_tree(real, kwargs))
        except RuntimeError as error:
            pass_on_interruption(error)
            if _UNSUPPORTED in str(error):
                reason = str(error).splitlines()[0]
                raise MutationError(_REFUSED.format(operator=func, line=user_line(), reason=reason)) from error
        except (TypeError, ValueError, IndexError) as error:
            pass_on_interruption(error)  # what is wrong beside that, the operator has said, or will say

    def _memory(self, leaf: MetaTensor) -> Any:
        """Returns a key that is equal for leaves that may share memory."""
        storage = Storage.of(leaf)
        return self.of_inputs.get(storage, storage)


def _example(spec: Spec) -> Spec:
    """Gives a spec with the sizes of the example for those that are symbols, and small ones for those by data."""
    if spec.solver is None:
        return spec
    size, stride, (offset,) = [tuple(map(_likely, each)) for each in (spec.size, spec.stride, (spec.offset,))]
    return Spec.make(size, stride, offset, spec.dtype)


def _likely(number: int | torch.SymInt) -> int:
    return max(0, _torch.symbolic.likely_of(number, _ROWS))
