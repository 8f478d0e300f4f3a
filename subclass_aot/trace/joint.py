"""One run of a function on leaves, forward and backward: the joint graph and its frozen signature."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from subclass_aot import _torch
from subclass_aot.errors import MutationError, TraceError
from subclass_aot.flatten import FlattenPlan, ValueMeta
from subclass_aot.meta import (
    MetaTensor,
    SizesMustBeKnown,
    Spec,
    Symbols,
    blank,
    is_symbolic,
    lasting_key_of,
    root,
    unknown_sizes,
)
from subclass_aot.trace import refusals
from subclass_aot.trace.arguments import Arguments, flatten
from subclass_aot.trace.cleanup import drop_dead, drop_identities
from subclass_aot.trace.draws import Draws
from subclass_aot.trace.dynamic import DynamicSizes, marked_sizes, plan_of_twins, symbolic_twins, twin_with_sizes
from subclass_aot.trace.families import SharedHistory, TracedViews, check_histories
from subclass_aot.trace.functional import remove_mutations
from subclass_aot.trace.history import foreign_leaf, gradients_of, undisturbed
from subclass_aot.trace.outputs import (
    AliasOfLeaf,
    Computed,
    InputLeaf,
    OutputReader,
    Value,
    ViewOfBase,
    ViewOfInput,
    packed_tangent,
    spec_of_tangent,
)
from subclass_aot.trace.recorder import Recorder
from subclass_aot.trace.sharing import bases_of, is_folded
from subclass_aot.trace.signature import Input, JointSignature
from subclass_aot.trace.static import static_values
from subclass_aot.trace.unreadable import reads_are_refused
from subclass_aot.trace.versions import versions
from subclass_aot.wrapper import plain_tangent


@dataclass(frozen=True, slots=True, eq=False)
class JointTrace:
    """A traced function: the joint graph of dense tensors, and what its inputs and outputs mean.

    Attributes:
        graph_module: The graph. Placeholders are named `primals_1 ...` and `tangents_1 ...`; each node has `val`,
            `spec`, `stack_trace` and `partitioner_tag` in its `meta`, placeholders also `meaning`; the output node
            has the `meanings` of all outputs.
        signature: What goes in and comes out.
        with_tangents: Goes backward once more, for other tangents: `with_tangents(tangents)` takes, by their positions,
            a tensor of the kind of each, or None for the kind it is traced for; results at other positions take none.
            The forward part of what it gives is the same, node by node. None where nothing needs a gradient.
    """

    graph_module: fx.GraphModule
    signature: JointSignature
    with_tangents: Callable[[Mapping[int, torch.Tensor | None]], JointTrace] | None = None


def trace_joint(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> JointTrace:
    """Traces a function or module, forward and backward, to one graph of dense tensors.

    The function runs on tensors without data, once unless Note [Views of one tensor] applies; nothing of the caller's
    is changed. Sizes that `mark_dynamic` names are symbols.

    Args:
        fn: A function or module.
        *args: Its arguments: any structure of tensors, wrappers, modules and Python values.
        **kwargs: Its keyword arguments.

    Returns:
        The joint graph and its signature.

    Raises:
        TraceError: The program cannot be traced; the message names the operator and the user's line.

    >>> trace = trace_joint(lambda x: (x.sin() * 2).sum(), torch.ones(3, requires_grad=True))
    >>> [n.name for n in trace.graph_module.graph.nodes if n.op == "placeholder"]
    ['primals_1', 'tangents_1']
    """
    arguments = Arguments.of(fn, args, kwargs)
    marked = marked_sizes(arguments)
    return trace_arguments(fn, arguments, dynamic=marked if marked else None)


def trace_arguments(
    fn: Callable[..., Any],
    arguments: Arguments,
    decompositions: Mapping[Any, Callable[..., Any]] | None = None,
    dynamic: DynamicSizes | None = None,
) -> JointTrace:
    """Traces `fn` on a call that was taken apart already. See `trace_joint`.

    Args:
        fn: What is traced.
        arguments: The call.
        decompositions: Operators to replace.
        dynamic: Which sizes are symbols; None if every number must be known, those that depend on data too.
    """
    inference, grad = torch.is_inference_mode_enabled(), torch.is_grad_enabled()
    outer = is_tracing()
    views: frozenset[str] = frozenset()
    with one_at_a_time, torch.inference_mode(False):
        while True:
            try:
                _this_thread.is_tracing = True
                with torch.set_grad_enabled(grad):  # inference mode turned it on, and the function may switch it
                    return _Trace(fn, arguments.with_views(views), decompositions, inference, dynamic).run()
            except SizesMustBeKnown as found:
                assert dynamic, "a trace without symbolic sizes has known ones"
                dynamic = dynamic.without(found.paths)
            except SharedHistory as found:  # see Note [Views of one tensor]
                views |= found.paths
                if dynamic is not None:
                    joined = arguments.with_views(views)
                    dynamic = dynamic.without({*views, *map(joined.path_of, joined.view_of)})
            finally:
                _this_thread.is_tracing = outer


def is_tracing() -> bool:
    """Whether this thread is in the middle of a trace."""
    return getattr(_this_thread, "is_tracing", False)


_this_thread = threading.local()
one_at_a_time = threading.RLock()
"""Held while a call is traced and compiled. Modules have other tensors for parameters while they are traced, so two
traces of one module must not meet; and what one thread compiles, another that waits for it need not."""


class _Trace:
    """The state of one run. Its methods are the steps of `run`, in order."""

    def __init__(
        self,
        fn: Callable[..., Any],
        arguments: Arguments,
        decompositions: Mapping[Any, Callable[..., Any]] | None,
        inference: bool,
        dynamic: DynamicSizes | None,
    ) -> None:
        self.fn = fn
        self.inference = inference
        self.arguments = arguments
        self.recorder = Recorder(decompositions)
        self.draws = self.recorder.draws = Draws()
        self.paths = [arguments.path_of(i) for i in range(len(arguments.values))]
        self.symbols = Symbols() if dynamic is not None else None
        if self.symbols is None or dynamic is None:
            self.plan = arguments.plan()
            self.patterns = self.plan.unwrap(arguments.values)
        else:
            twins = symbolic_twins(arguments, dynamic, self.symbols)
            self.plan = plan_of_twins(twins, arguments)
            self.patterns = self.plan.unwrap(twins)
        self.real_leaves = self.plan.unwrap(arguments.values)
        self.graph_slots = tuple(i for i, x in enumerate(self.patterns) if _is_graph_input(x))

    def run(self) -> JointTrace:
        with self.tracing(), _torch.force_view_tracking(True):
            self.make_inputs()
            with self.arguments.replaced([*self.traced, *self.views.views]) as call:
                results = self.forward(*call)
                self.read_outputs(results)
                self.plan_tangents(dict.fromkeys(range(len(self.differentiable))))
                self.read_numbers()
                self.forward_part = self.recorder.mark()
                self.backward()  # checkpoints run parts of the function again
        trace = self.finish()
        del self.fn, self.arguments, self.real_leaves, self.patterns
        self.recorder.forget_tensors()
        return dataclasses.replace(trace, with_tangents=self.again) if self.tangents else trace

    @contextmanager
    def tracing(self) -> Iterator[None]:
        """Within the block, operators are recorded."""
        with self.with_symbols(), reads_are_refused(), undisturbed(), self.draws, self.recorder:
            yield

    @contextmanager
    def with_symbols(self) -> Iterator[None]:
        """Within the block, operators may make numbers that depend on data, if this trace has symbols."""
        with unknown_sizes(self.symbols), _torch.python_dispatcher() if self.symbols is not None else nullcontext():
            yield

    def again(self, kinds: Mapping[int, torch.Tensor | None]) -> JointTrace:
        """See `JointTrace.with_tangents`."""
        with one_at_a_time, torch.inference_mode(False), torch.enable_grad():
            twins = {
                i: None if kind is None else twin_with_sizes(kind.detach(), self.differentiable[i].shape)
                for i, kind in kinds.items()
            }
            self.recorder.rewind(self.forward_part)
            with self.tracing(), _torch.force_view_tracking(True):
                self.plan_tangents(twins)
                self.backward()
            self.recorder.forget_tensors()
            return self.finish()

    def make_inputs(self) -> None:
        """Placeholders for leaves, and traced twins of the inputs made of them."""
        self.leaves: list[Any] = list(self.patterns)
        for number, slot in enumerate(self.graph_slots, 1):
            pattern, real = self.patterns[slot], self.real_leaves[slot]
            if is_symbolic(pattern):
                self.recorder.number_placeholder(f"primals_{number}", pattern, self.meaning(slot))
                continue
            spec = pattern.spec if isinstance(pattern, MetaTensor) else Spec.of(pattern)
            leaf = self.recorder.placeholder(f"primals_{number}", spec, self.meaning(slot))
            if not isinstance(real, MetaTensor):
                self.recorder.stand_in(real, leaf)
            self.leaves[slot] = leaf
        self.specs = [x.spec if isinstance(x, MetaTensor) else x for x in self.leaves]
        self.starts = list(self.plan.wrap(self.leaves))
        self.traced = list(self.starts)
        fresh: Sequence[Any] = ()
        for i, real in enumerate(self.arguments.values):
            if isinstance(real, torch.nn.Parameter):
                self.starts[i]._is_param = True
            if self.inference or not real.requires_grad:
                continue
            self.starts[i].requires_grad_()
            if real.is_leaf and real.grad is not None:
                self.starts[i].grad = self.no_input(real.grad)
            if not real.is_leaf:
                twins = [_twin(x) if self._is_dense(s) else x for s, x in enumerate(self.leaves)]
                fresh = fresh or self.plan.wrap(twins)
                with torch.enable_grad():
                    self.traced[i] = _NonLeaf.apply(self.starts[i], [fresh[i]])  # type: ignore[no-untyped-call]
        self.views = TracedViews(self.arguments, self.traced, self.recorder)
        self.gradient_functions = [t.grad_fn for t in self.traced]
        self.requires_grad = [t.requires_grad for t in self.traced]
        self.grads = [t.grad if t.is_leaf else None for t in self.traced]
        self.static = static_values(self.arguments)
        self.paths_of_views = self.arguments.paths_of_views
        self.are_leaves = [real.is_leaf for real in self.arguments.values]
        self.versions = [versions(t, m) for t, m in zip(self.traced, self.plan.metas, strict=True)]

    def no_input(self, gradient: torch.Tensor) -> Any:
        """What stands for a `.grad`: it is there, but no input of the graph, so whatever reads it is refused."""
        with _torch.disable_current_modes():
            return MetaTensor.like(gradient)

    def forward(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        before = torch.is_grad_enabled()
        out = self.fn(*args, **kwargs)
        self.grad_modes = before, torch.is_grad_enabled()
        if self.recorder.draws is not None:
            self.recorder.draws.refuse_seeds()
        results, self.out_treespec = flatten(out)
        self.check_inputs()
        return results

    def check_inputs(self) -> None:
        """Refuses what a graph cannot do to its inputs."""
        for path, before, grad, traced in zip(self.paths, self.requires_grad, self.grads, self.traced, strict=True):
            if traced.requires_grad != before and traced.is_leaf:
                raise MutationError(refusals.SWITCHED_GRAD.format(path=path, value=traced.requires_grad))
            if _torch.has_hooks(traced):
                raise MutationError(refusals.HOOKED_INPUT.format(path=path))
            if traced.is_leaf and traced.grad is not grad:
                raise MutationError(refusals.ASSIGNED_GRAD.format(path=path))
        self.reshaped = [
            (i, *how)
            for tensor, *how in self.recorder.reshaped
            for i, traced in enumerate([*self.traced, *self.views.views])
            if tensor is traced
        ]
        changed = {i for i, *_ in self.reshaped}
        self.need_known_sizes(i for i in changed if i < len(self.traced))
        self.views.check({i - len(self.traced) for i in changed})
        self.refuse_reshaped_together([i for i in changed if i < len(self.traced)])
        after = self.plan.unwrap(self.traced)
        for slot in self.graph_slots:
            if not isinstance(self.leaves[slot], MetaTensor):
                continue
            if self.plan.index_map.slots[slot].outer in changed and root(after[slot]) is self.leaves[slot]:
                continue
            if after[slot] is not self.leaves[slot] and not self._is_dense(slot):
                raise MutationError(refusals.REPLACED_LEAF.format(path=self.meaning(slot)))
            if not after[slot].spec.equals(self.specs[slot]):
                path, now = self.meaning(slot), after[slot].spec
                raise MutationError(refusals.RESHAPED_INPUT.format(path=path, before=self.specs[slot], after=now))

    def refuse_reshaped_together(self, changed: list[int]) -> None:
        """An inner tensor that another input holds, too, would change there."""
        slots = self.plan.index_map.slots
        for slot in [s for i in changed for s in self.plan.index_map.flat_of(i)]:
            real = self.real_leaves[slot]
            for other in self.graph_slots:
                same = isinstance(real, torch.Tensor) and self.real_leaves[other] is real
                if same and slots[other].outer != slots[slot].outer:
                    paths = f"{self.meaning(slot)} and {self.meaning(other)}"
                    raise MutationError(refusals.RESHAPED_TOGETHER.format(paths=paths))

    def read_outputs(self, results: list[Any]) -> None:
        """Says what each result is, and which inputs were written how."""
        reshaped = [tensor for tensor, *_ in self.recorder.reshaped]
        seen = [*self.traced, *self.views.views]
        reader = OutputReader(seen, self.leaves, self.recorder.admit, not self.inference, reshaped)
        written = {leaf for leaf, phases in self.recorder.written.items() if "forward" in phases}
        self.written_leaves: list[int] = []
        self.rewritten: list[tuple[int, Value]] = []
        self.untouched: list[int] = []
        for i, traced in enumerate(self.traced):
            slots = [s for s in self.plan.index_map.flat_of(i) if self.is_among(s, written)] if written else []
            if not slots:
                continue
            if traced.grad_fn is self.gradient_functions[i]:
                self.written_leaves += slots
            else:
                self.rewritten.append((i, reader.computed_value(traced, self.paths[i])))
                leaves = (s for s in self.plan.index_map.flat_of(i) if isinstance(self.leaves[s], MetaTensor))
                self.untouched += [s for s in leaves if s not in slots]
        self.find_bases()
        self.outputs = reader.read(results)
        self.refuse_views_of_reshaped()
        self.computed = reader.computed
        self.differentiable = [self.traced[i] for i, value in self.rewritten if value.requires_grad]
        self.differentiable += [
            t for t, o in zip(results, self.outputs, strict=True) if isinstance(o, Value) and o.requires_grad
        ]
        self.hidden = tuple(value for _, value in reader.hidden)
        self.differentiable += [t for t, value in reader.hidden if value.requires_grad]

    def refuse_views_of_reshaped(self) -> None:
        """A view is made again from the input as it looks after the call; made before, it would be another."""
        reshaped = {i for i, *_ in self.reshaped}
        slots = self.plan.index_map.slots
        for i in reshaped.intersection(i for i, _ in self.rewritten):
            if self.arguments.values[i]._base is not None and not isinstance(self.traced[i], MetaTensor):
                raise MutationError(refusals.RESHAPED_VIEW_WRITTEN.format(path=self.paths[i]))
        for path, view in zip(self.views.paths, self.views.views, strict=True):
            turned_at = self.recorder.turned_at.get(id(view), view._version)
            if view._version > turned_at + 1 and not isinstance(view, MetaTensor):
                raise MutationError(refusals.RESHAPED_VIEW_WRITTEN.format(path=path))
        for output in self.outputs:
            sources = {output.value} if isinstance(output, ViewOfInput) else set()
            if isinstance(output, Value):
                sources = {slots[x.slot].outer for x in output.leaves if isinstance(x, InputLeaf | AliasOfLeaf)}
            for i in sources & reshaped:
                raise MutationError(refusals.VIEW_OF_RESHAPED.format(path=self.paths[i]))

    def find_bases(self) -> None:
        """Written leaves that overlap with others are written through their base. See Note [Shared storage]."""
        flat_of = self.plan.index_map.flat_of
        slots = self.plan.index_map.slots
        moved = {slots[s].outer: None for s in self.written_leaves}
        if self.recorder.reshaped:  # what was turned may be a view of any input, and counts on it
            moved |= dict.fromkeys(range(len(self.traced)))
        self.counted = [
            (i, path)
            for i in dict.fromkeys([*moved, *(i for i, _ in self.rewritten)])
            for path, version in versions(self.traced[i], self.plan.metas[i]).items()
            if version != self.versions[i][path] and (path or i in moved)  # else `copy_` counts on the outside
        ]
        through_autograd = {s for i, _ in self.rewritten for s in flat_of(i)}
        written = {*self.written_leaves, *through_autograd}
        self.bases = bases_of(self.real_leaves, written, self.meaning) if written else []
        based = {s for base in self.bases for s in base.slots}
        self.need_known_sizes(slots[s].outer for s in based)
        together = [{slots[s].outer for s in base.slots} for base in self.bases]
        overlaps = {i: {j for owners in together if i in owners for j in owners} for i, _ in self.rewritten}
        folded = {slots[s].outer for s in based if is_folded(self.real_leaves[s])}
        check_histories(self.arguments.values, overlaps, folded, self.paths)
        self.written_leaves = [s for s in self.written_leaves if s not in based]

    def need_known_sizes(self, inputs: Iterable[int]) -> None:
        """Where views of one storage overlap, and where an input is turned, sizes are part of the graph."""
        flat_of = self.plan.index_map.flat_of
        symbolic = {i for i in inputs if any(_has_symbols(self.patterns[s]) for s in flat_of(i))}
        if symbolic:
            raise SizesMustBeKnown([self.paths[i] for i in symbolic])

    def plan_tangents(self, kinds: Mapping[int, Any]) -> None:
        """What gradients will come in: known once the forward has run.

        Args:
            kinds: For each result that has one, by its position, what that looks like; None for the expected.
        """
        self.tangents: list[tuple[ValueMeta, tuple[Any, ...]]] = []
        self.ends = [self.differentiable[i] for i in kinds]
        self.wanted = [i for i, t in enumerate(self.starts) if t.requires_grad]
        if not self.differentiable or not self.wanted:
            return
        with torch.no_grad():
            plain = [
                packed_tangent(plain_tangent(t.detach())) if kind is None else kind
                for t, kind in zip(self.ends, kinds.values(), strict=True)
            ]
        self.tangent_plan = FlattenPlan.of(plain, where="tangents")
        self.tangent_leaves = [
            spec_of_tangent(x.spec if isinstance(x, MetaTensor) else Spec.of(x)) if isinstance(x, torch.Tensor) else x
            for x in self.tangent_plan.unwrap(plain)
        ]
        for i, meta in enumerate(self.tangent_plan.metas):
            leaves = [self.tangent_leaves[s] for s in self.tangent_plan.index_map.flat_of(i)]
            self.tangents.append((meta, tuple(leaves)))

    def read_numbers(self) -> None:
        """Symbolic numbers that the call needs beside those of the results: the graph returns them, too."""
        self.numbers: dict[Any, int] = {}
        needed = [n for _, specs in self.tangents for s in specs if isinstance(s, Spec) for n in (*s.size, *s.stride)]
        values = [v for v in (*self.outputs, *self.hidden) if isinstance(v, Value)]
        for alias in [x for v in values for x in v.leaves if isinstance(x, AliasOfLeaf)]:
            needed += [*alias.spec.size, *alias.spec.stride, alias.offset]
        needed += [n for o in self.outputs if isinstance(o, ViewOfInput | ViewOfBase) for n in o.numbers]
        self.demands = [] if self.symbols is None else self.symbols.demands()
        for number in filter(is_symbolic, needed):
            if lasting_key_of(number) not in self.numbers:
                self.numbers[lasting_key_of(number)] = len(self.computed)
                self.computed.append(number)
        for symbol, number in [item for demand in self.demands for item in demand.numbers.items()]:
            if symbol not in self.numbers:
                self.numbers[symbol] = len(self.computed)
                self.computed.append(number)
        self.computed_nodes = [self.recorder.node_of(leaf) for leaf in self.computed]

    def backward(self) -> None:
        self.backward_writes: list[int] = []
        self.gradients: list[Value | None] = [None] * len(self.starts)
        self.gradient_nodes: list[Any] = []
        self.gradient_meanings: list[str] = []
        if self.recorder.constants or any(isinstance(o, Value) and o.starts_grad for o in self.outputs):
            self.refuse_lost_gradients()
        if not self.tangents:
            return
        self.recorder.phase = "backward"
        tangents = self.make_tangents()
        with torch.autocast("cpu", enabled=False):
            gradients = gradients_of(self.ends, [self.starts[i] for i in self.wanted], tangents)
        for i, gradient in zip(self.wanted, gradients, strict=True):
            if gradient is None:
                continue
            plan = FlattenPlan.of([gradient], where=f"gradient of {self.paths[i]}")
            sources: list[Any] = []
            for slot, leaf in zip(plan.index_map.slots, plan.unwrap([gradient]), strict=True):
                if _is_graph_input(leaf):
                    sources.append(Computed(len(self.gradient_nodes)))
                    self.gradient_nodes.append(self.recorder.node_of(leaf))
                    call = "" if slot.dim is None else f".{slot.kind}({slot.dim})"
                    self.gradient_meanings.append(f"gradient of {self.paths[i]}{''.join(slot.path)}{call}")
                else:
                    sources.append(leaf)
            self.gradients[i] = Value(plan.metas[0], tuple(sources), requires_grad=False)
        self.find_backward_writes()

    def find_backward_writes(self) -> None:
        """Leaves that are written while gradients are computed, each in its time."""
        written = {leaf for leaf, phases in self.recorder.written.items() if "backward" in phases}
        self.backward_writes = [s for s in self.graph_slots if self.is_among(s, written)] if written else []
        based = {s for base in self.bases for s in base.slots}
        for slot in self.backward_writes:
            if slot in based:
                raise MutationError(refusals.BACKWARD_WRITES.format(path=self.meaning(slot)))

    def refuse_lost_gradients(self) -> None:
        """A wrapper met on the way, or a leaf that the function made, is no input: the graph has no gradient for it."""
        lost = foreign_leaf(self.differentiable, self.starts)
        if lost is not None:
            kind = type(lost).__name__ if not isinstance(lost, MetaTensor) else "tensor made in it"
            raise TraceError(refusals.LOST_GRADIENT.format(kind=kind, shape=list(lost.shape)))

    def make_tangents(self) -> tuple[Any, ...]:
        """Placeholders for the gradients that come in. They bring no sizes: those of the results are known."""
        leaves = list(self.tangent_leaves)
        number = 0
        for position, spec in enumerate(leaves):
            if isinstance(spec, Spec):
                number += 1
                meaning = "tangent of " + self.tangent_plan.index_map.slots[position].name("outputs")
                leaves[position] = self.recorder.placeholder(f"tangents_{number}", spec, meaning)
        return self.tangent_plan.wrap(leaves)

    def finish(self) -> JointTrace:
        results = [self.recorder.moved(node) for node in self.computed_nodes + self.gradient_nodes]
        recorder, new_values = self.recorder, []
        node_of = recorder.node_of
        if recorder.mutates:
            written = [node_of(self.leaves[s]) for s in self.written_leaves]
            slots = {s: node_of(self.leaves[s]) for base in self.bases for s in base.slots}
            live = [node_of(self.leaves[s]) for s in self.backward_writes]
            with self.with_symbols():
                functional = remove_mutations(recorder, results, written, self.bases, slots, live)
            recorder, new_values = functional.recorder, functional.new_values
            results = functional.results + functional.live_values
        nodes = new_values + results
        output = recorder.graph.output(tuple(nodes))
        drop_identities(recorder.graph)
        drop_dead(recorder.graph)
        num_forward = len(new_values) + len(self.computed)
        output.meta["meanings"] = (
            tuple(f"new value of {self.meaning(s)}" for s in self.written_leaves)
            + tuple("new value of the storage of " + " and ".join(map(self.meaning, b.slots)) for b in self.bases)
            + tuple(f"output leaf {i}" for i in range(len(self.computed)))
            + tuple(self.gradient_meanings)
            + tuple(f"new value of {self.meaning(s)} after backward" for s in self.backward_writes)
        )
        output.meta["gradients"] = set(output.args[0][num_forward:])
        holder = torch.nn.Module()
        for name, tensor in recorder.constants.items():
            holder.register_buffer(name, tensor, persistent=False)
        return JointTrace(_torch.make_graph_module(holder, recorder.graph, "Joint"), self.signature(num_forward))

    def signature(self, num_forward: int) -> JointSignature:
        inputs = []
        for i, is_leaf in enumerate(self.are_leaves):
            specs = tuple(self.specs[s] for s in self.plan.index_map.flat_of(i))
            grad = self.starts[i].requires_grad
            inputs.append(Input(self.paths[i], self.plan.metas[i], specs, grad, is_leaf, i in self.static))
        return JointSignature(
            inputs=tuple(inputs),
            index_map=self.plan.index_map,
            views=self.paths_of_views,
            graph_slots=self.graph_slots,
            outputs=self.outputs,
            hidden=self.hidden,
            out_treespec=self.out_treespec,
            written_leaves=tuple(self.written_leaves),
            bases=tuple(self.bases),
            counted=tuple(self.counted),
            rewritten=tuple(self.rewritten),
            untouched=tuple(self.untouched),
            reshaped=tuple(self.reshaped),
            num_forward_outputs=num_forward,
            num_computed=len(self.computed),
            numbers=self.numbers,
            symbols=self.symbols,
            demands=tuple(self.demands),
            tangents=tuple(self.tangents),
            gradients=tuple(self.gradients),
            backward_writes=tuple(self.backward_writes),
            grad_modes=self.grad_modes,
        )

    def is_among(self, slot: int, leaves: set[MetaTensor]) -> bool:
        """Whether a flat slot holds one of some leaves."""
        leaf = self.leaves[slot]
        return isinstance(leaf, MetaTensor) and leaf in leaves

    def meaning(self, slot: int) -> str:
        """What a flat slot of the inputs is, as `self.head.weight.codes`."""
        found = self.plan.index_map.slots[slot]
        call = "" if found.dim is None else f".{found.kind}({found.dim})"
        return self.paths[found.outer] + "".join(found.path) + call

    def _is_dense(self, slot: int) -> bool:
        found = self.plan.index_map.slots[slot]
        return found.kind == "leaf" and not found.path


class _NonLeaf(torch.autograd.Function):
    """Makes a traced input a non-leaf of autograd's graph, as the caller's is: in-place operators are allowed on it."""

    @staticmethod
    def forward(ctx: Any, start: torch.Tensor, box: list[torch.Tensor]) -> torch.Tensor:
        return box[0]

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient, None


def _twin(leaf: Any) -> Any:
    """Another leaf for the same graph input."""
    if not isinstance(leaf, MetaTensor):
        return leaf
    twin = blank(leaf.spec)
    twin.base, twin.tag = leaf, leaf.tag
    return twin


def _has_symbols(pattern: Any) -> bool:
    return is_symbolic(pattern) or isinstance(pattern, MetaTensor) and pattern.spec.solver is not None


def _is_graph_input(leaf: Any) -> bool:
    """False for an opaque inner value, which is a constant of the signature."""
    return isinstance(leaf, torch.Tensor) or is_symbolic(leaf)
