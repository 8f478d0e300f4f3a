"""Reads of values: where Python reads a value of a traced tensor, the call that is traced answers.

Note [Reads of values]
~~~~~~~~~~~~~~~~~~~~~~
A traced tensor has no value, but the call that is traced has. Where the program reads one (`if x.isfinite().all()`),
what was recorded so far runs once on the call's own tensors, and the trace goes on with the result. The tensor that was
read is one more result of the forward graph, and every call compares it with the value that was traced, before anything
is written and before anything runs that might fail on another value. Where it differs, the call goes to another
specialization, or to a new trace.

A whole or a floating-point number that is seen to differ is a symbol from then on, as sizes are. What the program
assumes of it (`if n > 3`) is then decided by the call that is traced, too, and compared at each call.

The call that is traced takes the first branch here, so a later call has to give `True`, too:

>>> import subclass_aot as sa
>>> def f(x):
...     return x * 2 if x.sum() > 0 else -x
>>> def show(graph, inputs):
...     print(graph.code)
...     return graph
>>> compiled = sa.aot_compile(f, fw_compiler=show)
>>> y = compiled(torch.ones(3))
def forward(self, primals_1):
    sum_1 = torch.ops.aten.sum.default(primals_1)
    gt = torch.ops.aten.gt.Scalar(sum_1, 0);  sum_1 = None
    clone = torch.ops.aten.clone.default(gt);  gt = None
    mul = torch.ops.aten.mul.Tensor(primals_1, 2);  primals_1 = None
    return (clone, mul)
>>> print(compiled.source)
def call(...):
    ...
        (output_0, value_read_0, ) = outputs
    ...
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from subclass_aot.base import _torch
from subclass_aot.base._stack import user_line
from subclass_aot.base.operators import effects_of, runs_once
from subclass_aot.engine.aliasing import has_storage
from subclass_aot.engine.graph.generators import States, drawing_from, generators
from subclass_aot.engine.graph.retrace import Retrace
from subclass_aot.engine.graph.symint_nodes import reads_size
from subclass_aot.engine.passes import communicates, draws, is_backward
from subclass_aot.errors import DataDependentError
from subclass_aot.meta import MetaTensor, texts, unbacked_rule
from subclass_aot.meta.symbols import is_symbolic

if TYPE_CHECKING:  # comes with the first symbol
    import sympy

_EFFECT = """A value is read that depends on what an operator with an effect gives, which has to run once in each call.
  Your line:  {line}
  Operator:   {operator}
  The value is needed while the program is traced, before the call runs.
  Instead: read the value before the operator runs, or let it read its argument (`log(x); if x.sum() > 0:`)."""

_LIMIT = 1 << 16
"""Elements that a tensor may have at the most whose values are compared at each call."""


@dataclass(frozen=True, slots=True, eq=False)
class Look:
    """A place where the program reads a value.

    Attributes:
        leaf: The tensor that was read; None in a signature, where it is the output that is described as `LookedAt`.
        value: Its value in the call that is traced: a Python value, or a list; or its text.
        line: Where the program reads it.
        form: If it reads the text, what a number is formatted by, or "!r" for `repr`. See Note [Texts of tensors].
    """

    leaf: Any
    value: Any
    line: str
    form: str | None = None

    def compared(self, tensor: torch.Tensor) -> Any:
        """Returns what is compared of a tensor."""
        if self.form is None:
            return tensor.tolist()
        return texts.plain_text(tensor, None if self.form == "!r" else self.form)


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """A graph while it is recorded.

    Attributes:
        nodes: Its nodes, in order.
        constants: Its real tensors, by attribute name.
        written: Nodes whose memory was written so far.
        alive: Nodes of which the program still has the tensors.
    """

    nodes: Sequence[Any]
    constants: Mapping[str, torch.Tensor]
    written: Collection[fx.Node]
    alive: Collection[Any]


_NO_STATES = States(torch.empty(0), [])


class Looks:
    """Answers a trace with the values of the call that it is made for.

    Args:
        varying: The lines where numbers were seen to differ between calls: they are symbols.
        symbolic: Whether all numbers are symbols. What is true or false never is.
        fixed: Whether no size may be a symbol.
        cautious: Whether operators get values also where a guess would do: whether a size is one, say.
        drawn: Gets the lines where Python or numpy draw numbers that are symbols; None if they are none. See Note
            [Draws elsewhere].

    Attributes:
        found: The looks of this trace.
        has_answered: Whether a value of the call has a part in the trace.
        at_branches: Whether the call decides which branch of `torch.cond` is recorded, and not both are.
    """

    def __init__(
        self,
        varying: Collection[str] = (),
        symbolic: bool = False,
        fixed: bool = False,
        cautious: bool = False,
        drawn: set[str] | None = None,
    ) -> None:
        self.varying = varying
        self.symbolic = symbolic
        self.fixed = fixed
        self.cautious = cautious
        self._drawn = drawn
        self.found: list[Look] = []
        self.has_answered = False
        self.at_branches = False
        self._run = _Run({}, _NO_STATES)
        self._unbacked: dict[Any, Callable[[], Any]] = {}

    def start(self, inputs: Mapping[fx.Node, Any], random: States) -> None:
        """Begins a trace.

        Args:
            inputs: The values of the call for its graph inputs.
            random: The states of the generators that the call draws from.
        """
        self.found = []
        self._run = _Run(inputs, random)
        self._unbacked = {}

    def forget(self) -> None:
        """Releases the tensors of the call, and of the trace."""
        self.found = []
        self._run = _Run({}, _NO_STATES)
        self._unbacked = {}

    def are_wanted(self, func: _torch.operators.Operator, tensor: torch.Tensor, line: str, has_symbols: bool) -> bool:
        """Returns whether an operator that needs values gets those of the call; else its result is a symbol.

        Args:
            func: The operator.
            tensor: The first tensor that it is given.
            line: The line of the user's that is running.
            has_symbols: Whether the trace has symbols.

        Raises:
            Retrace: It should be a symbol, and the trace has none.
        """
        if unbacked_rule(func) is None:  # `x[positions]`, which has the tag of `x[mask]`
            return False
        if effects_of(func).shape_by_data and not self.fixed:
            return self.are_sizes_wanted(func, has_symbols)
        if tensor.dtype is torch.bool or tensor.dtype.is_complex or not has_symbols:
            return True
        return not self.symbolic and line not in self.varying

    def is_drawn(self, line: str, has_symbols: bool) -> bool:
        """Returns whether a number that Python or numpy draw is a symbol, and notes that.

        Args:
            line: The line of the user's that is running.
            has_symbols: Whether the trace has symbols.

        Raises:
            Retrace: It should be a symbol, and the trace has none.
        """
        if self._drawn is None or self.fixed:
            return False
        self._drawn.add(line)
        if not has_symbols:
            raise Retrace(data_dependent_sizes=True)
        return True

    def are_sizes_wanted(self, func: _torch.operators.Operator, has_symbols: bool) -> bool:
        """Returns False: a size that depends on data is a symbol, in backward as well.

        Args:
            func: The operator.
            has_symbols: Whether the trace has symbols.

        Raises:
            Retrace: It should be a symbol, and the trace has none.
        """
        if not has_symbols and not self.fixed and effects_of(func).shape_by_data and unbacked_rule(func) is not None:
            raise Retrace(data_dependent_sizes=True)
        return False

    def value(self, recorded: Recorded, node: fx.Node) -> Any:
        """Returns the value that a node has by now in the call that is traced; None if the call has no values either.

        Args:
            recorded: What was recorded so far.
            node: A node of it.
        """
        self.has_answered = True
        return self._run.value(recorded, node)

    def tell_unbacked(self, symints: list[Any], result: object, value: Callable[[], Any]) -> None:
        """Says what gives the value of numbers that depend on data, should the program assume something of them.

        Args:
            symints: The numbers.
            result: What the operator that made them gave.
            value: Gives what it gives in the call.
        """
        symbols = {_torch.symbolic.expression_of(n) for n in symints}
        for path, number in _numbers_in(result):
            symbol, factor = _torch.symbolic.symbol_and_factor(_torch.symbolic.expression_of(number))
            if symbol in symbols:
                found = partial(_number_at, path, factor, value)
                self._unbacked.setdefault(symbol, found)
        if not is_symbolic(result):
            for number in [n for n in symints if isinstance(n, torch.SymInt)]:
                size = self.of_symbol(_torch.symbolic.expression_of(number))
                if size is not None:
                    _assume_small_or_not(number, size)

    def of_symbol(self, symbol: sympy.Basic) -> Any:
        """Returns the value of a symbol that depends on data in the call that is traced, or None."""
        value = self._unbacked.get(symbol)
        return None if value is None else value()


class _Run:
    """The recorded graph on the call's own tensors, as far as it was recorded when it was last needed.

    All of it runs, once and in its order, so that what draws random numbers draws those that the call will draw. Inputs
    that the program writes are copies. What has an effect does not run, nor what reads its result: the call is still to
    come. See Note [Effects of operators].
    """

    def __init__(self, inputs: Mapping[fx.Node, Any], random: States) -> None:
        self._inputs = inputs
        self._values: dict[fx.Node, Any] = {}
        self._done: set[fx.Node] = set()
        self._written: set[fx.Node] = set()
        self._sharing = Counter(_memory(x) for x in inputs.values() if has_storage(x))
        self._random = self._start = random
        self._skipped: set[fx.Node] = set()
        self._lost: fx.Node | None = None  # the first that was skipped, and that draws or writes
        tensors = [x for x in inputs.values() if isinstance(x, torch.Tensor)]
        self._have_no_data = any(isinstance(x, MetaTensor) or x.is_meta for x in tensors)

    def value(self, recorded: Recorded, node: fx.Node) -> Any:
        if self._have_no_data:
            return None
        if any(communicates(n) for n in recorded.nodes if n not in self._done):
            return None  # it would run once more than on other ranks
        newly_written = {n for n in recorded.written if n.op == "placeholder" and n not in self._written}
        self._written |= newly_written
        are_copied_now = all(map(self._can_be_copied_now, newly_written))
        if not are_copied_now:  # from the start, with copies of what is written
            self._values, self._done, self._random = {}, set(), self._start
            self._skipped, self._lost = set(), None
        with _torch.switches.as_recorded(), drawing_from(self._random):
            if are_copied_now:
                self._values |= self._copies(newly_written & self._values.keys())
            if not self._values:
                self._values.update(self._starting_values())
            self._go_on(recorded)
            self._random = generators(elsewhere=True)
        if self._lost is not None or node in self._skipped:
            raise DataDependentError(_EFFECT.format(line=user_line(), operator=self._effect_before(node).target))
        return self._values[node]

    def _go_on(self, recorded: Recorded) -> None:
        for node in recorded.nodes:
            if node in self._done or is_backward(node):
                continue
            self._done.add(node)
            if node.op == "get_attr":
                self._values[node] = recorded.constants[node.target]
            elif node.op == "call_function" and self._skips(node):
                self._skipped.add(node)
            elif node.op == "call_function":
                # Sizes are those that an input came with, also where an operator has mutated its metadata before.
                values = self._inputs if reads_size(node) and node.args[0] in self._inputs else self._values
                if (
                    reads_size(node) and node.args[0] not in values
                ):  # backward reads it of what nobody else has any more
                    self._values[node] = _torch.symbolic.example_of(node.meta["val"])
                    continue
                args, kwargs = fx.map_arg((node.args, node.kwargs), values.__getitem__)
                self._values[node] = node.target(*args, **kwargs)
                for used in node.all_input_nodes:
                    self._let_go(used, recorded.alive)

    def _skips(self, node: fx.Node) -> bool:
        """Returns whether a node does not run before the call does."""
        if not runs_once(node.target) and self._skipped.isdisjoint(node.all_input_nodes):
            return False
        is_overload = _torch.operators.is_overload(node.target)
        if self._lost is None and is_overload and (effects_of(node.target).mutates or draws(node)):
            self._lost = node
        return True

    def _effect_before(self, node: fx.Node) -> fx.Node:
        """Returns an operator with an effect on which a value depends."""
        node = self._lost or node
        while not runs_once(node.target):
            node = next(n for n in node.all_input_nodes if n in self._skipped)
        return node

    def _let_go(self, node: fx.Node, alive: Collection[Any]) -> None:
        """Forgets a value that nothing reads any more. A number is no tensor, and the program may still name it."""
        is_tensor = node.op == "call_function" and "spec" in node.meta and "unbacked" not in node.meta
        if is_tensor and node not in alive and all(user in self._done for user in node.users):
            self._values.pop(node, None)

    def _can_be_copied_now(self, node: fx.Node) -> bool:
        """Returns whether nothing that ran gave a view of an input or wrote it, and no other input shares its memory.

        Else all runs again on a copy. Many optimizers write one input after the other, and read a number of each.
        """
        value = self._inputs[node]
        if not has_storage(value) or self._sharing[_memory(value)] > 1:
            return False
        readers = [user for user in node.users if user in self._done]
        return all(_torch.operators.is_overload(user.target) and effects_of(user.target).pure for user in readers)

    def _starting_values(self) -> Iterator[tuple[fx.Node, Any]]:
        """Yields the inputs. Those that share memory with one that is written share a copy of it."""
        written = {_memory(x) for n, x in self._inputs.items() if n in self._written and has_storage(x)}
        copies = self._copies([n for n, x in self._inputs.items() if has_storage(x) and _memory(x) in written])
        for node, value in self._inputs.items():
            # Else with a version counter of its own: the program may turn it in place.
            yield node, copies.get(node, value.data if isinstance(value, torch.Tensor) else value)

    def _copies(self, nodes: Iterable[fx.Node]) -> dict[fx.Node, torch.Tensor]:
        """Returns copies of inputs; those that share memory share that of the copies."""
        found: dict[fx.Node, torch.Tensor] = {}
        storages: dict[int, torch.UntypedStorage] = {}
        for node in nodes:
            value = self._inputs[node]
            if _memory(value) not in storages:
                storages[_memory(value)] = value.untyped_storage().clone()
            copy = torch.empty(0, dtype=value.dtype, device=value.device)
            place = value.storage_offset(), value.size(), value.stride()
            found[node] = copy.set_(storages[_memory(value)], *place)
        return found


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _assume_small_or_not(size: torch.SymInt, value: int) -> None:
    """Decides what broadcasting makes much of, as for sizes of inputs: whether a size is zero, or one, or larger."""
    bool(size >= 2 if value >= 2 else size == value)


def parts_of(result: object) -> list[Any]:
    """Returns the tensors and numbers that an operator gives, out of its lists."""
    if type(result) is tuple or type(result) is list:
        return [part for each in result for part in parts_of(each)]
    return [result]


def _numbers_in(result: object) -> Iterator[tuple[tuple[int, int | None] | None, Any]]:
    """Yields the symbolic numbers of a result, each with where it stands: the part and the dimension, None for
    itself.
    """
    if is_symbolic(result):
        yield None, result
        return
    for i, part in enumerate(parts_of(result)):
        if is_symbolic(part):
            yield (i, None), part
        elif isinstance(part, MetaTensor):
            yield from (((i, dim), n) for dim, n in enumerate(part.meta_spec.size) if is_symbolic(n))


def _number_at(path: tuple[int, int | None] | None, factor: int, of: Callable[[], Any]) -> Any:
    """Returns the number that stands somewhere in a result, which has it so many times."""
    value = of()
    if path is None or value is None:
        return value
    part, dim = path
    found = parts_of(value)[part]
    return found if dim is None else found.shape[dim] // factor


def may_be_compared(tensor: torch.Tensor) -> bool:
    """Returns whether the values of a tensor are few enough to be compared at each call."""
    return tensor.numel() <= _LIMIT
