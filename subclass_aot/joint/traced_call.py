"""What the call was like that a joint graph was traced from, without its tensors; and how another call differs."""

from __future__ import annotations

import hashlib
import re
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from subclass_aot.call import Arguments, HeldPlace, ModulePlace
from subclass_aot.errors import JointGraphError
from subclass_aot.guards import MODES, Modes, describe_tensor, difference, facts, global_state, symbolic_places, unmet
from subclass_aot.joint import messages
from subclass_aot.joint.records import tensor_of
from subclass_aot.signature import JointSignature
from subclass_aot.tables import HOOKS

_ABOUT_MEMORY = ("leaves that share storage", "tensors with one history", "storage offset of leaf ")


@dataclass(frozen=True, slots=True, eq=False)
class TracedCall:
    """What the call was like that a joint graph was traced from.

    Attributes:
        name: What errors call the function.
        kind: Its class; of a function, a digest of its code.
        order: The names of the tensors, in the order of the graph.
        names: For every place where a tensor stands, the name of that tensor. One that is tied has several.
        facts: Everything that the trace depends on, in words, by the path of what it is about.
        classes: The class of each module and of each object; of a function or a hook, what tells its code.
        modes: The modes of torch.
        with_grad: Whether the `.grad` of each tensor belonged to the call.
    """

    name: str
    kind: object
    order: tuple[str, ...]
    names: Mapping[str, str]
    facts: Mapping[str, str]
    classes: Mapping[str, type | str]
    modes: Modes
    with_grad: bool

    @staticmethod
    def of(fn: Callable[..., Any], arguments: Arguments, signature: JointSignature) -> TracedCall:
        """Reads it off the call, before anybody changes something."""
        order = tuple(tensor_of(given.desc) for given in signature.inputs)
        modes = global_state()
        names: dict[str, str] = {}
        joined = arguments.with_views(signature.views)
        for place, position in joined.placed:
            if position < len(order):
                names.setdefault(place.path, order[position])
                if isinstance(place, ModulePlace | HeldPlace):
                    names.setdefault(place.path.partition(".")[2], order[position])
        return TracedCall(
            name=getattr(fn, "__name__", type(fn).__name__),
            kind=_kind(fn),
            order=order,
            names={**names, **{name: name for name in order}},
            facts=_facts(arguments, signature, modes),
            classes=_classes(arguments),
            modes=modes,
            with_grad=arguments.with_grad,
        )

    def refuse_other_function(self, fn: Callable[..., Any]) -> None:
        """Refuses to bind what was not traced.

        Raises:
            JointGraphError: It is of another class, or another function.
        """
        if _kind(fn) != self.kind:
            given = getattr(fn, "__name__", type(fn).__name__)
            if given == self.name:
                given += ", another of that name"
            raise JointGraphError(messages.OTHER_FUNCTION.format(given=given, traced=self.name))

    def refuse_other(self, arguments: Arguments, signature: JointSignature) -> None:
        """Refuses a call of the function that is not as the one that was traced.

        Raises:
            JointGraphError: It differs; each difference is named.
        """
        now = _facts(arguments, signature, global_state())
        before, classes = self.classes, _classes(arguments)
        found = [
            f"class of {path}: {_text(before.get(path, 'absent'))} before, {_text(classes.get(path, 'absent'))} now"
            for path in dict.fromkeys((*before, *classes))
            if classes.get(path) != before.get(path)
        ]
        found += difference(dict(self.facts), now) or unmet(signature, arguments)
        changed = [path for path in sorted(signature.assigned_paths) if self.facts.get(path) != now.get(path)]
        _refuse(found, changed)

    def refuse_other_values(self, values: tuple[torch.Tensor, ...], signature: JointSignature) -> Arguments:
        """Takes values apart that stand for the tensors of the call, one by one, in their order.

        Returns:
            The call of a function of these values.

        Raises:
            JointGraphError: They are not as those that were traced; each difference is named.
        """
        if len(values) != len(self.order):
            names = ", ".join(self.order)
            raise JointGraphError(
                messages.NUMBER_OF_VALUES.format(given=len(values), expected=len(self.order), names=names)
            )
        arguments = Arguments.of(_nothing, values, {})
        paths = [given.path for given in signature.inputs]
        places = symbolic_places(signature)
        now = dict(zip(MODES, map(str, global_state()), strict=True))
        first: dict[int, str] = {}
        for path, value in zip(paths, values, strict=True):
            same = first.setdefault(id(value), path)
            now[path] = describe_tensor(value, path, places) if same == path else f"the same tensor as {same}"
        if signature.mutations.write_data and len(first) == len(values):
            here = facts(arguments, arguments.plan.unwrap(arguments.values), global_state())
            now |= {name: _renamed(text, paths) for name, text in here.items() if name.startswith(_ABOUT_MEMORY)}
        found = difference({name: self.facts.get(name, "absent") for name in now}, now)
        _refuse(found or signature.begins_elsewhere(arguments.values))
        return arguments


def _facts(arguments: Arguments, signature: JointSignature, modes: Modes) -> dict[str, str]:
    """Everything that a trace depends on. Which tensors share memory counts only where some is written."""
    leaves = arguments.plan.unwrap(arguments.values)
    found = facts(arguments, leaves, modes, symbolic_places(signature))
    if signature.mutations.write_data:
        return found
    return {name: text for name, text in found.items() if not name.startswith(_ABOUT_MEMORY)}


def _classes(arguments: Arguments) -> dict[str, type | str]:
    """The class of each module and object by its path; of functions and hooks, what tells their code from others'.

    What pickle does not know is told by its name.
    """
    found = {holder.path: _class_of(holder.value) for holder in arguments.objects.holders}
    for path, module in arguments.modules:
        found[path] = type(module)
        hooks = {name: getattr(module, name) for name in HOOKS}
        found |= {f"{path}.{name}": ", ".join(map(_of_hook, table.values())) for name, table in hooks.items() if table}
    return found


def _class_of(value: object) -> type | str:
    if isinstance(value, types.FunctionType | types.MethodType):
        return f"function {value.__name__} #{str(_kind(value))[:8]}"
    cls = type(value)
    return _text(cls) if cls.__module__ == "builtins" else cls


def _of_hook(hook: object) -> str:
    return _text(_class_of(hook))


def _kind(fn: object) -> object:
    """A digest of the code of a function, by which another of that name is told from it; of an object, its class."""
    code = getattr(getattr(fn, "__func__", fn), "__code__", None)
    return type(fn) if code is None else hashlib.sha256(_instructions(code).encode()).hexdigest()


def _instructions(code: types.CodeType) -> str:
    """The instructions of a function and of those in it, as text that is the same in each process."""
    constants = [_instructions(x) if isinstance(x, types.CodeType) else _constant(x) for x in code.co_consts]
    return repr((code.co_code, constants, code.co_names, code.co_varnames, code.co_freevars))


def _constant(value: object) -> str:
    return repr(sorted(map(repr, value))) if isinstance(value, frozenset) else repr(value)


def _text(cls: type | str) -> str:
    return cls if isinstance(cls, str) else f"{cls.__module__}.{cls.__qualname__}"


def _renamed(text: str, paths: Sequence[str]) -> str:
    """A text about values by position, with the paths that they had in the call that was traced."""
    return re.sub(r"\bargs\[(\d+)\]", lambda found: paths[int(found[1])], text)


def _refuse(differences: list[str], changed: Sequence[str] = ()) -> None:
    """Refuses a call that differs.

    Args:
        differences: How.
        changed: What of that the function changes itself.
    """
    if differences:
        lines = "\n".join(f"  {line}" for line in differences[:8])
        more = f"\n  and {len(differences) - 8} more" if len(differences) > 8 else ""
        why = messages.CHANGED_ITSELF.format(paths=", ".join(changed)) if changed else ""
        raise JointGraphError(messages.DOES_NOT_FIT.format(differences=lines + more) + why)


def _nothing(*tensors: torch.Tensor) -> None:
    """Stands for what is called where values are taken apart."""
