"""How a call is traced, in one of several attempts."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from subclass_aot.base._stack import user_line_of
from subclass_aot.engine.call import Arguments
from subclass_aot.engine.graph import Looks, Retrace, TraceOptions
from subclass_aot.engine.sizes import DynamicSizes, GivenSizes
from subclass_aot.engine.trace.handlers import handlers_run
from subclass_aot.meta.symbols import NoAnswer, SizesMustBeKnown


@dataclass(frozen=True, slots=True, eq=False)
class Attempt:
    """How a call is traced.

    Attributes:
        arguments: The call.
        sizes: Which sizes are symbols; None if every number must be known, those that depend on data too.
        values: Answers where the function reads values; None if it may not.
        failure: What the function or a compiler raised where more sizes were symbols.
        options: What the attempts before this one have found out.
        numbers: Sizes that stay numbers in this attempt, since the solver found no answer with symbols.
        parts: Whether backward may have several parts. See Note [Parts of backward].
        known_since: The line of the program, and what it ran, where a trace found that sizes must be numbers; or "".
        handlers: How many handlers of signals had run before `arguments` were read.
    """

    arguments: Arguments
    sizes: DynamicSizes | GivenSizes | None = None
    values: Looks | None = None
    failure: BaseException | None = None
    options: TraceOptions = TraceOptions()
    numbers: tuple[str, ...] = ()
    parts: bool = False
    known_since: str = ""
    handlers: int = dataclasses.field(default_factory=handlers_run)

    def after(self, failure: SizesMustBeKnown | Retrace) -> Attempt:
        """Returns what is tried next.

        Args:
            failure: Why this attempt failed.
        """
        sizes, options, since = self.sizes, self.options, self.known_since
        if isinstance(failure, NoAnswer) and isinstance(sizes, DynamicSizes):
            numbers = (*self.numbers, *failure.places)
            return dataclasses.replace(self, sizes=sizes.without_places(failure.places), numbers=numbers)
        if not isinstance(failure, Retrace):
            since = user_line_of(failure)
        if isinstance(failure, Retrace):
            options = failure.options(options)
            if options.data_dependent_sizes and sizes is None:
                sizes = DynamicSizes()
            if options.views and sizes is not None:  # see Note [Views of one tensor]
                joined = self.arguments.with_views(options.views)
                sizes = sizes.without({*options.views, *map(joined.path_of, joined.view_of)})
        elif sizes:
            sizes = sizes.without(failure.paths)
        else:  # those that depend on data: the call tells them, or the operator that makes them is refused
            assert sizes is not None, "a trace without symbolic sizes has known ones"
            sizes, options = None, dataclasses.replace(options, data_dependent_sizes=False, values_fix_sizes=True)
        return dataclasses.replace(self, sizes=sizes, options=options, known_since=since)
