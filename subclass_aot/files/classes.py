"""Classes by the names that files have for them: only those that the reader knows already."""

from __future__ import annotations

import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from enum import Enum

from subclass_aot.base._stack import pass_on_interruption
from subclass_aot.base.named import full_name, named
from subclass_aot.base.plain_values import is_named_tuple
from subclass_aot.base.refused import Refused
from subclass_aot.kit.declaration import Declaration
from subclass_aot.kit.wrapper import ViewOf, WrapperTensor

Classes = Iterable[type] | Mapping[str, type]
"""What a reader hands in: classes, or classes by the names that the file has for them."""


class KnownClasses:
    """The classes that a file may name. Nothing is imported, and nothing is looked up in modules.

    Args:
        given: What the reader hands in.
    """

    def __init__(self, given: Classes = ()) -> None:
        named = given if isinstance(given, Mapping) else {full_name(cls): cls for cls in given}
        self.given: dict[str, type] = dict(named)

    def wrapper(self, name: str) -> type:
        """Returns the wrapper class `name`: one that was given, or one that derives from `WrapperTensor` and is
        defined.

        Args:
            name: What the file calls it.

        Raises:
            Refused: Nobody knows it, or there are several.
        """
        if name in self.given:
            return self.given[name]
        defined = [cls for cls in set(_derived(WrapperTensor)) if full_name(cls) == name and cls is not ViewOf]
        if len(defined) > 1:  # a class statement that ran again, as in a notebook: the last one counts
            defined = [cls for cls in defined if cls is named(name)] or defined
        return self._only(defined or self._of_last_name(name), name)

    def of_context(self, name: str, of: type) -> type:
        """Returns the enum or dataclass `name`: one that was given, or one that the annotations of a declared class
        mention.

        Args:
            name: What the file calls it.
            of: The class of wrappers in whose context it stands.

        Raises:
            Refused: Nobody knows it, or there are several.
        """
        if name in self.given:
            return self.given[name]
        declaration = Declaration.of(of)
        declared = () if declaration is None else declaration.fields.values()
        mentioned = {cls for field in declared for cls in _mentioned(field.annotation, type(field.default))}
        found = [cls for cls in mentioned if full_name(cls) == name]
        return self._only(found or self._of_last_name(name), name)

    def _of_last_name(self, name: str) -> list[type]:
        """Returns given classes of that name whose module is another one since."""
        last = name.partition(":")[2]
        return [cls for cls in self.given.values() if cls.__qualname__ == last]

    def _only(self, found: list[type], name: str) -> type:
        if len(found) == 1:
            return found[0]
        last = name.rpartition(".")[2].rpartition(":")[2]
        if found:
            raise Refused(
                f"is of the class {name}, and there are {len(found)} of that name. Say which one: classes=[{last}]"
            )
        raise Refused(
            f"is of the class {name}, which nobody has defined here or handed in. A file imports nothing: "
            f"import it, and hand it in:\n    classes=[{last}]\nor, if it has another name now,\n"
            f"    classes={{{name!r}: ...}}"
        )


def _derived(cls: type) -> Iterator[type]:
    derived: type
    for derived in cls.__subclasses__():
        yield derived
        yield from _derived(derived)


def _mentioned(*annotations: object) -> Iterator[type]:
    """Yields the enums, dataclasses and named tuples in annotations, and those in the annotations of these."""
    seen: set[object] = set()
    ahead = list(annotations)
    while ahead:
        annotation = ahead.pop()
        ahead += typing.get_args(annotation)
        if not isinstance(annotation, type) or annotation in seen or typing.get_origin(annotation) is not None:
            continue
        seen.add(annotation)
        if issubclass(annotation, Enum):
            yield annotation
        elif is_dataclass(annotation) or is_named_tuple(annotation):
            yield annotation
            ahead += _hints(annotation)


def _hints(cls: type) -> list[object]:
    try:
        return list(typing.get_type_hints(cls).values())
    except Exception as error:  # an annotation that names what is not there: such a class has to be handed in
        pass_on_interruption(error)
        return []
