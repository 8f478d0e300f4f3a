"""A view as the operators that make it.

Note [Views are data]
~~~~~~~~~~~~~~~~~~~~~
Take `x[1:].t()`. It is a chain of two steps:

    Chain((Step(aten.slice.Tensor, (0, 1)), Step(aten.t.default)))

Results of a compiled call that are views of inputs, views that share fields with the rest of their wrapper, views that
read through the whole, and what a program does to the metadata of an input (`t_`) are all said in this way. A chain is
compared, written into files, and run on another tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch

from subclass_aot.base import _torch

Number = Callable[[Any], Any]
"""What gives the number to take in the place of one."""


class SymintAt(NamedTuple):
    """A symbolic number, or a tensor beside the base, among the arguments of a step, by its position among those that
    the call has.
    """

    position: int


class AnyStep(Protocol):
    """A step that makes a tensor of a tensor."""

    def __call__(self, tensor: torch.Tensor, number: Number | None = None) -> torch.Tensor:
        """Makes it, with other numbers if `number` is given."""


class Step(NamedTuple):
    """An operator, and what it is called with beside the tensor.

    Attributes:
        operator: The operator.
        args: Its other arguments, in order.
        kwargs: Its keyword arguments.
        tensor: Before which of `args` the tensor stands.
        result: Which of its results is meant; None if it has one.

    >>> Step(torch.ops.aten.select.int, (0, 1))(torch.tensor([1, 2]))
    tensor(2)
    """

    operator: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: tuple[tuple[str, Any], ...] = ()
    tensor: int = 0
    result: int | None = None

    @classmethod
    def of(
        cls,
        operator: Callable[..., Any],
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
        result: int | None = None,
    ) -> Step:
        """Returns the step `operator(tensor, *args, **kwargs)`."""
        return cls(operator, args, tuple(kwargs.items()), 0, result)

    def __call__(self, tensor: torch.Tensor, number: Number | None = None) -> Any:
        """Calls the operator.

        Args:
            tensor: The tensor.
            number: Called with each of the arguments, gives what to take in its place; None for the arguments as they
                are.
        """
        operator, args, kwargs, place, result = self
        if number is not None:
            args = _mapped(args, number)
            kwargs = tuple([(name, _mapped(x, number)) for name, x in kwargs])
        made = operator(*args[:place], tensor, *args[place:], **dict(kwargs))
        return made if result is None else made[result]


class RaggedSize(NamedTuple):
    """The size of the ragged dimension among the arguments of a step: that of the tensor which the step is given."""


class JaggedStep(NamedTuple):
    """A step that is called with the size of the ragged dimension. See Note [Jagged tensors].

    Attributes:
        step: The step, with `RaggedSize()` in the place of that size.
    """

    step: Step

    @staticmethod
    def if_ragged(step: Step) -> AnyStep:
        """Returns the step, as one that is called with the ragged size if it is."""
        seen: list[object] = []
        _mapped([step.args, step.kwargs], seen.append)
        return JaggedStep(step) if any(type(x) is RaggedSize for x in seen) else step

    def __call__(self, tensor: torch.Tensor, number: Number | None = None) -> Any:
        """Makes the view of a jagged tensor, as `Step` does."""
        ragged = _torch.wrappers.ragged_size_of(tensor)
        return self.step(tensor, lambda x: ragged if type(x) is RaggedSize else x if number is None else number(x))


class FunctionStep(NamedTuple):
    """A step that autograd alone knows: it keeps how a view was made as a function.

    Attributes:
        function: What makes the view; called with a tensor, and with a function of numbers or None.
    """

    function: Callable[..., torch.Tensor]

    def __call__(self, tensor: torch.Tensor, number: Number | None = None) -> torch.Tensor:
        """Makes the view."""
        return self.function(tensor, number)


@dataclass(frozen=True, slots=True)
class Chain:
    """Steps, one after the other: `chain(base, *given)` makes the view.

    Attributes:
        steps: The steps; none for the tensor itself.
        detached: Whether the view has no history.

    >>> aten = torch.ops.aten
    >>> Chain((Step(aten.slice.Tensor, (0, 1)), Step(aten.t.default)))(torch.zeros(3, 2)).shape
    torch.Size([2, 2])
    """

    steps: tuple[AnyStep, ...] = ()
    detached: bool = False

    def __call__(self, base: torch.Tensor, *given: Any) -> torch.Tensor:
        """Makes the view of `base`, with these numbers, and tensors after them, in the place of `SymintAt`."""
        return self.again(base, (lambda x: given[x.position] if type(x) is SymintAt else x) if given else None)

    def again(self, base: torch.Tensor, number: Number | None = None) -> torch.Tensor:
        """Makes the view of `base`, with what `number` gives in the place of each argument."""
        for step in self.steps:
            base = step(base, number)
        return base.detach() if self.detached else base

    def then(self, *steps: AnyStep) -> Chain:
        """Returns the chain that goes on with these steps."""
        return Chain((*self.steps, *steps), self.detached)

    def of_several(self) -> tuple[Chain, int, Chain] | None:
        """Returns the steps up to the last operator with several results, which result is meant, and the steps after
        it; None if each operator has one.

        >>> whole, result, rest = Chain((Step(torch.ops.aten.unbind.int, result=1),)).of_several()
        >>> [x.tolist() for x in whole(torch.eye(2))], result, rest
        ([[1.0, 0.0], [0.0, 1.0]], 1, Chain(steps=(), detached=False))
        """
        for i, step in reversed([*enumerate(self.steps)]):
            if isinstance(step, Step) and step.result is not None:
                whole = Chain((*self.steps[:i], step._replace(result=None)))
                return whole, step.result, Chain(self.steps[i + 1 :], self.detached)
        return None

    def without_history(self) -> Chain:
        """Returns the chain whose view is detached."""
        return Chain(self.steps, detached=True)


def _mapped(argument: Any, number: Number) -> Any:
    """Returns an argument with other numbers in it, in lists and tuples, too."""
    if type(argument) in (tuple, list):
        return type(argument)(_mapped(x, number) for x in argument)
    return number(argument)
