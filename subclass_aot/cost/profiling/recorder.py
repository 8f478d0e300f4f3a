"""The listener that writes the timeline of a run."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from types import FrameType
from typing import Any, Self

import optree
import torch

from subclass_aot.base import _torch
from subclass_aot.base.operators import effects_of, is_counted
from subclass_aot.cost.devices import Device
from subclass_aot.cost.profiling.communication import bytes_sent, communicated
from subclass_aot.cost.profiling.on_cuda import gpu_of, kept_by_cublas
from subclass_aot.cost.profiling.parts import dense_parts, tensors_in
from subclass_aot.cost.profiling.real import RealOperators, resizes_noted
from subclass_aot.cost.profiling.timeline import Allocation, Timeline, Work
from subclass_aot.cost.profiling.without_data import PyTree
from subclass_aot.cost.profiling.workspace import kept_by_recurrent, workspace_of
from subclass_aot.meta import Listener, MetaTensor, Operation, Storage, Stream

_aten: Any = torch.ops.aten
_SILENT_VIEWS = frozenset({_aten._unsafe_view, _aten.unsafe_split, _aten.unsafe_split_with_sizes, _aten.unsafe_chunk})
"""Views of what nobody has any more; their schemas do not say that they are views."""

_ACCUMULATES = "torch::autograd::AccumulateGrad"


class Recorder(Listener):
    """Writes down memory and work of what runs in its block.

    Args:
        timeline: What is written.
        modules: Names of modules, parameters and buffers come from here, by the prefix of each.
        inputs: Other tensors that are there before.
        optimizers: Whose states are there before.
        known: The device that the run claims to be on, if it is named.

    Attributes:
        uncounted: By name, operators that may have products, for which there is no formula.
        workspaces: By operator and what the figure rests on, how often its workspace is not exact.
        parameters: By name.
    """

    # More than ten attributes: what was given, what is found, and indexes of both by storage, parameter and module.

    def __init__(
        self,
        timeline: Timeline,
        modules: dict[str, torch.nn.Module],
        inputs: PyTree = (),
        optimizers: Iterable[torch.optim.Optimizer] = (),
        known: Device | None = None,
    ) -> None:
        self.timeline = timeline
        self.known = known
        self.modules = modules
        self.inputs = inputs
        self.optimizers = tuple(optimizers)
        self.uncounted: dict[str, int] = {}
        self.workspaces: dict[tuple[str, str], int] = {}
        self.parameters: dict[str, torch.Tensor] = {}
        self._index: dict[int, int] = {}  # by the id of a storage that is alive
        self._sizes: dict[int, int] = {}  # by the index of an allocation: its bytes
        self._sharers: dict[int, int] = {}  # and how many storages stand for it: see `_shared`
        self._fresh: list[Storage] = []  # these were made since the last operator
        self._names: dict[int, str] = {}
        self._names_of_parameters: dict[int, str] = {}
        self._stack = ExitStack()
        self._in_optimizer: list[int] = []  # what was made in the step of an optimizer
        self._communicates = False
        self._saves = False
        self._gpu: Device | None = None
        self._libraries: set[tuple[torch.device, bool]] = set()  # these have allocated what they keep

    def __enter__(self) -> Self:
        with _torch.dispatch.disable_current_modes():
            self._note_what_is_there()
        self._fresh.clear()
        with ExitStack() as stack:
            stack.enter_context(_torch.autograd.saved_tensors_noted(self._saved))
            if not any(isinstance(mode, Stream) for mode in _torch.dispatch.dispatch_modes()):
                stack.enter_context(resizes_noted())
                stack.enter_context(RealOperators())  # type: ignore[no-untyped-call]
            super().__enter__()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._stack.close()
        self._end_phase()
        self._fresh.clear()

    def _saved(self, tensor: torch.Tensor) -> torch.Tensor:
        """Notes what autograd saves; of a result, an alias is, as a cycle would be there until Python collects it."""
        self._label(tensor, "saved")
        if tensor.grad_fn is None:
            return tensor
        self._saves = True
        try:
            with _torch.dispatch.disable_current_modes():
                return tensor.detach()
        finally:
            self._saves = False

    def _note_what_is_there(self) -> None:
        for prefix, module in self.modules.items():
            for name, part in module.named_modules(prefix=prefix):
                self._names.setdefault(id(part), name)
            for name, parameter in module.named_parameters(prefix=prefix):
                self.parameters[name] = parameter
                self._names_of_parameters[id(parameter)] = name
                self._note(parameter, "parameter", name)
                if parameter.grad is not None:
                    self._note(parameter.grad, "gradient", name)
            for name, buffer in module.named_buffers(prefix=prefix):
                self._note(buffer, "buffer", name)
        for optimizer in self.optimizers:
            for state in optimizer.state.values():
                for tensor in tensors_in((state,)):
                    self._note(tensor, "optimizer", "")
        for path, value, _ in _paths(self.inputs):
            self._note(value, "input", path)

    def _note(self, tensor: torch.Tensor, kind: str, name: str) -> None:
        """Notes memory that is there before."""
        for leaf in dense_parts(tensor):
            storage = Storage.of(leaf)
            if id(storage) not in self._index:
                module = name.rpartition(".")[0] if kind != "input" else ""
                self._allocate(storage, kind, module=module, name=name)

    def _allocate(self, storage: Storage, kind: str, **origin: Any) -> int:
        """Notes new memory; without an origin, it is there before."""
        timeline = self.timeline
        born = len(timeline.events) if "phase" in origin else -1
        nbytes = timeline.rounded(int(storage.nbytes))
        i = self._index[id(storage)] = len(timeline.allocations)
        timeline.allocations.append(Allocation(nbytes, storage.device, [(born, kind)], born, **origin))
        self._sizes[i], self._sharers[i] = nbytes, 1
        if born >= 0:
            timeline.events.append((i, nbytes))
        return i

    def on_storage(self, storage: Storage) -> None:
        """Keeps a storage until it is known which operator made it."""
        self._fresh.append(storage)

    def on_resize(self, storage: Storage, before: int) -> None:
        """Notes another size."""
        i = self._index.get(id(storage))
        if i is not None:
            nbytes = self.timeline.rounded(int(storage.nbytes))
            change, self._sizes[i] = nbytes - self._sizes[i], nbytes
            if change:
                self.timeline.events.append((i, change))
            if not nbytes and self._communicates:  # what FSDP has gathered, and frees while tensors have it
                self._rename(i, "communication")

    def on_release(self, storage: Storage) -> None:
        """Notes that memory is free again."""
        i = self._index.pop(id(storage), None)
        if i is None:
            return
        self._sharers[i] -= 1
        if not self._sharers[i] and self._sizes[i]:
            self.timeline.events.append((i, -self._sizes[i]))
            self._sizes[i] = 0

    def on_operator(self, operation: Operation) -> None:
        """Notes work, and whose the memory is that was made since the last operator; a trace is no work."""
        if self._saves:
            return
        if operation.stream is not None and operation.stream.records:
            self._fresh.clear()
            return
        timeline, func = self.timeline, operation.func
        phase, module, line, node = operation.place
        name = self._name_of(module)
        if not timeline.phases or timeline.phases[-1][1] != phase:
            self._end_phase()
            timeline.phases.append((len(timeline.events), phase))
        operator = func.overloadpacket.__name__ if func.namespace == "aten" else func.name().partition(".")[0]
        given = [*tensors_in(operation.args), *tensors_in(operation.kwargs.values())]
        made = list(tensors_in((operation.result,)))
        effects = effects_of(func)
        is_view = not effects.writes and any(view is not None for view in effects.returns_view_of)
        flops = operation.flops
        if not flops and not is_counted(func):
            self.uncounted[operator] = self.uncounted.get(operator, 0) + 1
        sent, group = bytes_sent(operation)
        self._communicates |= group > 1
        moved = 0 if is_view else sum([x.nbytes for x in given]) + sum([x.nbytes for x in made])
        of = made or given
        dtype, device = (of[0].dtype, of[0].device) if of else (None, None)
        timeline.work.append(
            Work(phase, name, line, operator, dtype, flops, moved, len(timeline.events), sent, group, device)
        )
        for leaf in given:
            storage = Storage.of(leaf)
            if id(storage) not in self._index:  # it is older than the block
                self._allocate(storage, "optimizer" if phase == "optimizer" else "constant")
        if self._fresh or not is_view:
            self._own(operation, operator, name, made, is_view)
        for leaf in tensors_in(communicated(operation)):
            self._label(leaf, "communication")
        self._note_workspace(operation, operator, device)
        if node is not None and made and _torch.autograd.name_of(node) == _ACCUMULATES:
            self._label(made[0], "gradient", self._names_of_parameters.get(id(node.variable), ""))
        if phase == "recompute" and func is _aten.detach.default:  # how a checkpoint keeps what is saved
            self._label(operation.result, "saved")

    def _note_workspace(self, operation: Operation, operator: str, device: torch.device | None) -> None:
        """Notes what a kernel takes while it runs, and what a library keeps from its first product on."""
        timeline, gpu, kept = self.timeline, None, 0
        phase, module, line, _ = operation.place
        if device is not None and device.type == "cuda":
            gpu = self._gpu = self._gpu or gpu_of(self.known)
            thread = device, phase in ("backward", "recompute")  # where autograd has a thread of its own
            kept = 0 if thread in self._libraries else kept_by_cublas(operation, gpu)
            if kept:
                self._libraries.add(thread)
        taken, rests_on = workspace_of(operation, gpu)
        if rests_on:
            self.workspaces[operator, rests_on] = self.workspaces.get((operator, rests_on), 0) + 1
        origin = operator, self._name_of(module), line, phase
        for nbytes, is_freed in ((kept, False), (timeline.rounded(taken), True)):
            if nbytes:
                born, i = len(timeline.events), len(timeline.allocations)
                where = device or torch.device("cpu")
                timeline.events += [(i, nbytes), (i, -nbytes)] if is_freed else [(i, nbytes)]
                timeline.allocations.append(Allocation(nbytes, where, [(born, "workspace")], born, *origin))

    def _own(self, operation: Operation, operator: str, module: str, made: list[Any], is_view: bool) -> None:
        """Gives new memory to the operator that made it."""
        phase, line = operation.phase, operation.line
        self._fresh.clear()
        if is_view:
            return
        shared, kept = self._shared(operation), kept_by_recurrent(operation)
        for leaf in made:
            storage = Storage.of(leaf)
            if id(storage) in self._index:
                continue
            if shared is not None:
                i = self._index[id(storage)] = self._index[id(shared)]
                self._sharers[i] += 1
                continue
            if kept is not None and leaf is made[-1] and type(leaf) is MetaTensor:
                storage.resize(kept)
            i = self._allocate(storage, "temporary", operator=operator, module=module, line=line, phase=phase)
            if phase == "optimizer":
                self._in_optimizer.append(i)

    def _shared(self, operation: Operation) -> Storage | None:
        """Returns the storage that the results would have, were these plain tensors, if it is one of an argument.

        Autograd adds up gradients in place where nobody else has the one, and never in a tensor of a subclass.
        """
        args = operation.args
        if operation.func.overloadpacket in _SILENT_VIEWS and type(args[0]) is MetaTensor:
            return Storage.of(args[0])
        if operation.node is None or operation.func is not _aten.add.Tensor or type(args[0]) is not MetaTensor:
            return None
        if len(args) != 2 or type(args[1]) is not MetaTensor or not _called_by_engine():
            return None
        events = len(self.timeline.events)
        for leaf in args[:1] if _torch.autograd.name_of(operation.node) == _ACCUMULATES else args:
            storage: Storage = leaf.meta_storage
            i = self._index.get(id(storage))
            if i is None or leaf.meta_spec != operation.result.meta_spec:
                continue
            allocation = self.timeline.allocations[i]
            kind = allocation.kind_at(events)
            if kind == "gradient" or (kind == "temporary" and allocation.phase == "backward"):
                return storage
        return None

    def _label(self, tensor: torch.Tensor, kind: str, name: str = "") -> None:
        """Notes that memory is of another kind from now on; a gradient, and a buffer of a collective, from
        its beginning.
        """
        for leaf in dense_parts(tensor):
            i = self._index.get(id(Storage.of(leaf)))
            if i is None:
                continue
            self._rename(i, kind, name)

    def _rename(self, i: int, kind: str, name: str = "") -> None:
        """Notes that an allocation is of another kind: see `_label`."""
        allocation, events = self.timeline.allocations[i], len(self.timeline.events)
        before = allocation.kind_at(events)
        others = ("temporary", "saved", "constant", *(["communication"] if kind == "gradient" else []))
        if allocation.born < 0 or before not in others:
            return
        if kind in ("gradient", "communication"):
            allocation.kinds = [(allocation.born, kind)]
            allocation.name, allocation.module = name, name.rpartition(".")[0] or allocation.module
        elif before != kind:
            allocation.kinds.append((events, kind))

    def label_outputs(self, results: object) -> None:
        """Notes what the program has returned."""
        for tensor in tensors_in((results,)):
            self._label(tensor, "output")

    def _end_phase(self) -> None:
        """Notes what the last phase has left behind: gradients, and the state of optimizers."""
        phase = self.timeline.phases[-1][1] if self.timeline.phases else ""
        if phase == "backward":
            for name, parameter in self.parameters.items():
                if parameter.grad is not None:  # FSDP sets it so
                    self._label(parameter.grad, "gradient", name)
        if phase == "optimizer":
            self._label_states()

    def _label_states(self) -> None:
        alive = set(self._index.values())
        for i in self._in_optimizer:
            if i in alive:
                allocation = self.timeline.allocations[i]
                allocation.kinds = [(allocation.born, "optimizer")]
        self._in_optimizer.clear()

    def _name_of(self, module: torch.nn.Module | None) -> str:
        if module is None:
            return ""
        name = self._names.get(id(module))
        return type(module).__name__ if name is None else name


def _called_by_engine() -> bool:
    """Returns whether autograd adds up gradients itself: nothing in Python is between the engine and the operator."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__", "").startswith(
        ("subclass_aot.cost.", "subclass_aot.meta.")
    ):
        frame = frame.f_back
    return frame is None or frame.f_code.co_name == "_engine_run_backward"


def _paths(tree: PyTree) -> Iterator[tuple[str, Any, Any]]:
    """Yields the tensors of a tree, each with its path."""
    paths, leaves, structure = optree.tree_flatten_with_path(tree, none_is_leaf=True)
    for path, leaf in zip(paths, leaves, strict=True):
        if isinstance(leaf, torch.Tensor):
            yield "".join(f"[{part!r}]" for part in path), leaf, structure
