"""Attributes that a program has read of the inputs in vain. See Note [Absent attributes]."""

from __future__ import annotations

from collections.abc import Iterable
from types import FunctionType

from subclass_aot.base.bytecode import names_in
from subclass_aot.engine.call import Arguments
from subclass_aot.engine.signature import Absent
from subclass_aot.engine.trace.inputs import TracedInputs
from subclass_aot.kit.wrapper import WrapperTensor
from subclass_aot.meta import MetaTensor

_WHOLE = frozenset({"vars", "dir", "__dict__"})
"""Names by which a function reads all attributes of something at once."""


def absent_names(
    inputs: TracedInputs, arguments: Arguments, missed: Iterable[tuple[object, str]]
) -> tuple[Absent, ...]:
    """Finds what each call must have in common with the one that is traced.

    Args:
        inputs: The traced inputs.
        arguments: The call.
        missed: The tensors whose attributes were read, and their names.

    Returns:
        One for each input that has no attributes of the program's, and whose class reports what is read. None, if a
        function of the call may read the attributes of a tensor as a whole: then all of them count.
    """
    if _reads_all_attributes(arguments):
        return ()
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


def _reads_all_attributes(arguments: Arguments) -> bool:
    functions = [holder.value for holder in arguments.objects.holders if isinstance(holder.value, FunctionType)]
    return any(not _WHOLE.isdisjoint(names_in(function.__code__)) for function in functions)
