"""Notes on results which of their dims are symbols, for the next graph.

Note [Marks on results]
~~~~~~~~~~~~~~~~~~~~~~~
Behind a graph break, what one graph gave is an argument of the next one. Dynamo would compile that for the sizes of the
call, and once more with symbols when another size came. It has symbols at once where the argument has a mark, which
AOTAutograd sets on each result of a graph. Here it is set on the same results, and on the inner tensors of those that
are wrappers: Dynamo reads the marks of each. Where no result has a symbol in its sizes, nothing is added to a call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from subclass_aot.base import _torch
from subclass_aot.doors.dynamo.captured import examples_of_results
from subclass_aot.meta.symbols import is_symbolic, plain


@dataclass(frozen=True, slots=True)
class Marks:
    """The dims of a tensor that are symbols.

    Attributes:
        dims: Which.
        inner: The marks of its inner tensors, by attribute: those that have any.
    """

    dims: frozenset[int]
    inner: Mapping[str, Marks]

    def __bool__(self) -> bool:
        return bool(self.dims or self.inner)

    @staticmethod
    def of(example: torch.Tensor) -> Marks:
        """Returns those of a tensor with Dynamo's symbols."""
        dims = frozenset(dim for dim, size in enumerate(example.shape) if is_symbolic(plain(size)))
        names = example.__tensor_flatten__()[0] if _torch.wrappers.is_traceable_wrapper_subclass(example) else ()
        parts = {name: getattr(example, name) for name in names}
        inner = {name: Marks.of(part) for name, part in parts.items() if isinstance(part, torch.Tensor)}
        return Marks(dims, {name: marks for name, marks in inner.items() if marks})

    def put_on(self, tensor: torch.Tensor) -> None:
        """Sets them."""
        if self.dims:
            _torch.dynamo.mark_result(tensor, self.dims)
        for name, marks in self.inner.items():
            marks.put_on(getattr(tensor, name))


def with_marks(function: Callable[..., Any], gm: fx.GraphModule) -> Callable[..., Any]:
    """Returns a function that marks its results. It is the same one if none has a symbol in its sizes.

    Args:
        function: What the graph was compiled to, so that it is known which symbols proved to be numbers.
        gm: The graph that Dynamo captured.
    """
    examples = enumerate(examples_of_results(gm))
    found = [(i, Marks.of(example)) for i, example in examples if isinstance(example, torch.Tensor)]
    to_mark = [(i, marks) for i, marks in found if marks]
    if not to_mark:
        return function

    def run(*args: object) -> Any:
        results = function(*args)
        for i, marks in to_mark:
            marks.put_on(results[i])
        return results

    return run
