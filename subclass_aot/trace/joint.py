"""One run of a function on leaves, forward and backward: the joint graph and its frozen signature."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from subclass_aot import _torch
from subclass_aot.errors import MutationError, TraceError
from subclass_aot.flatten import FlattenPlan, ValueMeta
from subclass_aot.meta import MetaTensor, Spec, blank, root
from subclass_aot.trace import refusals
from subclass_aot.trace.arguments import Arguments, flatten
from subclass_aot.trace.cleanup import drop_dead, drop_identities
from subclass_aot.trace.functional import remove_mutations
from subclass_aot.trace.history import foreign_leaf, without_hooks
from subclass_aot.trace.outputs import (
    AliasOfLeaf,
    Computed,
    InputLeaf,
    OutputReader,
    Value,
    ViewOfInput,
    spec_of_tangent,
)
from subclass_aot.trace.recorder import Recorder
from subclass_aot.trace.sharing import bases_of
from subclass_aot.trace.signature import Input, JointSignature
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
    """

    graph_module: fx.GraphModule
    signature: JointSignature


def trace_joint(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> JointTrace:
    """Traces a function or module, forward and backward, to one graph of dense tensors.

    The function runs once, on tensors without data; nothing of the caller's is changed.

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
    return trace_arguments(fn, Arguments.of(fn, args, kwargs))


def trace_arguments(
    fn: Callable[..., Any],
    arguments: Arguments,
    decompositions: Mapping[Any, Callable[..., Any]] | None = None,
) -> JointTrace:
    """Traces `fn` on a call that was taken apart already. See `trace_joint`."""
    inference, grad = torch.is_inference_mode_enabled(), torch.is_grad_enabled()
    with _one_at_a_time, torch.inference_mode(False), torch.set_grad_enabled(grad):  # the former turns gradients on
        return _Trace(fn, arguments, decompositions, inference).run()


_one_at_a_time = threading.RLock()
"""Modules have other tensors for parameters while they are traced; two traces of one module must not meet."""


class _Trace:
    """The state of one run. Its methods are the steps of `run`, in order."""

    def __init__(
        self,
        fn: Callable[..., Any],
        arguments: Arguments,
        decompositions: Mapping[Any, Callable[..., Any]] | None,
        inference: bool,
    ) -> None:
        self.fn = fn
        self.inference = inference
        self.arguments = arguments
        self.recorder = Recorder(decompositions)
        self.plan = arguments.plan()
        self.real_leaves = self.plan.unwrap(arguments.values)
        self.graph_slots = tuple(i for i, x in enumerate(self.real_leaves) if isinstance(x, torch.Tensor))
        self.paths = [arguments.path_of(i) for i in range(len(arguments.values))]

    def run(self) -> JointTrace:
        with reads_are_refused(), without_hooks(), self.recorder, _torch.force_view_tracking(True):
            self.make_inputs()
            results = self.forward()
            self.read_outputs(results)
            self.backward()
        return self.finish()

    def make_inputs(self) -> None:
        """Placeholders for leaves, and traced twins of the inputs made of them."""
        self.leaves: list[Any] = list(self.real_leaves)
        for number, slot in enumerate(self.graph_slots, 1):
            real = self.real_leaves[slot]
            spec = real.spec if isinstance(real, MetaTensor) else Spec.of(real)
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
            if not (real.requires_grad and torch.is_grad_enabled()):
                continue
            self.starts[i].requires_grad_()
            if not real.is_leaf:
                twins = [_twin(x) if self._is_dense(s) else x for s, x in enumerate(self.leaves)]
                fresh = fresh or self.plan.wrap(twins)
                self.traced[i] = _NonLeaf.apply(self.starts[i], [fresh[i]])  # type: ignore[no-untyped-call]
        self.gradient_functions = [t.grad_fn for t in self.traced]
        self.requires_grad = [t.requires_grad for t in self.traced]
        self.versions = [versions(t, m) for t, m in zip(self.traced, self.plan.metas, strict=True)]

    def forward(self) -> list[Any]:
        with self.arguments.replaced(self.traced) as (args, kwargs):
            out = self.fn(*args, **kwargs)
        results, self.out_treespec = flatten(out)
        self.check_inputs()
        return results

    def check_inputs(self) -> None:
        """Refuses what a graph cannot do to its inputs."""
        for path, before, traced in zip(self.paths, self.requires_grad, self.traced, strict=True):
            if traced.requires_grad != before and traced.is_leaf:
                raise MutationError(refusals.SWITCHED_GRAD.format(path=path, value=traced.requires_grad))
        self.reshaped = [
            (i, *how)
            for tensor, *how in self.recorder.reshaped
            for i, traced in enumerate(self.traced)
            if tensor is traced
        ]
        changed = {i for i, *_ in self.reshaped}
        slots = self.plan.index_map.slots
        for slot in [s for i in changed for s in self.plan.index_map.flat_of(i)]:
            for other in self.graph_slots:
                if self.real_leaves[other] is self.real_leaves[slot] and slots[other].outer != slots[slot].outer:
                    paths = f"{self.meaning(slot)} and {self.meaning(other)}"
                    raise MutationError(refusals.RESHAPED_TOGETHER.format(paths=paths))
        after = self.plan.unwrap(self.traced)
        for slot in self.graph_slots:
            if self.plan.index_map.slots[slot].outer in changed and root(after[slot]) is self.leaves[slot]:
                continue
            if after[slot] is not self.leaves[slot] and not self._is_dense(slot):
                raise MutationError(refusals.REPLACED_LEAF.format(path=self.meaning(slot)))
            if after[slot].spec is not self.specs[slot]:
                path, now = self.meaning(slot), after[slot].spec
                raise MutationError(refusals.RESHAPED_INPUT.format(path=path, before=self.specs[slot], after=now))

    def read_outputs(self, results: list[Any]) -> None:
        """Says what each result is, and which inputs were written how."""
        reshaped = [tensor for tensor, *_ in self.recorder.reshaped]
        reader = OutputReader(self.traced, self.leaves, self.recorder.admit, not self.inference, reshaped)
        written = {leaf for leaf, phases in self.recorder.written.items() if "forward" in phases}
        self.written_leaves: list[int] = []
        self.rewritten: list[tuple[int, Value]] = []
        self.untouched: list[int] = []
        for i, traced in enumerate(self.traced):
            slots = [s for s in self.plan.index_map.flat_of(i) if self.leaves[s] in written] if written else []
            if not slots:
                continue
            if traced.grad_fn is self.gradient_functions[i]:
                self.written_leaves += slots
            else:
                self.rewritten.append((i, reader.computed_value(traced, self.paths[i])))
                self.untouched += [s for s in self.plan.index_map.flat_of(i) if s not in slots]
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
            for i in moved
            for path, version in versions(self.traced[i], self.plan.metas[i]).items()
            if version != self.versions[i][path]
        ]
        through_autograd = {s for i, _ in self.rewritten for s in flat_of(i)}
        written = {*self.written_leaves, *through_autograd}
        self.bases = bases_of(self.real_leaves, written, self.meaning) if written else []
        based = {s for base in self.bases for s in base.slots}
        for base in self.bases:
            owners = {slots[s].outer for s in base.slots}
            self.refuse_shared_history([i for i, _ in self.rewritten if i in owners], owners)
        self.written_leaves = [s for s in self.written_leaves if s not in based]

    def refuse_shared_history(self, rewritten: list[int], owners: set[int]) -> None:
        """Views of one tensor have one history; a traced write changes that of the view it was made through only."""
        values = self.arguments.values
        for i in rewritten:
            base = _view_base(values[i])
            connected = [j for j in owners if j != i and values[j].requires_grad and _view_base(values[j]) is base]
            if connected:
                paths = " and ".join(self.paths[j] for j in (i, *connected))
                raise MutationError(refusals.SHARED_GRADIENT.format(paths=paths))

    def backward(self) -> None:
        self.tangents: list[tuple[ValueMeta, tuple[Any, ...]]] = []
        self.backward_writes: list[int] = []
        self.gradients: list[Value | None] = [None] * len(self.starts)
        self.gradient_leaves: list[MetaTensor] = []
        self.gradient_meanings: list[str] = []
        wanted = [i for i, t in enumerate(self.starts) if t.requires_grad]
        if self.recorder.constants or any(isinstance(o, Value) and o.starts_grad for o in self.outputs):
            self.refuse_lost_gradients()
        if not self.differentiable or not wanted:
            return
        self.recorder.phase = "backward"
        tangents = self.make_tangents()
        with torch.autocast("cpu", enabled=False):
            gradients: Sequence[torch.Tensor | None] = torch.autograd.grad(
                self.differentiable, [self.starts[i] for i in wanted], tangents, allow_unused=True
            )
        for i, gradient in zip(wanted, gradients, strict=True):
            if gradient is None:
                continue
            plan = FlattenPlan.of([gradient], count_symints=False, where=f"gradient of {self.paths[i]}")
            sources: list[Any] = []
            for slot, leaf in zip(plan.index_map.slots, plan.unwrap([gradient]), strict=True):
                if isinstance(leaf, torch.Tensor):
                    sources.append(Computed(len(self.gradient_leaves)))
                    self.gradient_leaves.append(leaf if isinstance(leaf, MetaTensor) else self.recorder.admit(leaf))
                    self.gradient_meanings.append(f"gradient of {self.paths[i]}{''.join(slot.path)}")
                else:
                    sources.append(leaf)
            self.gradients[i] = Value(plan.metas[0], tuple(sources), requires_grad=False)
        self.find_backward_writes()

    def find_backward_writes(self) -> None:
        """Leaves that are written while gradients are computed, each in its time."""
        written = {leaf for leaf, phases in self.recorder.written.items() if "backward" in phases}
        self.backward_writes = [s for s in self.graph_slots if self.leaves[s] in written] if written else []
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
        """Placeholders for the gradients that come in; their specs are known once the forward has run."""
        with torch.no_grad():
            plain = [plain_tangent(t.detach()) for t in self.differentiable]
        plan = FlattenPlan.of(plain, count_symints=False, where="tangents")
        leaves = plan.unwrap(plain)
        number = 0
        for position, leaf in enumerate(leaves):
            if isinstance(leaf, torch.Tensor):
                number += 1
                spec = spec_of_tangent(leaf.spec if isinstance(leaf, MetaTensor) else Spec.of(leaf))
                meaning = "tangent of " + plan.index_map.slots[position].name("outputs")
                leaves[position] = self.recorder.placeholder(f"tangents_{number}", spec, meaning)
        for i, meta in enumerate(plan.metas):
            specs = tuple(_spec_or_value(leaves[s]) for s in plan.index_map.flat_of(i))
            self.tangents.append((meta, specs))
        return plan.wrap(leaves)

    def finish(self) -> JointTrace:
        results = [leaf.tag for leaf in (*self.computed, *self.gradient_leaves)]
        recorder, new_values = self.recorder, []
        if recorder.mutates:
            written = [self.leaves[s].tag for s in self.written_leaves]
            slots = {s: self.leaves[s].tag for base in self.bases for s in base.slots}
            live = [self.leaves[s].tag for s in self.backward_writes]
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
        for i, real in enumerate(self.arguments.values):
            specs = tuple(self.specs[s] for s in self.plan.index_map.flat_of(i))
            inputs.append(
                Input(self.paths[i], self.plan.metas[i], specs, self.starts[i].requires_grad, real.is_leaf)
            )
        return JointSignature(
            inputs=tuple(inputs),
            index_map=self.plan.index_map,
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
            tangents=tuple(self.tangents),
            gradients=tuple(self.gradients),
            backward_writes=tuple(self.backward_writes),
        )

    def meaning(self, slot: int) -> str:
        """What a flat slot of the inputs is, as `self.head.weight.codes`."""
        found = self.plan.index_map.slots[slot]
        return self.paths[found.outer] + "".join(found.path)

    def _is_dense(self, slot: int) -> bool:
        return not self.plan.index_map.slots[slot].path


class _NonLeaf(torch.autograd.Function):
    """Makes a traced input a non-leaf of autograd's graph, as the caller's is: in-place operators are allowed on it."""

    @staticmethod
    def forward(ctx: Any, start: torch.Tensor, box: list[torch.Tensor]) -> torch.Tensor:
        return box[0]

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient, None


def _view_base(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor whose history a write into `tensor` changes."""
    return tensor if tensor._base is None else tensor._base


def _twin(leaf: Any) -> Any:
    """Another leaf for the same graph input."""
    if not isinstance(leaf, MetaTensor):
        return leaf
    twin = blank(leaf.spec)
    twin.base, twin.tag = leaf, leaf.tag
    return twin


def _spec_or_value(leaf: Any) -> Any:
    return leaf.spec if isinstance(leaf, MetaTensor) else leaf
