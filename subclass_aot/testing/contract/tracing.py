"""Clauses 6 and 21: what happens inside dispatch is made of operators that a trace sees.

Note [Where a tensor comes from]
~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
While a program runs, a mode sees the operators on dense tensors. Each tensor that it meets is a part of the inputs, or
was made by an operator that it saw; any other comes from somewhere else: a table of the module, numpy, a block without
modes. Of each it is known whether it depends on the inputs. Memory stands for tensors, since views have that of others.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import torch

from subclass_aot.base import _torch
from subclass_aot.base._stack import pass_on_interruption
from subclass_aot.base.operators import effects_of
from subclass_aot.testing.compare import dense_leaves
from subclass_aot.testing.contract.clause import Clauses
from subclass_aot.testing.contract.operators import PROGRAMS
from subclass_aot.testing.contract.trial import DoesNotApply, Trial, require, several, storages

CLAUSES = Clauses()


class Watch(_torch.dispatch.DispatchMode):
    """Sees operators on dense tensors. See Note [Where a tensor comes from].

    Args:
        inputs: Dense tensors that are there before.
    """

    def __init__(self, inputs: Sequence[torch.Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._depends = {_memory_of(tensor): True for tensor in inputs}
        self._alive = list(inputs)
        self.strangers: list[tuple[str, torch.Tensor]] = []
        self.reads: list[torch.Tensor] = []

    def __torch_dispatch__(
        self,
        func: Callable[..., object],
        types: Sequence[type],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        if any(hasattr(cls, "__tensor_flatten__") for cls in types):
            return NotImplemented  # its own dispatch takes it apart, and this mode sees the parts
        kwargs = kwargs or {}
        operands = list(_tensors((*args, *kwargs.values())))
        if str(func) != "aten.lift_fresh.default":  # by which `torch.tensor` shows what it made
            self.strangers += [(str(func), operand) for operand in operands if self.depends(operand) is None]
        depends = any(map(self.depends, operands))
        result = func(*args, **kwargs)
        effects = effects_of(func) if _torch.operators.is_overload(func) else None
        if effects is not None and effects.data_dependent and not list(_tensors((result,))):
            self.reads += [operand for operand in operands if self.depends(operand)]
        written = [] if effects is None or effects.pure else operands
        for tensor in (*_tensors((result,)), *written):
            self._alive.append(tensor)
            self._depends[_memory_of(tensor)] = depends or bool(self.depends(tensor))
        return result

    def depends(self, tensor: torch.Tensor) -> bool | None:
        """Returns whether a tensor depends on the inputs; None where it was not seen before."""
        return self._depends.get(_memory_of(tensor), None if tensor.numel() else False)


class _Seen(NamedTuple):
    """What was seen of a program: what is wrong, or "".

    Attributes:
        operands: Of what its operators took.
        results: Of where its results come from.
        reads: Of what it read into Python.
    """

    operands: str
    results: str
    reads: str


@CLAUSES.add(6, "C", "operands", "each operand inside dispatch is an inner tensor, or was made where a trace sees it")
def _operands(trial: Trial) -> None:
    for seen in _seen(trial):
        require(not seen.operands, seen.operands)


@CLAUSES.add(21, "S", "results", "results are computed from inner tensors by operators that a trace sees")
def _results(trial: Trial) -> None:
    for seen in _seen(trial):
        require(not seen.results, seen.results)


@CLAUSES.add(21, "S", "no reads", "dispatch does not read values of inner tensors into Python")
def _reads(trial: Trial) -> None:
    for seen in _seen(trial):
        require(not seen.reads, seen.reads)


_kept: weakref.WeakKeyDictionary[Trial, list[_Seen]] = weakref.WeakKeyDictionary()
"""What was seen, for the three clauses."""


def _seen(trial: Trial) -> Iterable[_Seen]:
    """Returns what was seen of the programs that the class offers and that read no dense tensor."""
    if trial.watch is not None:  # it is to be seen what runs in each clause
        return _run(trial)
    if trial not in _kept:
        _kept[trial] = list(_run(trial))
    return _kept[trial]


def _run(trial: Trial) -> Iterator[_Seen]:
    tried = 0
    for name, program in PROGRAMS.items():
        tensor = trial.make()
        watch = Watch(list(dense_leaves(tensor)))
        try:
            with torch.no_grad(), watch:
                results = several(program(tensor))
        except Exception as error:
            pass_on_interruption(error)
            continue  # clause 27 reports it
        tried += 1
        yield _Seen(*(say(name, watch, results) for say in (_of_operands, _of_results, _of_reads)))
    if not tried:
        raise DoesNotApply("it offers none of the operators that are tried")


def _of_operands(name: str, watch: Watch, results: Sequence[object]) -> str:
    for operator, stranger in watch.strangers:
        return (
            f"{name}: {operator} takes a {stranger.dtype} of {list(stranger.shape)} that no operator made and that is "
            "no inner tensor: a trace does not know it"
        )
    return ""


def _of_results(name: str, watch: Watch, results: Sequence[object]) -> str:
    for result in results:
        leaves = [leaf for leaf in dense_leaves(result) if leaf.numel()] if isinstance(result, torch.Tensor) else []
        if leaves and not any(map(watch.depends, leaves)):
            return f"{name}: no operator leads from the inner tensors to the result: a trace keeps its values"
    return ""


def _of_reads(name: str, watch: Watch, results: Sequence[object]) -> str:
    for read in watch.reads:
        return f"{name} reads a value of a {read.dtype} of {list(read.shape)} into Python: a trace keeps it for good"
    return ""


def _memory_of(tensor: torch.Tensor) -> int:
    return next(iter(storages(tensor)), 0)


def _tensors(values: object) -> Iterator[torch.Tensor]:
    if isinstance(values, torch.Tensor):
        yield values
    elif isinstance(values, list | tuple):
        for value in values:
            yield from _tensors(value)
