"""Arguments of one operator that share memory, where it would see its own writes.

An operator without a functional variant is refused. Torch's own have one, which reads all before it writes; many of
their kernels refuse such arguments, and some do not. Which, the kernel says: it is run on small tensors of the same
sizes and strides. Operators on lists take one tensor after the other: what a tensor shares with one at another place of
the lists is refused, too.
"""

from __future__ import annotations

from typing import Any, NamedTuple, NoReturn

import optree
import torch

from subclass_aot.base import _torch
from subclass_aot.base._stack import pass_on_interruption, user_line
from subclass_aot.base.operators import argument_at, effects_of
from subclass_aot.engine.graph.functional.auto_functionalize import has_no_functional_variant, is_whole, listed
from subclass_aot.engine.graph.listeners.listener import GraphListener
from subclass_aot.engine.graph.tape import Tape
from subclass_aot.errors import MutationError
from subclass_aot.meta import MetaTensor, Spec, Storage
from subclass_aot.meta.symbols import SizesMustBeKnown

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


class _Given(NamedTuple):
    """A tensor that an operator is given.

    Attributes:
        place: The position and name of the argument.
        entry: Where it stands in a list; else 0.
        x: The tensor.
    """

    place: tuple[int, str]
    entry: int
    x: MetaTensor


class ArgumentOverlap(GraphListener):
    """Refuses operators that write what another of their arguments shares, where eager mode would refuse or guess.

    Parts of one tensor that lie apart are no such call (see Note [Strided sets]), nor is one tensor that is written,
    and is given whole once more to be read.

    Attributes:
        of_inputs: By its storage, the flat slots of inputs that an input overlaps.
    """

    effects = ("writes",)

    def __init__(self) -> None:
        self.of_inputs: dict[Storage, tuple[int, ...]] = {}

    def on_operator(
        self,
        recorder: Tape,
        func: _torch.operators.Operator,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        result: object,
    ) -> None:
        writes = effects_of(func).writes
        for together in self._together(func, args, kwargs):
            for target in together:
                others = [given for given in together if given is not target] if target.place in writes else ()
                found = next((given for given in others if self._overlaps(func, target, given)), None)
                if found is None:
                    continue
                if has_no_functional_variant(func) or _is_of_lists(func) and found.entry != target.entry:
                    _refuse(func, target, found)
                # Collectives talk to other ranks, and random draws move the generator: they are not tried.
                if func.namespace == "aten" and not effects_of(func).draws(args, kwargs):
                    self._refuse_as_its_kernel(func, args, kwargs)
                return

    def _together(
        self, func: _torch.operators.Operator, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> list[list[_Given]]:
        """Returns the tensors that an operator is given, those together that may share memory."""
        found: dict[Any, list[_Given]] = {}
        for i, argument in enumerate(_torch.operators.schema_of(func).arguments):
            place = i, argument.name
            for entry, x in enumerate(listed(argument_at(place, args, kwargs))):
                if isinstance(x, MetaTensor):
                    found.setdefault(self._memory(x), []).append(_Given(place, entry, x))
        return [together for together in found.values() if len(together) > 1]

    def _overlaps(self, func: _torch.operators.Operator, target: _Given, given: _Given) -> bool:
        """Returns whether what an operator writes has elements of another tensor, which it sees change."""
        is_read_again = given.x is target.x and given.place not in effects_of(func).writes
        is_whole_again = is_whole(func, target.place) and is_whole(func, given.place)
        if is_read_again and (is_whole_again or _is_of_lists(func) and given.entry == target.entry):
            return False
        return not given.x.meta_spec.lies_apart(target.x.meta_spec)

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

        def real(value: object) -> Any:
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


def _is_of_lists(func: _torch.operators.Operator) -> bool:
    """Returns whether an operator does to each tensor of a list what another one does to a tensor."""
    return _torch.operators.schema_of(func).name.startswith("aten::_foreach_")


def _refuse(func: _torch.operators.Operator, target: _Given, given: _Given) -> NoReturn:
    """Raises an error that names two tensors.

    Raises:
        MutationError: Always.
        SizesMustBeKnown: With numbers for sizes they may lie apart.
    """
    one, other = target.x.meta_spec, given.x.meta_spec
    if given.x is not target.x and (other.solver is not None or one.solver is not None):
        raise SizesMustBeKnown
    which = {"written": target.place[1], "other": given.place[1], "target": one, "x": other}
    raise MutationError(_OVERLAP.format(operator=func, line=user_line(), **which))


def _example(spec: Spec) -> Spec:
    """Gives a spec with the sizes of the example for those that are symbols, and small ones for those by data."""
    if spec.solver is None:
        return spec
    size, stride, (offset,) = [tuple(map(_likely, each)) for each in (spec.size, spec.stride, (spec.offset,))]
    return Spec.make(size, stride, offset, spec.dtype)


def _likely(number: int | torch.SymInt) -> int:
    return max(0, _torch.symbolic.likely_of(number, _ROWS))
