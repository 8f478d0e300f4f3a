"""Attributes that a program has read of the inputs in vain. See Note [Absent attributes]."""

from __future__ import annotations

from collections.abc import Iterable

from subclass_aot.call import Arguments
from subclass_aot.meta import MetaTensor
from subclass_aot.signature import Absent
from subclass_aot.trace.inputs import TracedInputs
from subclass_aot.wrapper import WrapperTensor


def absent_names(
    inputs: TracedInputs, arguments: Arguments, missed: Iterable[tuple[object, str]]
) -> tuple[Absent, ...]:
    """Finds what each call must have in common with the one that is traced.

    Args:
        inputs: The traced inputs.
        arguments: The call.
        missed: The tensors whose attributes were read, and their names.

    Returns:
        One for each input that has no attributes of the program's, and whose class reports what is read.
    """
    having = arguments.with_attributes
    asked: dict[int, dict[str, None]] = {}
    for tensor, name in missed:
        if not (isinstance(tensor, WrapperTensor) and name.startswith("_")):  # which are the business of the class
            asked.setdefault(id(tensor), {})[name] = None
    return tuple(
        [
            Absent(position, tuple(asked.get(id(seen), ())))
            for position, seen in enumerate(inputs.seen)
            if position not in having and isinstance(seen, MetaTensor | WrapperTensor)
        ]
    )
