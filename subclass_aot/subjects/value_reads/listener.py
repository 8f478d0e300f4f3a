"""Data-dependent values: symbols for them, and reads of values. See Note [Reads of values]."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import torch
from torch import fx

from subclass_aot.base import _torch
from subclass_aot.base._stack import user_line
from subclass_aot.base.put_back import PutBack
from subclass_aot.engine.graph import DRAW_ELSEWHERE, GraphListener, Look, Looks, looks, tape
from subclass_aot.meta import MetaTensor
from subclass_aot.meta.symbols import current_symbols


class DataDependent(GraphListener):
    """Is called for operators whose results have such numbers, and answers where the program reads values.

    Attributes:
        numbers: Inputs that stand for numbers of Python that change from call to call: these are symbols.
    """

    effects = ("data_dependent",)

    def __init__(self) -> None:
        self.numbers: set[fx.Node] = set()

    def on_recorded(
        self,
        recorder: tape.Tape,
        node: fx.Node,
        func: _torch.operators.Operator,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        result: object,
    ) -> None:
        symbols = current_symbols()
        if symbols is None:
            return
        node.meta["unbacked"] = symbols.take_fresh_unbacked()
        leaves = looks.parts_of(result)
        recorder.symints.made(node.meta["unbacked"], leaves, symbols.places)
        for leaf in leaves:
            if type(leaf) is MetaTensor and leaf.meta_spec.solver is not None:
                recorder.symints.offer(leaf.meta_spec, leaf.meta_tag)
        values = recorder.listeners.looks
        if values is not None and recorder.phase == "forward":
            values.tell_unbacked(node.meta["unbacked"], result, partial(self._value_now, recorder, node))

    def are_wanted(self, recorder: tape.Tape, func: _torch.operators.Operator, args: tuple[Any, ...]) -> bool:
        """Returns whether an operator that needs values gets those of the call; else its result is a symbol."""
        values: Looks | None = recorder.listeners.looks
        if values is None:
            return False
        if recorder.phase == "backward":
            return values.are_sizes_wanted(func, current_symbols() is not None)
        if args[0].meta_tag in self.numbers and current_symbols() is not None:
            return False
        drawn = args[0].meta_tag.target is DRAW_ELSEWHERE and args[0].dtype.is_floating_point and not args[0].dim()
        if drawn and values.is_drawn(user_line(), current_symbols() is not None):
            return False
        return values.are_wanted(func, args[0], user_line(), current_symbols() is not None)

    def look(
        self, recorder: tape.Tape, leaf: MetaTensor, text: bool = False, form: str | None = None
    ) -> torch.Tensor | None:
        """Returns the values of a leaf in the call, which others then have to have, too.

        Args:
            recorder: What records.
            leaf: The leaf.
            text: Whether the program has but the text of them.
            form: What that is formatted by; None for `repr`.
        """
        values = recorder.listeners.looks
        if values is None or recorder.phase == "backward":
            return None
        value: torch.Tensor | None = self._value_now(recorder, recorder.node_of(leaf))
        if value is None or not text and not looks.may_be_compared(value):
            return None
        with recorder:  # what is compared at each call is the value as it is now
            asked = torch.ops.aten.clone.default(leaf)
        look = Look(asked, None, user_line(), form if form is not None else "!r" if text else None)
        with PutBack(partial(torch.set_default_dtype, torch.get_default_dtype())):
            if recorder.default_dtype is not None:  # which is set where a call compares it
                torch.set_default_dtype(recorder.default_dtype)
            values.found.append(dataclasses.replace(look, value=look.compared(value)))
        return value

    def memory(self, recorder: tape.Tape, leaf: MetaTensor) -> torch.Tensor | None:
        """Returns the values of a leaf that the program gets as an array; None if nobody may read them.

        Raises:
            OnlyInEagerModeError: They are too many to be compared at each call.
        """
        if recorder.listeners.looks is None or recorder.phase == "backward":
            return None
        value = recorder.known(leaf)
        if value is None:
            found = self._value_now(recorder, recorder.node_of(leaf))
            if found is not None:
                recorder.listeners.arrays.refuse_large(found.numel())
        elif not value.numel():
            tuple(map(int, leaf.shape))  # the comparison of no values does not see the sizes
        return value

    def value_now(self, recorder: tape.Tape, leaf: MetaTensor) -> torch.Tensor | None:
        """Returns the values of a leaf in the call that is traced, for what does not depend on them; None if nobody may
        read them.
        """
        return None if recorder.listeners.looks is None else self._value_now(recorder, recorder.node_of(leaf))

    def _value_now(self, recorder: tape.Tape, node: fx.Node) -> Any:
        """Returns the value of a node in the call that is traced."""
        recorder.made[:] = [ref for ref in recorder.made if ref() is not None]  # else each read looks at all before
        alive = {leaf.meta_tag for leaf in (ref() for ref in recorder.made) if type(leaf) is MetaTensor}
        if "assigned_data" in recorder.listeners:
            alive.update(leaf.meta_tag for leaf, _ in recorder.listeners.assigned_data.before.values())
        constants = recorder.listeners.real_tensors.constants
        recorded = looks.Recorded(recorder.in_order(), constants, recorder.written_nodes(), alive)
        return recorder.listeners.looks.value(recorded, node)
