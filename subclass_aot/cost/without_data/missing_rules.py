"""Which operators of a program have no shape rule: all of them at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import optree
import torch

from subclass_aot.base._stack import pass_on_interruption
from subclass_aot.base.put_back import PutBack
from subclass_aot.cost.without_data.mode import meta
from subclass_aot.cost.without_data.module import to_meta
from subclass_aot.meta import MetaTensor, infer, rule_results


@dataclass(frozen=True)
class MissingRules:
    """The operators of a program that have no shape rule.

    Attributes:
        rules: One for each such operator, in the order in which the program calls them.
        stopped: Why the program did not go on to its end, if it did not; "" if it did.
    """

    rules: tuple[rule_results.MissingRule, ...]
    stopped: str

    def __len__(self) -> int:
        """Returns how many operators have none."""
        return len(self.rules)

    def __str__(self) -> str:
        """Returns the rules to write, each with the line that calls the operator."""
        if not self.rules and not self.stopped:
            return "Every operator has a shape rule."
        found = [f"# {rule.operator}, called in {rule.line}\n{_outdented(rule.lines)}" for rule in self.rules]
        if self.stopped:
            guessed = ", perhaps since shapes were guessed" if self.rules else ""
            found.append(f"# The program did not go on to its end{guessed}: {self.stopped}")
        return "\n\n".join(found)


def missing_meta(program: Callable[..., Any], *args: Any, **kwargs: Any) -> MissingRules:
    """Runs a program without data, and backward, and lists the operators that have no shape rule.

    It goes on past the first one: the results of such an operator are taken to be like its first tensor. Values that
    the program reads are assumed, as by `meta(assume=True)`.

    Args:
        program: A module, or a function.
        *args: What it is called with. Tensors lose their data.
        **kwargs: Keyword arguments, likewise.

    Returns:
        What is missing; printed, it is the rules to write.

    >>> from torch import nn
    >>> print(missing_meta(nn.Linear(3, 5), torch.rand(2, 3)))
    Every operator has a shape rule.
    """
    found: list[rule_results.MissingRule] = []
    stopped = ""
    program = to_meta(program) if isinstance(program, torch.nn.Module) else program
    tree: Any = optree.tree_map(_without_data, (args, kwargs), none_is_leaf=True)  # type: ignore[arg-type]
    with PutBack(_forget), PutBack(partial(rule_results.noted.reset, rule_results.noted.set(found))), meta(assume=True):
        try:
            results = optree.tree_leaves(program(*tree[0], **tree[1]), none_is_leaf=True)
            trained = [x for x in results if isinstance(x, torch.Tensor) and x.requires_grad]
            if trained:
                torch.autograd.backward(trained, [torch.ones_like(x) for x in trained])
        except Exception as error:  # of the program's, which guessed shapes may lead astray
            pass_on_interruption(error)
            stopped = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
    first: dict[object, rule_results.MissingRule] = {}
    for rule in found:
        first.setdefault(rule.operator, rule)
    return MissingRules(tuple(first.values()), stopped)


def _without_data(value: object) -> object:
    return MetaTensor.like(value).requires_grad_(value.requires_grad) if type(value) is torch.Tensor else value


def _forget() -> None:
    """Forgets the results that were guessed."""
    infer.forget_rules()


def _outdented(lines: str) -> str:
    return "\n".join(line[6:] for line in lines.splitlines())
