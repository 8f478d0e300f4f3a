"""A backward of its own for gradients of another kind than expected. See Note [Gradients of another kind].

Note [Undefined gradients]
~~~~~~~~~~~~~~~~~~~~~~~~~~
A result that backward does not go through has no gradient, and zeros of its class stand for it. Zeros can change the
class of what they are added to: of `dense * wrapper`, the gradient of `dense` is a wrapper, and what a wrapper and a
dense tensor add up to says the class. So where an input, its gradient and the gradients that this comes from are not
all of one class, backward is traced once more for those that did arrive. Where that gives the same classes, zeros do.
So it is traced where zeros would run a hook or the backward of an `autograd.Function`, which may give anything for
them.

Note [Compiled when the guard is made]
~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
A compiler may assume more of symbolic sizes, which the guard of the call would have to check: inductor does when it
finds a graph in its cache that was compiled for a program with other guards. The guard is made by now, and the call
has passed. So where a compiler insists, the operators of such a backward run one by one, which assumes nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from subclass_aot.base._stack import first_line, pass_on_interruption
from subclass_aot.engine.compilers import BACKENDS, BoxedFunction, compiled, example_inputs
from subclass_aot.engine.descriptors import SavedForBackward, descriptor_of
from subclass_aot.engine.outcome import Present
from subclass_aot.engine.passes import backward_from
from subclass_aot.engine.runtime.graphs import Graphs
from subclass_aot.engine.runtime.tangent_coercion import converted, fits
from subclass_aot.engine.signature import JointSignature
from subclass_aot.engine.trace import JointTrace, one_at_a_time
from subclass_aot.errors import BackwardOutcomeError, TangentError
from subclass_aot.kit.flatten import ContainerMeta, InnerMeta, PlainTensorMeta, SubclassCreationMeta, ValueMeta
from subclass_aot.meta import Spec
from subclass_aot.meta.symbols import MoreAssumed, SizesMustBeKnown

Backward = Callable[..., tuple[Any, ...]]
"""`backward(ctx, *tangents)`."""

Write = Callable[[JointSignature, Graphs, BoxedFunction], Backward]
"""Generates the backward that runs a compiled graph."""

WithTangents = Callable[..., JointTrace]
"""Tangents, by their positions, to a trace that goes backward with them. See `JointTrace.with_tangents`."""

_LIMIT = 4
"""Kinds of gradients that are kept for one signature; the one met longest ago goes first."""

_WRONG_TANGENT = """The gradient of {where} is not of the kind the backward graph was traced for.
  Expected: {expected}
  Got:      {got}
  No class converts the one to the other, and there is no backward for such a gradient: {why}
  Instead:  pass a gradient of the expected class{hook}"""

_UNDEFINED = """{where} has no gradient, and there is no backward without it: {why}
  Zeros in its place would change the classes of the gradients of inputs, or the entries of sparse ones.
  Instead:  let backward begin at all results that need a gradient, as in torch.autograd.backward(results, gradients)
            with zeros that you make"""

_OBJECTS = """Backward changes objects, and they hold something else by now than when its forward was over.
What hooks put there may depend on that, and for what is there now they could not be traced: {why}
  Instead: run backward once, and before the function is called again."""

_HOOK = """, or give {cls} the hook

      def __coerce_same_metadata_as_tangent__(self, context, expected_type=None):
          return ...  # self as a {expected_cls} with this context, or None if that is impossible"""

_FROM_TANGENT = """, or give {expected_cls} the hook

      @classmethod
      def from_tangent(cls, tangent, context):
          return ...  # a {expected_cls} with this context, or None if that is impossible"""


@dataclass(frozen=True, slots=True, eq=False)
class _Kind:
    """Gradients of one kind, one for each result or None where undefined, and the backward for those that are there.

    Attributes:
        described: Their kinds.
        backward: The backward.
        present: What objects hold that are not as forward left them.
        reads_objects: Whether it has tensors of these objects in it.
    """

    described: tuple[tuple[ValueMeta, tuple[Any, ...]] | None, ...]
    backward: Backward | None
    present: list[tuple[object, ...] | None] | None = None
    reads_objects: bool = False

    @property
    def chosen(self) -> Backward | None:
        """What to run; None if it has to be the backward that the signature was traced for."""
        return None if self.backward is None else self._run

    def _run(self, ctx: Any, *tangents: torch.Tensor | None) -> tuple[Any, ...]:
        assert self.backward is not None
        return self.backward(ctx, *[t for t in tangents if t is not None])


class UnexpectedTangents:
    """The backwards of one signature for gradients of other kinds than it was traced for.

    Args:
        signature: The signature.
        with_tangents: Goes backward once more, for other tangents. See `JointTrace.with_tangents`.
        graphs: Its graphs. What forward saves is what these backwards read, too.
        compiler: Compiles a backward graph.
    """

    def __init__(
        self,
        signature: JointSignature,
        with_tangents: WithTangents,
        graphs: Graphs,
        compiler: Callable[[fx.GraphModule], BoxedFunction],
    ) -> None:
        self._with_tangents = with_tangents
        self._signature = signature
        self._graphs = graphs
        inputs = graphs.backward.graph.find_nodes(op="placeholder") if graphs.backward is not None else []
        self._saved = [node for node in inputs if isinstance(descriptor_of(node), SavedForBackward)]
        self._compile = compiler
        self._kinds: list[_Kind] = []
        self._structured = _with_structure(self._signature)
        self._running_code = {i for i, tangent in enumerate(self._signature.tangents) if tangent.runs_code}
        self._refused = _not_replaced_by_zeros(self._signature) | self._structured
        self.needed = self._refused | self._running_code
        """The tangents for which zeros may not do. See Note [Undefined gradients]."""

    @staticmethod
    def of_part(signature: JointSignature, number: int, with_tangents: WithTangents) -> WithTangents:
        """Returns what goes backward once more from the results of one of the parts of backward.

        Args:
            signature: The signature, of all parts.
            number: Which part.
            with_tangents: Goes backward once more from any results.
        """
        ends = signature.parts[number].ends
        position = [i for i, tangent in enumerate(signature.tangents) if tangent.output in ends]

        def of_part(tangents: Mapping[int, torch.Tensor | None], *present: Sequence[Present]) -> JointTrace:
            trace = with_tangents({position[i]: tangent for i, tangent in tangents.items()}, *present)
            return dataclasses.replace(trace, signature=dataclasses.replace(trace.signature, ends=ends))

        return of_part

    def take(
        self, write: Write, where: Sequence[str], present: Sequence[Present] | None, *tangents: torch.Tensor | None
    ) -> tuple[Any, ...]:
        """Finds a backward for gradients of which one or more is of another kind, or is undefined and needed.

        Args:
            write: Generates a backward.
            where: What errors call each of the tangents.
            present: What objects hold that hooks change, where that is not what forward left there; else None.
            *tangents: The gradients; None for an undefined one.

        Returns:
            The backward to run, None for the one they were meant for; then the gradients it takes.

        Raises:
            TangentError: There is none.
        """
        expected = [(tangent.meta, tangent.specs) for tangent in self._signature.tangents]
        results = [t if t is None else converted(t, *kind) for t, kind in zip(tangents, expected, strict=True)]
        wrong = [t is not None and r is None for t, r in zip(tangents, results, strict=True)]
        missing = any(tangents[i] is None for i in self.needed) and any(t is not None for t in tangents)
        if not any(wrong) and not missing and present is None:
            return None, *results
        given = [t if not_converted else r for t, r, not_converted in zip(tangents, results, wrong, strict=True)]
        held = None if present is None else [each.described for each in present]
        for kind in self._kinds:
            if kind.present == held and all(map(_is_of, given, kind.described)):
                return kind.chosen, *given
        try:
            kind = self._make(given, any(wrong), write, present)
        except (Exception, SizesMustBeKnown) as error:  # of a class, or of the function's backward
            pass_on_interruption(error)
            if not any(wrong) and not missing:
                raise BackwardOutcomeError(_OBJECTS.format(why=first_line(error))) from error
            if not any(wrong) and present is None and all(tangents[i] is not None for i in self._refused):
                return None, *results  # as in a file, which has no trace: most code gives zeros for zeros
            if not any(wrong):
                first = next(i for i in sorted(self.needed) if tangents[i] is None)
                raise TangentError(_UNDEFINED.format(where=where[first], why=first_line(error))) from error
            first = wrong.index(True)
            raise TangentError(_message(where[first], tangents[first], expected[first][0], error)) from error
        kind = dataclasses.replace(kind, present=held)
        if _may_come_again(kind, present):
            self._kinds = [kind, *self._kinds][:_LIMIT]
        return kind.chosen, *given

    def _make(
        self, given: Sequence[Any], is_other: bool, write: Write, present: Sequence[Present] | None = None
    ) -> _Kind:
        """Traces, compiles and generates.

        Args:
            given: The gradients; None for an undefined one.
            is_other: Whether one is of another kind than expected, and not only undefined.
            write: Generates a backward.
            present: What objects hold that hooks change, where forward did not leave that there.
        """
        symbols = self._signature.assumptions.symbols
        closed = nullcontext if symbols is None else symbols.closed
        defined = {i: tangent for i, tangent in enumerate(given) if tangent is not None}
        with one_at_a_time:
            with closed():
                trace = self._with_tangents(defined, present) if present else self._with_tangents(defined)
            found = [(tangent.meta, tangent.specs) for tangent in trace.signature.tangents]
            kinds = dict(zip(defined, found, strict=True))
            described = tuple(map(kinds.get, range(len(given))))
            has_effects = self._signature.backward_outcome is not None
            exact = self._structured | self._running_code
            zeros_do = exact.isdisjoint(i for i, tangent in enumerate(given) if tangent is None)
            if not is_other and not has_effects and zeros_do and _same_classes(trace.signature, self._signature):
                return _Kind(described, None)
            backward = self._backward_of(trace)
            run = None
            if present is None:  # else it may be for this call alone
                with suppress(MoreAssumed), closed():  # see Note [Compiled when the guard is made]
                    run = self._compile(backward)
            if run is None:
                run = compiled(BACKENDS["eager"], backward, example_inputs(backward), is_backward=True)
        signature = trace.signature
        if signature.backward_outcome is not None:
            as_is = dataclasses.replace(signature.backward_outcome, expected=())
            signature = dataclasses.replace(signature, backward_outcome=as_is)
        graphs = dataclasses.replace(self._graphs, backward=backward)
        return _Kind(described, write(signature, graphs, run), reads_objects=trace.reads_objects)

    def _backward_of(self, trace: JointTrace) -> fx.GraphModule:
        if trace.signature.mutations.in_backward != self._signature.mutations.in_backward:
            raise NotImplementedError("it would write into other tensors")
        try:
            return backward_from(trace.graph_module, self._saved, num_fwd_outputs=trace.num_forward_outputs)
        except LookupError as missing:
            raise NotImplementedError(f"it would need {missing.args[0]}, which forward did not keep") from missing


def _not_replaced_by_zeros(signature: JointSignature) -> set[int]:
    """Returns the tangents for which zeros may not do: those that are added to something of another class."""
    found: set[int] = set()
    if signature.backward_outcome is not None and len(signature.tangents) > 1:  # hooks do not run for zeros
        return set(range(len(signature.tangents)))
    for given in signature.gradient_targets:
        if given.gradient is not None and len(given.reach) > 1:
            metas = [given.meta, given.gradient.meta, *(signature.tangents[i].meta for i in given.reach)]
            if any(_classes(meta) != _classes(given.meta) for meta in metas):
                found.update(given.reach)
    return found


def _with_structure(signature: JointSignature) -> set[int]:
    """Returns the tangents that are added to others, and have inner tensors of which zeros are not zero."""
    added = {i for x in signature.gradient_targets if x.gradient is not None and len(x.reach) > 1 for i in x.reach}
    return {i for i in added if not all(map(_is_number, signature.tangents[i].specs))}


def _is_number(spec: Any) -> bool:
    return not isinstance(spec, Spec) or spec.dtype.is_floating_point or spec.dtype.is_complex


def _may_come_again(kind: _Kind, present: Sequence[Present] | None) -> bool:
    """Returns whether a backward that was made for what objects hold serves other calls: it has no tensors of
    theirs in it.
    """
    if present is None:
        return True
    return kind.present is not None and None not in kind.present and not kind.reads_objects


def _same_classes(of_some: JointSignature, of_all: JointSignature) -> bool:
    """Returns whether those inputs that get a gradient from some tangents get one of the same class as from all.

    A sparse gradient is another with zeros added: they are entries, and optimizers count these.
    """

    def same(x: ValueMeta, y: ValueMeta) -> bool:
        is_sparse = isinstance(x, SubclassCreationMeta) and getattr(x.cls, "zeros_are_entries", False)
        return not is_sparse and _classes(x) == _classes(y)

    pairs = ((x.gradient, y.gradient) for x, y in zip(of_some.gradient_targets, of_all.gradient_targets, strict=True))
    return all(x is None or y is not None and same(x.meta, y.meta) for x, y in pairs)


def _classes(meta: InnerMeta) -> Any:
    """Returns the classes of a value and of all that is inside."""
    if isinstance(meta, SubclassCreationMeta):
        return meta.cls, {name: _classes(inner) for name, inner in meta.attrs.items()}
    if isinstance(meta, ContainerMeta):
        return meta.cls, {key: _classes(inner) for key, inner in meta.items.items()}
    return torch.Tensor if isinstance(meta, PlainTensorMeta) else type(meta)


def _is_of(tangent: object, described: tuple[ValueMeta, tuple[Any, ...]] | None) -> bool:
    return tangent is None if described is None else tangent is not None and fits(tangent, *described)


def _message(where: str, tangent: object, meta: ValueMeta, error: BaseException) -> str:
    expected, hook = _describe(meta), ""
    names = {"cls": type(tangent).__name__, "expected_cls": expected.split()[0]}
    if hasattr(tangent, "__tensor_flatten__"):
        hook = _HOOK.format(**names)
    elif isinstance(meta, SubclassCreationMeta):  # a dense tensor has no class of the user's that could convert it
        hook = _FROM_TANGENT.format(**names)
    got = _describe_tensor(tangent)
    return _WRONG_TANGENT.format(where=where, expected=expected, got=got, why=first_line(error), hook=hook)


def _describe(meta: ValueMeta) -> str:
    if isinstance(meta, SubclassCreationMeta):
        return f"{meta.cls.__name__} with inner tensors {list(meta.attrs)} and context {meta.context!r}"
    return "Tensor (dense)"


def _describe_tensor(tensor: object) -> str:
    if hasattr(tensor, "__tensor_flatten__"):
        names, context = tensor.__tensor_flatten__()
        return f"{type(tensor).__name__} with inner tensors {list(names)} and context {context!r}"
    return f"{type(tensor).__name__} (dense)"
