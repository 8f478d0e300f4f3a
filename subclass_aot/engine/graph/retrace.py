"""When a trace has to begin again, and be made otherwise."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from subclass_aot.engine.tables import Gradients


@dataclass(frozen=True, slots=True)
class TraceOptions:
    """Options of a trace that are found only while a call is traced.

    Attributes:
        views: Where the user finds tensors that are traced as views. See Note [Views of one tensor].
        data_dependent_sizes: Whether sizes that depend on data are symbols, though no size of an input is one.
        values_fix_sizes: Whether the call decides which size one is that depends on data.
        looks_at_branches: Whether the call decides which branch of `torch.cond` is recorded, and not both are.
        with_grad: Of which inputs the `.grad` is an input, too, since the program reads or changes it; `True` for more
            of them than until now.
        hashes_by_value: Whether symbolic numbers have a hash, that of their value; torch's have none.
        searched: How often functions were searched for that call `int` on symbols. A program may make such at each run.
    """

    views: frozenset[str] = frozenset()
    data_dependent_sizes: bool = False
    values_fix_sizes: bool = False
    looks_at_branches: bool = False
    with_grad: bool | Gradients = False
    hashes_by_value: bool = False
    searched: int = 0


class Retrace(BaseException):
    """The trace begins again, with other options. No `except Exception` of the program catches it.

    Args:
        **changes: The options that are other ones, by their names in `TraceOptions`; views are more ones.
    """

    def __init__(self, **changes: bool | int | Gradients | frozenset[str]) -> None:
        super().__init__(changes)
        self._changes = changes

    def options(self, before: TraceOptions) -> TraceOptions:
        """Returns the options to begin again with."""
        more = self._changes.get("views", frozenset())
        assert isinstance(more, frozenset)
        changes: dict[str, object] = {**self._changes, "views": before.views | more}
        return dataclasses.replace(before, **changes)  # type: ignore[arg-type]
