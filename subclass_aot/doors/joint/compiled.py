"""`compile_joint`: from a joint graph, as passes left it, to what runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.doors.joint import messages
from subclass_aot.doors.joint.checked import checked, refuse_undecomposed
from subclass_aot.doors.joint.joint import Joint
from subclass_aot.engine.call import Arguments, flatten
from subclass_aot.engine.compilers import Compiler
from subclass_aot.engine.facts import global_state
from subclass_aot.engine.guards import MISS, GuardOptions, refusing_line
from subclass_aot.engine.options import Options, compile_graphs
from subclass_aot.engine.runtime import CompiledGraphs, Entry, PartitionFn, make_entry
from subclass_aot.engine.trace import JointTrace, is_tracing, one_at_a_time
from subclass_aot.errors import JointGraphError


def compile_joint(
    joint: Joint,
    *,
    fw_compiler: str | Compiler = "eager",
    bw_compiler: str | Compiler | None = None,
    partition_fn: PartitionFn | None = None,
    lazy_backward: bool = True,
) -> CompiledJoint:
    """Compiles a joint graph as it is now, with what passes have changed in it.

    The joint graph stays as it is, and may be changed and compiled again. Shapes are inferred anew, so passes need not
    keep `meta["val"]`. A node that they put in belongs to backward if it reads what backward computes, or says so
    itself: `node.meta["partitioner_tag"] = "is_backward"`.

    Args:
        joint: What `trace_joint` gave.
        fw_compiler: As in `aot_compile`. Decompositions that a compiler wants are an option of
            `trace_joint`.
        bw_compiler: The same for the backward graph; `fw_compiler` if left out.
        partition_fn: As in `aot_compile`.
        lazy_backward: As in `aot_compile`.

    Returns:
        A function of the tensors of the call; `bind` gives one of the arguments alone.

    Raises:
        JointGraphError: A pass changed what it must not change; the error names the input or output.

    >>> import torch, subclass_aot as sa
    >>> layer, x = torch.nn.Linear(2, 2), torch.ones(1, 2)
    >>> joint = sa.trace_joint(layer, x)
    >>> compiled = sa.compile_joint(joint)
    >>> joint.call_order
    ('weight', 'bias', 'args[0]')
    >>> bool((compiled(layer.weight, layer.bias, x) == layer(x)).all())
    True
    >>> compiled.bind(layer)(x).sum().backward()
    """
    options = Options(fw_compiler, bw_compiler, partition_fn, lazy_backward=lazy_backward)
    with one_at_a_time:
        for backend in options.backends.values():
            refuse_undecomposed(joint.graph_module, backend.decompositions(), joint.replaced)
        symbols = joint.signature.assumptions.symbols
        graph = checked(joint.graph_module, joint.ins, joint.outs, symbols)
        trace = JointTrace(graph, joint.signature, _no_other)
        return CompiledJoint(joint, compile_graphs(joint.call.name, trace, options))


def _no_other(tangents: Mapping[int, torch.Tensor | None]) -> JointTrace:
    """Goes backward for no other tangents: what passes did to the graph would be missing there."""
    raise NotImplementedError(messages.OTHER_TANGENT)


class _Callable:
    """What runs the graphs of a joint graph. Its guard and its code are made for its first call."""

    def __init__(self, joint: Joint, graphs: CompiledGraphs) -> None:
        self.joint = joint
        self._graphs = graphs
        self._entry: Entry | None = None

    def __repr__(self) -> str:
        return f"<compiled {repr(self.joint).removeprefix('<')}"

    def __reduce__(self) -> Any:
        raise TypeError(messages.NOT_PICKLED)


class CompiledJoint(_Callable):
    """A compiled joint graph; made by `compile_joint`.

    Called with the tensors of the call, in the order of `call_order`, it returns what the function returned, with
    gradients. What is called is checked as a call of `aot_compile` is: classes, contexts, specs, modes. Nothing else of
    a module is compared, such as whether it is in training.

    Attributes:
        joint: What was compiled.
    """

    @property
    def call_order(self) -> tuple[str, ...]:
        """The names of the tensors that it is called with, in order."""
        return self.joint.call_order

    @_torch.dynamo.not_by_dynamo  # type: ignore[untyped-decorator]
    def __call__(self, *values: torch.Tensor) -> Any:
        modes = global_state()
        if self._entry is not None:
            result = self._entry.call(values, {}, values, None, modes)
            if result is not MISS:
                return result
        _refuse_within()
        self._refuse_objects()
        arguments, facts = self.joint.call.refuse_other_values(values, self.joint.signature)
        self._entry = make_entry(arguments, self.joint.signature, self._graphs, GuardOptions(facts))
        return _first_call(self._entry, (values, {}, values, None, modes))

    def bind(self, fn: Callable[..., Any]) -> BoundJoint:
        """Makes a function of the arguments alone. Parameters and buffers are read at each call, as they are then.

        Args:
            fn: The function or module that was traced, or another module of its class.

        Raises:
            JointGraphError: It is another function, or of another class. What else does not fit is said at the call.
        """
        self.joint.call.refuse_other_function(fn)
        return BoundJoint(self.joint, self._graphs, fn)

    def _refuse_objects(self) -> None:
        """Refuses to be called with values where values are not all.

        Raises:
            JointGraphError: The function changes objects, or results hold some; or an input is made of another one.
        """
        signature = self.joint.signature
        if not signature.outcome.is_plain:
            which = ", ".join(change.path for change in signature.changes) or "among its results"
            raise JointGraphError(messages.OBJECTS.format(which=which))
        if signature.views:
            raise JointGraphError(messages.VIEWS.format(name=signature.views[0]))


class BoundJoint(_Callable):
    """A compiled joint graph that is called as the function; made by `CompiledJoint.bind`.

    Attributes:
        fn: The function or module whose tensors it takes.
    """

    def __init__(self, joint: Joint, graphs: CompiledGraphs, fn: Callable[..., Any]) -> None:
        super().__init__(joint, graphs)
        self.fn = fn

    @_torch.dynamo.not_by_dynamo  # type: ignore[untyped-decorator]
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        entry, modes = self._entry, global_state()
        leaves, treespec = None, None
        if entry is not None:
            if not entry.takes_arguments:
                leaves, treespec = flatten((args, kwargs))
            result = entry.call(args, kwargs, leaves, treespec, modes)
            if result is not MISS:
                return result
        _refuse_within()
        with one_at_a_time:
            arguments = Arguments.of(self.fn, args, kwargs, self.joint.call.with_grad).parameters_first()
            facts = self.joint.call.refuse_other(arguments, self.joint.signature)
            options = GuardOptions(facts, self.fn)
            entry = self._entry = make_entry(arguments, self.joint.signature, self._graphs, options)
        return _first_call(entry, (args, kwargs, *flatten((args, kwargs)), modes))


def _refuse_within() -> None:
    """Refuses to be called where tensors stand for others.

    Raises:
        JointGraphError: It is.
    """
    if is_tracing() or _torch.dispatch.inside_transform():
        raise JointGraphError(messages.WITHIN)


def _first_call(entry: Entry, call: tuple[Any, ...]) -> Any:
    """Runs a call that an entry was made for.

    Raises:
        JointGraphError: It does not fit all the same.
    """
    result = entry.call(*call)
    if result is MISS:
        raise JointGraphError(messages.UNLIKE_ITSELF.format(line=refusing_line(entry.call, *call)))
    return result
