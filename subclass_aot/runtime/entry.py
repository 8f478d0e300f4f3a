"""The generated code of one signature: from the leaves of a call to its results.

Three functions are generated, each straight-line. `forward` runs the forward graph and wraps; `backward` unwraps
tangents, runs the backward graph and wraps gradients; `call` is what a call runs once the guard has let it through.
With gradients, `forward` and `backward` are the two halves of one `autograd.Function`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import torch

from subclass_aot.codegen import Source
from subclass_aot.errors import CompilerResultError, UnmetDemandError
from subclass_aot.flatten import PlainTensorMeta, SubclassCreationMeta, ValueMeta, emit_unwrap, emit_wrap
from subclass_aot.meta import Spec, is_symbolic, lasting_key_of
from subclass_aot.runtime import counters, tangents
from subclass_aot.runtime.backends import BoxedFunction
from subclass_aot.runtime.graphs import Graphs
from subclass_aot.runtime.once import once_differentiable
from subclass_aot.runtime.other_tangents import OtherTangents
from subclass_aot.runtime.twice import Twice
from subclass_aot.trace import (
    AliasOfLeaf,
    Computed,
    ComputedNumbers,
    Constant,
    InputLeaf,
    JointSignature,
    SameAsInput,
    SameAsOutput,
    Value,
    ViewOfBase,
    ViewOfInput,
    flat_base,
)

_WRONG_COUNT = """The function that the {which} compiler returned gave {got} outputs; its graph has {expected}.
  Instead: return every output of the graph, in order, in one sequence."""


_UNMET_DEMAND = """The program says that {demand}, and in this call {values}.
  Your line:  {line}
  The graph was traced for numbers of which it is true. Instead: say it of numbers of which it always is."""


@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """What runs for one signature.

    Attributes:
        call: `call(values, leaves)`, with the tensors of the call and their flat slots, gives the flattened results.
        sources: The generated text, by what it does.
    """

    call: Callable[[list[Any], list[Any]], list[Any]]
    sources: dict[str, str]


def make_entry(
    signature: JointSignature,
    graphs: Graphs,
    forward: BoxedFunction,
    backward: BoxedFunction | None,
    others: OtherTangents | None,
    twice: Twice | None = None,
) -> Entry:
    """Generates the code that runs compiled graphs for one signature.

    Args:
        signature: The signature.
        graphs: Its graphs.
        forward: The forward graph, compiled.
        backward: The backward graph, compiled.
        others: What to do with gradients of other kinds than the backward graph is for.
        twice: What makes gradients differentiable, if that was asked for.
    """
    return _EntryWriter(signature, graphs, forward, backward, others, twice).write()


class _EntryWriter:
    def __init__(
        self,
        signature: JointSignature,
        graphs: Graphs,
        forward: BoxedFunction,
        backward: BoxedFunction | None,
        others: OtherTangents | None,
        twice: Twice | None,
    ) -> None:
        self.signature = signature
        self.graphs = graphs
        self.forward = forward
        self.backward = backward
        self.others = others
        self.twice = twice
        self.made = [value for _, value in signature.rewritten]
        self.made += [o for o in signature.outputs if isinstance(o, Value)]
        self.made += signature.hidden
        self.through_autograd = [v.requires_grad and signature.needs_backward for v in self.made]
        self.wanted = [i for i, given in enumerate(signature.inputs) if given.requires_grad]
        self.counts = bool(signature.counted or signature.written_leaves or signature.reshaped)
        self.checked_wrappers = self._wrappers_to_check()
        returned = [p.position for o in signature.outputs if isinstance(o, ComputedNumbers) for p in o.parts
                    if isinstance(p, Computed)]  # fmt: skip
        self.positions = sorted({*signature.numbers.values(), *returned})  # numbers that forward gives to the call
        self.number_names: dict[Any, str] = {}  # the locals that hold symbolic numbers, in the function being written
        self.without_gradient = 3 + self.counts + (twice is not None)  # leaves, extra, written, checked, kept

    def write(self) -> Entry:
        forward = self.write_forward()
        sources = {"forward": forward.__source__}  # type: ignore[attr-defined]
        runner: Callable[..., Any] = forward
        if self.signature.needs_backward:
            backward = self.write_backward()
            sources["backward"] = backward.__source__  # type: ignore[attr-defined]
            chosen = once_differentiable(backward) if self.twice is None else self.twice.differentiable(backward)
            members = {"forward": staticmethod(forward), "backward": staticmethod(chosen)}
            function: Any = type("Compiled", (torch.autograd.Function,), members)
            runner = function.apply
        call = self.write_call(runner)
        sources = {"call": call.__source__, **sources}  # type: ignore[attr-defined]
        before, after = self.signature.grad_modes
        if before != after or self.signature.needs_backward > before:
            call = functools.partial(_in_grad_modes, call, before or self.signature.needs_backward, after)
        return Entry(call, sources)

    # -- forward ---------------------------------------------------------------------------------------------------

    def write_forward(self) -> Callable[..., Any]:
        """`forward(ctx, leaves, extra, checked, *values)`; without gradients `forward(leaves, extra)`.

        With second derivatives `kept` stands before `values`: it leads autograd to what they need.

        Values through which no gradient goes are left in the list `extra`, where autograd does not see them. For a
        graph that writes there is one more parameter after `extra`: the version counters to settle.
        """
        signature, training = self.signature, self.signature.needs_backward
        values = ["x" + str(i) for i in self.wanted]
        written = ["written"] * self.counts
        kept = ["kept"] * (self.twice is not None)
        params = ["leaves", "extra", *written]
        if training:
            params = ["ctx", *params, "checked", *kept, *values]
        source = Source("forward", ", ".join(params), "Runs the forward graph on leaves, and wraps what it computed.")
        source.line(f"inputs = {self._graph_inputs(source)}")
        computed = [source.fresh(f"out_{i}") for i in range(signature.num_computed)]
        saved = [source.fresh(f"saved_{i}") for i in range(len(self.graphs.saved_inputs))]
        sizes = [source.fresh(f"size_{i}") for i in range(self.graphs.num_saved_numbers)]
        self._unpack(source, computed + saved + sizes, self.forward, "forward")
        self.number_names = {key: computed[position] for key, position in signature.numbers.items()}
        for demand in signature.demands:
            refuse = source.const(_unmet_demand, "unmet_demand")
            source.globals["math"] = math
            names = {symbol: self.number_names[symbol] for symbol in demand.numbers}
            text = demand.text({symbol: f"n{i}" for i, symbol in enumerate(names)})
            given = ", ".join([repr(text), repr(demand.line), *names.values()])
            source.line(f"if not ({demand.text(names)}): {refuse}({given})")
        if self.counts:
            source.line(f"{source.const(counters.settle, 'settle')}(written)")
        dense = {leaf.position for v in self.made for leaf in v.leaves
                 if isinstance(v.meta, PlainTensorMeta) and isinstance(leaf, Computed)}  # fmt: skip
        for i, alias in enumerate(self.graphs.fresh_alias):
            if alias:  # autograd marks the objects it is given: they must be nobody else's
                source.line(f"{computed[i]} = {computed[i]}.detach()")
            elif training and (i in dense or self.graphs.is_view[i]):
                # A view of something unseen could not be written in place later; one of a result that autograd is
                # given would have the history of that.
                source.line(f"if {computed[i]}._is_view(): {computed[i]} = {computed[i]}.detach()")
        made = [self._wrap(source, value, computed) for value in self.made]
        extra = [name for name, through in zip(made, self.through_autograd, strict=True) if not through]
        extra += [computed[position] for position in self.positions]
        if extra:
            source.line(f"extra += [{', '.join(extra)}]")
        if not training:
            return source.build()
        outputs = [name for name, through in zip(made, self.through_autograd, strict=True) if through]
        self._save(source, computed, saved, made)
        if sizes or signature.numbers:
            source.line(f"ctx.sizes = [{', '.join([*sizes, *self.number_names.values()])}]")
        source.line("ctx.set_materialize_grads(False)")
        if signature.backward_writes:  # not among the saved: backward wants them as they are when it runs
            source.line(f"ctx.live = [{', '.join(f'leaves[{s}]' for s in signature.backward_writes)}]")
        source.line(f"return ({', '.join(outputs)},)")
        return source.build()

    def _graph_inputs(self, source: Source) -> str:
        slots, bases = self.signature.graph_slots, self.signature.bases
        if len(slots) == len(self.signature.index_map.slots) and not bases:
            return "list(leaves)"
        inputs = [f"leaves[{i}]" for i in slots]
        inputs += [f"{source.const(flat_base, 'flat_base')}(leaves[{base.slots[0]}])" for base in bases]
        return f"[{', '.join(inputs)}]"

    def _unpack(self, source: Source, names: list[str], function: BoxedFunction, which: str) -> None:
        run = source.const(function, f"{which}_graph")
        source.line(f"outputs = {run}(inputs)")
        with source.block("try:"):
            source.line(f"({''.join(n + ', ' for n in names)}) = outputs")
        with source.block("except (TypeError, ValueError):"):
            source.line(f"{source.const(_wrong_count, 'wrong_count')}(outputs, {len(names)}, {which!r})")

    def _wrap(self, source: Source, value: Value, computed: list[str]) -> str:
        """Appends what makes one value of its leaves; returns the name of a local that nobody else has."""
        leaves = []
        for leaf in value.leaves:
            if isinstance(leaf, Computed):
                leaves.append(computed[leaf.position])
            elif isinstance(leaf, InputLeaf):
                leaves.append(f"leaves[{leaf.slot}]")
            elif isinstance(leaf, AliasOfLeaf):
                name = source.fresh("alias")
                make = source.const(_alias, "alias_of")
                geometry = ", ".join(map(self._numbers, (leaf.spec.size, leaf.spec.stride)))
                source.line(f"{name} = {make}(leaves[{leaf.slot}], {geometry}, {self._number(leaf.offset)})")
                leaves.append(name)
            else:
                leaves.append(source.const(leaf, "opaque"))
        return emit_wrap(source, value.meta, leaves)

    def _number(self, number: Any) -> str:
        """A size or stride as text: symbolic ones are what forward computed of them."""
        return self.number_names[lasting_key_of(number)] if is_symbolic(number) else str(number)

    def _numbers(self, numbers: Sequence[Any]) -> str:
        """Sizes or strides as a tuple in text."""
        return f"({''.join(self._number(n) + ', ' for n in numbers)})"

    def _save(self, source: Source, computed: list[str], saved: list[str], made: list[str]) -> None:
        """Appends `save_for_backward`. Beside leaves of a wrapper stands the wrapper: Note [Versions of wrappers]."""
        names = []
        for i, name in enumerate(saved):
            from_output = self.graphs.saved_outputs[i]
            if from_output is not None and self.graphs.saved_inputs[i] is None:
                name = computed[from_output]  # the object that is returned, so that autograd sees it is an output
            names.append(name)
        for kind, position in self.checked_wrappers:
            if kind == "output":
                names.append(made[position])
            elif position in self.wanted:
                names.append(f"x{position}")
        if self._checked_beside():
            names.append("*checked")
        source.line(f"ctx.save_for_backward({', '.join(names)})")

    def _checked_beside(self) -> list[int]:
        """Inputs that are checked though autograd is not given them."""
        return [p for kind, p in self.checked_wrappers if kind == "input" and p not in self.wanted]

    def _wrappers_to_check(self) -> list[tuple[str, int]]:
        """Wrappers whose leaves are saved: inputs, and outputs through which gradients go.

        Note [Versions of wrappers]
        A write through a wrapper counts on the wrapper's version, not on its leaves': they are written below autograd.
        What is saved is a leaf, so the wrapper is saved beside it, and autograd's check sees writes through either.
        """
        signature, graphs = self.signature, self.graphs
        found: list[tuple[str, int]] = []
        inputs = {
            signature.index_map.slots[signature.graph_slots[p]].outer
            for p in graphs.saved_inputs
            if p is not None and p < len(signature.graph_slots)
        }
        for i in sorted(inputs):
            if isinstance(signature.inputs[i].meta, SubclassCreationMeta):
                found.append(("input", i))
        outputs = {p for p in graphs.saved_outputs if p is not None}
        for i, value in enumerate(self.made):
            positions = {leaf.position for leaf in value.leaves if isinstance(leaf, Computed)}
            if self.through_autograd[i] and isinstance(value.meta, SubclassCreationMeta) and positions & outputs:
                found.append(("output", i))
        return found

    # -- backward --------------------------------------------------------------------------------------------------

    def write_backward(self) -> Callable[..., Any]:
        """`backward(ctx, *tangents)`."""
        assert self.backward is not None
        metas = self.signature.tangents
        names = [f"tangent_{i}" for i in range(len(metas))]
        params = ", ".join(["ctx", *names])
        source = Source("backward", params, "Unwraps tangents, runs the backward graph, wraps gradients.")
        sizes = [source.fresh(f"size_{i}") for i in range(self.graphs.num_saved_numbers)]
        self.number_names = {key: source.fresh("number") for key in self.signature.numbers}
        if sizes or self.number_names:
            source.line(f"({''.join(n + ', ' for n in (*sizes, *self.number_names.values()))}) = ctx.sizes")
        if self.others is not None:
            self._hand_over(source, self.others, names)
        saved = [source.fresh(f"saved_{i}") for i in range(len(self.graphs.saved_inputs))]
        ignored = [source.fresh("checked") for _ in self.checked_wrappers]
        if saved or ignored:
            source.line(f"({''.join(n + ', ' for n in saved + ignored)}) = ctx.saved_tensors")
        leaves = sizes + saved
        for i, (name, (meta, specs)) in enumerate(zip(names, metas, strict=True)):
            leaves += self._tangent(source, name, meta, specs, self._path_of_tangent(i))
        live = [source.fresh("live") for _ in self.signature.backward_writes]
        if live:
            source.line(f"({', '.join(live)},) = ctx.live")
        source.line(f"inputs = [{', '.join(leaves + live)}]")
        if saved:
            source.line(f"del {', '.join(saved)}")
        leaves_of = [x for g in self.signature.gradients if g is not None for x in g.leaves]
        outputs = [source.fresh(f"grad_{i}") for i in range(sum(isinstance(x, Computed) for x in leaves_of))]
        written = [source.fresh("new_value") for _ in live]
        self._unpack(source, outputs + written, self.backward, "backward")
        for target, value in zip(live, written, strict=True):
            source.line(f"{target}.copy_({value})")
        results = ["None"] * self.without_gradient
        for i in self.wanted:
            gradient = self.signature.gradients[i]
            results.append("None" if gradient is None else self._wrap(source, gradient, outputs))
        source.line(f"return ({', '.join(results)},)")
        return source.build()

    def _hand_over(self, source: Source, others: OtherTangents, names: list[str]) -> None:
        """Appends what hands gradients of another kind over to `others`."""
        wrong = [self._wrong(source, n, *kind) for n, kind in zip(names, self.signature.tangents, strict=True)]
        if len(names) > 1:  # autograd does not go backward for nothing at all
            wrong += [f"{names[i]} is None" for i in others.needed]
        where = [self._path_of_tangent(i) for i in range(len(names))]
        take = source.const(functools.partial(others.take, self._write_other, where), "other_kind")
        with source.block(f"if {' or '.join(wrong)}:"):
            source.line(f"run, {', '.join(names)} = {take}({', '.join(names)})")
            source.line(f"if run is not None: return run(ctx, {', '.join(names)})")

    def _wrong(self, source: Source, name: str, meta: ValueMeta, specs: Sequence[Any]) -> str:
        """The condition that a gradient is not of the kind that was traced."""
        if not isinstance(meta, SubclassCreationMeta):
            return f"hasattr({name}, '__tensor_flatten__')"
        if meta.context is None and all(isinstance(x, PlainTensorMeta) for x in meta.attrs.values()):
            cls, dense = source.const(meta.cls, meta.cls.__name__), source.const(torch.Tensor, "Tensor")
            wrong = [f"type({name}) is not {cls}"]
            for a, spec in zip(meta.attrs, specs, strict=False):  # sizes and strides of the wrapper may follow
                size, dtype = self._numbers(spec.size), source.const(spec.dtype, "dtype")
                wrong.append(f"type({name}.{a}) is not {dense}")
                wrong.append(f"{name}.{a}.size() != {size} or {name}.{a}.dtype is not {dtype}")
            return f"{name} is not None and ({' or '.join(wrong)})"
        fits = source.const(tangents.fits, "fits")
        kind = f"{source.const(meta, 'meta')}, {source.const(specs, 'specs')}"
        return f"{name} is not None and not {fits}({name}, {kind})"

    def _write_other(self, signature: JointSignature, graphs: Graphs, backward: BoxedFunction) -> Callable[..., Any]:
        """The backward for other tangents, after the same forward."""
        return _EntryWriter(signature, graphs, self.forward, backward, None, self.twice).write_backward()

    def _tangent(self, source: Source, name: str, meta: ValueMeta, specs: Sequence[Any], where: str) -> list[str]:
        """Appends what takes one tangent apart, zeros where it is undefined; returns its leaves."""
        specs = [spec for spec in specs if not is_symbolic(spec)]  # its sizes are those of the result
        leaves = [source.fresh(f"{name}_{i}") for i in range(len(specs))]
        constants = [source.const(s, "spec") for s in specs]
        with source.block(f"if {name} is None:"):
            zeros = source.const(tangents.zeros, "zeros")
            for leaf, spec, constant in zip(leaves, specs, constants, strict=True):
                if isinstance(spec, Spec):
                    geometry = f"{self._numbers(spec.size)}, {self._numbers(spec.stride)}"
                    source.line(f"{leaf} = {zeros}({constant}, {geometry})")
                else:
                    source.line(f"{leaf} = {constant}")
        with source.block("else:"):
            parts = emit_unwrap(source, meta, name, where=where, append_symints=False, check=False)
            restride = source.const(tangents.restrided, "restrided")
            for leaf, part, spec in zip(leaves, parts, specs, strict=True):
                source.line(f"{leaf} = {part}")
                if isinstance(spec, Spec):
                    stride = self._numbers(spec.stride)
                    source.line(f"if {leaf}.stride() != {stride}: {leaf} = {restride}({leaf}, {stride})")
        return [leaf for leaf, spec in zip(leaves, specs, strict=True) if isinstance(spec, Spec)]

    def _path_of_tangent(self, i: int) -> str:
        rewritten = [p for p, value in self.signature.rewritten if value.requires_grad]
        if i < len(rewritten):
            return f"the new value of {self.signature.inputs[rewritten[i]].path}"
        differentiable = [k for k, o in enumerate(self.signature.outputs) if isinstance(o, Value) and o.requires_grad]
        if i - len(rewritten) < len(differentiable):
            return f"output {differentiable[i - len(rewritten)]}"
        return "the tensor that several outputs are views of"

    # -- call ------------------------------------------------------------------------------------------------------

    def write_call(self, runner: Callable[..., Any]) -> Callable[[list[Any], list[Any]], list[Any]]:
        """`call(values, leaves)`: runs forward, writes back, and puts the results together."""
        signature = self.signature
        doc = "Runs the graph, writes back what it changed, and returns the results."
        source = Source("call", "values, leaves", doc)
        values = [source.fresh(path) for path in (*(given.path for given in signature.inputs), *signature.views)]
        if values:
            source.line(f"({''.join(v + ', ' for v in values)}) = values")
        source.line("extra = []")
        made = [source.fresh(f"made_{i}") for i in range(len(self.made))]
        run = source.const(runner, "run")
        changes: dict[int, list[counters.Change]] = {}
        for position, *change in signature.reshaped:
            changes.setdefault(position, []).append(tuple(change))
        of_views = {p: changes.pop(p) for p in list(changes) if p >= len(signature.inputs)}
        for position in changes:
            for slot in set(signature.index_map.flat_of(position)).intersection(signature.graph_slots):
                source.line(f"leaves[{slot}] = leaves[{slot}].detach()  # what is saved of it keeps its look")
        silent, counted = self._counters(values)
        written = ""
        if self.counts:
            find = source.const(counters.counters, "counters")
            written = f", {find}([{', '.join(silent)}], [{', '.join(counted)}])"
        if signature.needs_backward:
            through = [n for n, t in zip(made, self.through_autograd, strict=True) if t]
            arguments = "".join(f", {values[i]}" for i in self.wanted)
            beside = ", ".join(values[i] for i in self._checked_beside())
            kept = "" if self.twice is None else f", {source.const(self.twice.keep, 'keep')}(values)"
            source.line(f"({', '.join(through)},) = {run}(leaves, extra{written}, [{beside}]{kept}{arguments})")
        else:
            if self.wanted and signature.grad_modes[0]:  # a result without gradients, of leaves that have some
                with source.block(f"with {source.const(torch.no_grad, 'no_grad')}():"):
                    source.line(f"{run}(leaves, extra{written})")
            else:
                source.line(f"{run}(leaves, extra{written})")
        extra = [n for n, t in zip(made, self.through_autograd, strict=True) if not t]
        numbers = {position: source.fresh("number") for position in self.positions}
        self.number_names = {key: numbers[position] for key, position in signature.numbers.items()}
        extra += numbers.values()
        if extra:
            source.line(f"({', '.join(extra)},) = extra")
        for position, of_input in changes.items():
            source.line(f"{source.const(functools.partial(counters.reshape, of_input), 'reshape')}({values[position]})")
        for (position, _), name in zip(signature.rewritten, made, strict=False):
            source.line(f"{values[position]}.copy_({name})")
        for position, of_input in of_views.items():  # autograd makes a view again, as it is, after such a write
            source.line(f"{source.const(functools.partial(counters.reshape, of_input), 'reshape')}({values[position]})")
        results = self._results(source, values, made[len(signature.rewritten) :], numbers)
        source.line(f"return [{', '.join(results)}]")
        return source.build()

    def _results(self, source: Source, values: list[str], made: list[str], numbers: dict[int, str]) -> list[str]:
        own = [i for i, o in enumerate(self.signature.outputs) if isinstance(o, Value)]
        name_of = dict(zip(own, made, strict=False))
        hidden = made[len(own) :]
        for name, value in zip(made, self.made[len(self.signature.rewritten) :], strict=True):
            if value.starts_grad:
                source.line(f"{name} = {name}.detach().requires_grad_()")
        results: list[str] = []
        for i, output in enumerate(self.signature.outputs):
            if isinstance(output, Value):
                results.append(name_of[i])
            elif isinstance(output, SameAsInput):
                results.append(values[output.value])
            elif isinstance(output, SameAsOutput):
                results.append(results[output.output])
            elif isinstance(output, ViewOfInput):
                grad = output.requires_grad or not self.signature.inputs[output.value].requires_grad
                results.append(self._view(source, output, values[output.value], grad))
            elif isinstance(output, ViewOfBase):
                base = hidden[output.hidden] if output.output is None else name_of[output.output]
                results.append(self._view(source, output, base, output.requires_grad))
            elif isinstance(output, ComputedNumbers):
                parts = [numbers[p.position] if isinstance(p, Computed) else str(p) for p in output.parts]
                results.append(f"{source.const(output.make, 'number')}({', '.join(parts)})")
            else:
                assert isinstance(output, Constant)
                results.append(source.const(output.value, "constant"))
        return results

    def _view(self, source: Source, view: ViewOfInput | ViewOfBase, base: str, grad: bool) -> str:
        """Appends a view of the local `base`, made as the program made it; returns the name of its local."""
        name = source.fresh("view")
        arguments = "".join(f", {self._number(n)}" for n in view.numbers)
        call = f"{name} = {source.const(view.replay, 'view_of')}({base}{arguments})"
        if grad:
            source.line(call)
        else:
            with source.block(f"with {source.const(torch.no_grad, 'no_grad')}():"):
                source.line(call)
        return name

    def _counters(self, values: list[str]) -> tuple[list[str], list[str]]:
        """Leaves that the graph writes without a version of their own moving, and tensors whose version moves."""
        signature = self.signature
        leaves = (slot for slot in signature.index_map.slots if slot.kind == "leaf")
        slot_of = {(slot.outer, "".join(slot.path)): slot.flat for slot in leaves}
        moved = {slot_of.get(where) for where in signature.counted}
        silent = [f"leaves[{slot}]" for slot in signature.written_leaves if slot not in moved]
        counted = [
            f"leaves[{slot_of[outer, path]}]" if path and (outer, path) in slot_of else values[outer] + path
            for outer, path in signature.counted
        ]
        turned = [values[position] for position, *_ in signature.reshaped]
        return silent, [name for name in counted if name not in turned] + turned


def _in_grad_modes(call: Callable[..., list[Any]], enabled: bool, after: bool, *args: list[Any]) -> list[Any]:
    """A call of a program that switches autograd on inside, or does not leave it as it was."""
    with torch.set_grad_enabled(enabled):
        results = call(*args)
    torch.set_grad_enabled(after)
    return results


def _alias(leaf: torch.Tensor, size: tuple[int, ...], stride: tuple[int, ...], offset: int) -> torch.Tensor:
    """A tensor that shares the storage of `leaf`."""
    with torch.no_grad():
        alias = leaf.detach().as_strided(size, stride, leaf.storage_offset() + offset)
    return alias.detach()


def _unmet_demand(demand: str, line: str, *numbers: int) -> NoReturn:
    values = ", ".join(f"n{i} = {n}" for i, n in enumerate(numbers))
    raise UnmetDemandError(_UNMET_DEMAND.format(demand=demand, values=values, line=line))


def _wrong_count(outputs: Any, expected: int, which: str) -> NoReturn:
    got = str(len(outputs)) if hasattr(outputs, "__len__") else f"a {type(outputs).__name__} instead of a sequence of"
    raise CompilerResultError(_WRONG_COUNT.format(which=which, got=got, expected=expected))
