"""Going on with what a file has: a call that fits runs what was compiled in another process, and nothing is traced."""

from __future__ import annotations

from collections.abc import Callable, Collection, MutableSet
from typing import Any, NoReturn

from subclass_aot.base.refused import Refused
from subclass_aot.engine.call import Arguments
from subclass_aot.engine.compile import CompiledFunction
from subclass_aot.engine.facts import Scope, difference, facts_of
from subclass_aot.engine.guards import MISS, StaticInputCache
from subclass_aot.engine.options import Options, compile_split
from subclass_aot.engine.runtime import Graphs
from subclass_aot.engine.signature import JointSignature
from subclass_aot.engine.specializations import Specialization
from subclass_aot.errors import CompiledFileError, SubclassAotError
from subclass_aot.files.compiled import (
    NO_TRACE,
    Key,
    SavedFile,
    key_of_call,
    refusals,
)

NO_FIT = """no signature in it fits this call, and there is no function to trace. What differs from {nearest}:
{differences}
  Instead: call it as it was called when the file was written, or sa.load_compiled(path, fn_or_module, trust=True),
  which traces others"""

_NOT_CALLED = """This was loaded from a file without its function, so that nothing can be traced, exported or
  transformed: sa.load_compiled(path, fn_or_module, trust=True)."""

_VALUES = "values of tensors that the program reads"


class NoFunction:
    """Stands for the function of a file that was loaded without it."""

    def __new__(cls, *args: object, **kwargs: object) -> NoReturn:
        """Refuses to be called.

        Raises:
            SubclassAotError: Always.
        """
        raise SubclassAotError(_NOT_CALLED)


class Restored:
    """The contents of a file for one compiled function.

    Args:
        file: The file.
        fn: The function, or None.
        options: What graphs are compiled with.
    """

    def __init__(self, file: SavedFile, fn: Callable[..., Any] | None, options: Options) -> None:
        self._file = file
        self._fn = fn
        self._options = options
        self._made: dict[int, Specialization] = {}
        self.missed: list[str] = []  # what differs from the nearest call in the file, of the last one that did not fit

    def fitting(
        self, call: tuple[Any, ...], together: MutableSet[StaticInputCache], known: Collection[Specialization]
    ) -> Specialization | None:
        """Returns what the file has for a call; None if it has nothing, and there is a function to trace.

        Args:
            call: The call.
            together: What the guards of one function keep from call to call.
            known: What is there by now, and does not fit.

        Raises:
            CompiledFileError: The file has nothing for it, and there is no function; or what it has is no such thing.
        """
        args, kwargs, *_, modes = call
        fn: Callable[..., Any] = NoFunction if self._fn is None else self._fn
        of_numbers: dict[tuple[str, ...], Arguments] = {}
        try:
            keys: dict[Scope, Key] = {}
            for saved in self._file.specializations:
                numbers = saved.scope.numbers
                if numbers not in of_numbers:
                    of_numbers[numbers] = Arguments.of(fn, args, kwargs, changing=numbers)
                if saved.scope not in keys:
                    keys[saved.scope] = key_of_call(of_numbers[numbers], modes, saved)
        except Refused as refused:
            self._refuse_without_function([f"{', '.join(refused.where)}: {refused.what}"], "what a file can have")
            return None
        missed: list[tuple[list[str], str]] = []
        for number, saved in enumerate(self._file.specializations, 1):
            key, arguments = keys[saved.scope], of_numbers[saved.scope.numbers]
            differences = saved.differences(key, self._fn is not None)
            made = self._made.get(number)
            if not differences and made is not None and made in known:
                differences = difference(made.facts, facts_of(arguments, modes, made.scope))
            elif not differences:
                with refusals(self._file.path, f"specialization {number}"):
                    signature, graphs = saved.read(arguments.named)
                made = self._made[number] = self._compiled(signature, graphs, arguments, together)
                if made.entry.call(*call, check_only=True) is not MISS:
                    return made
            missed.append((differences or [_VALUES], f"specialization {number}"))
        nearest = min(missed, key=lambda pair: len(pair[0]), default=([], "the file, which has none"))
        self._refuse_without_function(*nearest)
        return None

    def _refuse_without_function(self, differences: list[str], nearest: str) -> None:
        self.missed = differences
        if self._fn is None:
            lines = "\n".join(f"  {line}" for line in differences[:12])
            raise CompiledFileError(self._file.path, "", NO_FIT.format(nearest=nearest, differences=lines))

    def _compiled(
        self, signature: JointSignature, graphs: Graphs, arguments: Arguments, together: MutableSet[StaticInputCache]
    ) -> Specialization:
        """Compiles the graphs of a specialization, and generates its guard and its entry again."""
        fn, name = NoFunction, self._file.function
        if self._fn is not None:
            fn = self._fn
            name = getattr(self._fn, "__name__", type(self._fn).__name__)
        compiled = compile_split(name, signature, graphs, self._options, _no_trace)
        return Specialization.of(fn, arguments, signature, compiled, f"loaded from {self._file.path}", together)


def _no_trace(tangents: object, present: object = ()) -> NoReturn:
    raise NotImplementedError(NO_TRACE)


def restored(file: SavedFile, fn: Callable[..., Any] | None, options: Options) -> CompiledFunction[..., Any]:
    """Returns a compiled function that queries a file before it traces.

    Args:
        file: The file.
        fn: The function; None where nothing can be traced.
        options: What to compile with.
    """
    made: CompiledFunction[..., Any] = CompiledFunction(NoFunction if fn is None else fn, options)
    if fn is None:
        vars(made)["__qualname__"] = file.function.rpartition(":")[2]
    used = file.used_by(fn)
    made._go_on_with(Restored(file, fn, options), used, fn is None or used is not None)
    return made
