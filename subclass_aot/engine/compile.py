"""The front door: ahead-of-time compilation of functions and modules on wrapper tensors."""

from __future__ import annotations

import copy
import dataclasses
import functools
import itertools
import types
import weakref
from collections.abc import Callable, Collection, Hashable, MutableSet, Sequence
from contextlib import suppress
from os import PathLike
from typing import Any, Generic, Literal, ParamSpec, Protocol, TypeVar

import optree
import torch

from subclass_aot.base import _torch
from subclass_aot.base._stack import first_line, warn
from subclass_aot.base.logs import log_code
from subclass_aot.base.texts import Text
from subclass_aot.base.used_arguments import Given, UsedArguments
from subclass_aot.engine.call import Arguments, flatten
from subclass_aot.engine.compilers import BACKENDS, Backend, Compiler
from subclass_aot.engine.facts import Modes, difference, facts_of, global_state
from subclass_aot.engine.failures import Failures
from subclass_aot.engine.guards import (
    MISS,
    ChangingNumbers,
    StaticInputCache,
    refusing_line,
)
from subclass_aot.engine.methods import attribute_of, attributes_of_module, bound, compiled_inside, name_of, repr_of
from subclass_aot.engine.options import Decompositions, Options, compile_graphs
from subclass_aot.engine.runtime import (
    OtherValue,
    PartitionFn,
    ValueHistory,
)
from subclass_aot.engine.signature import JointSignature
from subclass_aot.engine.sizes import DynamicPolicy, DynamicSizes
from subclass_aot.engine.specializations import Specialization, Specializations, explain, kind_of, write_file
from subclass_aot.engine.stages import Stages, noted_stages, text_of
from subclass_aot.engine.tables import Gradients
from subclass_aot.engine.trace import (
    Attempt,
    RunsItself,
    handlers_run,
    is_of_function,
    is_tracing,
    one_at_a_time,
    specialize,
    trace_arguments,
)
from subclass_aot.errors import LastingChangeError, OnlyInEagerModeError, TraceError

_P = ParamSpec("_P")
_R = TypeVar("_R")

_TRANSFORMED = """{name} was compiled, and is called inside torch.func.grad, vmap, jvp, ..., or forward-mode autograd.
  There the function itself runs, as in eager mode.
  For speed: compile the transformed function, as in aot_compile(torch.func.grad(fn)).
  To say that it is meant: transform the function itself, as in torch.func.grad(compiled.fn)."""

_ONLY_IN_EAGER_MODE = """{name} does what only eager mode can do: so the function itself ran, as it will at such calls.
  {error}"""

_LAZY = """{name} is given {path}, which is conjugated or negated lazily, as by x.conj(): so the function itself ran, as
  in eager mode. A graph computes with data, and the bit is none.
  Instead: pass {path}.resolve_conj().resolve_neg()."""

_NO_ANSWER = "; {sizes} {are}, since with symbols sympy finds no end"

_NOTED = """{name} is given a tensor of a class that notes on it what is called with it, as a class that draws a graph
  does: so the function itself ran, as in eager mode, since each call finds something else there."""

_AGAIN_AND_AGAIN = """{name} was compiled for {count} calls that differ in one value. cache_limit={limit} is reached, so
  it is compiled again at each call with another one.
  {reason}
  Instead: pass it as a tensor, leave it out where the function does not read it, or raise cache_limit, if the values
  are few."""

_UNLIKE_ITSELF = """What was compiled for this call does not fit it: something is different each time it is read.
  The check:  {line}
  It may be the context of a tensor subclass that is unequal to itself, a property that makes a new object each time, or
  another thread that changes what the function reads.
  Instead: make it equal (`__eq__`, or `__metadata_guard__` of the class), or keep it in an attribute."""


def aot_compile(  # noqa: PLR0913  # its options
    fn: Callable[_P, _R] | torch.export.ExportedProgram,
    *,
    fw_compiler: str | Compiler = "eager",
    bw_compiler: str | Compiler | None = None,
    partition_fn: PartitionFn | None = None,
    decompositions: Decompositions | None = None,
    dynamic: bool | None = None,
    cache_limit: int = 64,
    double_backward: bool = False,
    lazy_backward: bool = True,
    values: Literal["check", "refuse"] = "check",
    values_limit: int = 8,
    inference_compiler: str | Compiler | None = None,
) -> CompiledFunction[_P, _R]:
    """Compiles a function or module ahead of time, wrapper tensors included.

    The first call with a new signature traces `fn` once on tensors without data, forward and backward, and hands
    graphs of dense tensors to the compilers. Later calls run one generated function. The signature is made of the
    types, contexts, sizes, strides, dtypes and devices of all tensors, `requires_grad`, which tensors are the same or
    share storage, Python values, the modes of torch (grad, inference, autocast, deterministic, default dtype and
    device), and `training` of every module.

    Args:
        fn: A function or an `nn.Module`; an exported program stands for its `module()`. As a decorator of a method it
            binds as the method does. Arguments may be any structure of tensors, wrappers, modules and Python values;
            modules bring their parameters and buffers.
        fw_compiler: `"eager"`, `"inductor"`, or a callable `(graph_module, example_inputs)` that returns a function of
            the inputs, which returns a sequence: any compiler written for AOTAutograd. Example inputs are fake tensors.
        bw_compiler: The same for the backward graph; `fw_compiler` if left out.
        partition_fn: Splits the joint graph: `(joint, joint_inputs, *, num_fwd_outputs)` to two graphs, as
            `functorch.compile.min_cut_rematerialization_partition`. The default saves what backward reads.
        decompositions: Operators to replace while tracing, as in AOTAutograd: operator to function, or a function that
            gives such a table.
        dynamic: Which sizes are symbolic, so that one compilation serves many. `None`: those seen to differ between
            calls, and those that `mark_dynamic` names. `True`: all but those of parameters and buffers, from the first
            call on; results whose shape depends on data are allowed, too. `False`: none.
        cache_limit: How many signatures are kept; the one used longest ago goes first.
        double_backward: Whether gradients can be differentiated in turn, as often as one likes. With
            `create_graph=True`, backward then runs a compiled function that computes forward again. Refused, when the
            function is traced, for what would not come out the same again.
        lazy_backward: Whether the backward graph is compiled when a gradient is first computed, and not at the call.
            Errors of the compiler then come at `.backward()`. With symbolic sizes it is compiled at the call.
        values: What becomes of a program that reads values, as in `if x.sum() > 0`. `"check"`: it is compiled for
            the values of the call, and later calls check theirs before anything else happens. Numbers that are seen to
            differ are symbols from then on. `"refuse"`: such a program is an error.
        values_limit: For how many sets of values one signature is compiled at the most; for others the function
            itself runs, and a warning says so.
        inference_compiler: The same as `fw_compiler` for graphs of calls without a backward; `fw_compiler` if left out.

    Returns:
        A callable that behaves as `fn`, with `explain()`, `source` and `recompiles`.

    >>> import torch
    >>> step = aot_compile(lambda x: (x * 2).sum())
    >>> x = torch.ones(3, requires_grad=True)
    >>> step(x).backward()
    >>> x.grad
    tensor([2., 2., 2.])
    """
    options = Options(
        fw_compiler, bw_compiler, partition_fn, decompositions, dynamic, cache_limit, double_backward, lazy_backward,
        values, values_limit, inference_compiler,
    )  # fmt: skip
    if isinstance(fn, torch.export.ExportedProgram):
        return CompiledFunction(fn.module(), options)
    inside: Any = compiled_inside(fn, lambda function: CompiledFunction(function, options))
    return CompiledFunction(fn, options) if inside is None else inside


_FIRST = "first call"
_STAY = "; its sizes stay numbers, since "
_NOT_SO = " before, not so now"
_ALIKE = 8
"""How many compilations in a row have one reason before a warning says it."""
_COMPARED = 4
"""Of how many specializations, those used last, the numbers are compared with those of a new call."""

_Call = tuple[tuple[Any, ...], dict[str, Any], list[Any] | None, optree.PyTreeSpec | None, Modes]
"""What the function reads of the arguments of a call, the same flattened, where that is wanted, and modes of torch."""


class Held(Protocol):
    """The contents of a file for one compiled function: see `restore.py`."""

    missed: list[str]

    def fitting(
        self, call: tuple[Any, ...], together: MutableSet[StaticInputCache], known: Collection[Specialization]
    ) -> Specialization | None:
        """Returns what the file has for a call; None if it has nothing, and there is a function to trace."""


_Tried = dict[Specialization, OtherValue]


class CompiledFunction(Generic[_P, _R]):
    """A compiled function; made by `aot_compile`.

    Attributes:
        fn: The function or module it was made of.
        recompiles: Why each signature after the first was compiled, in order.
    """

    # More than ten attributes: each is something that a later call must know of the calls before it.
    def __init__(self, fn: Callable[_P, _R], options: Options) -> None:
        self.fn = fn
        self.recompiles: list[str] = []
        self._options = options
        self._history = DynamicPolicy(options.dynamic)
        self._values = ValueHistory(options.dynamic, options.values == "check", options.values_limit)
        self._specializations = Specializations(options.cache_limit)
        self._kept: weakref.WeakSet[StaticInputCache] = weakref.WeakSet()
        self._failures = Failures()
        self._was_transformed = False
        self._has_failed = False
        self._has_told_of_value = False
        self._changing = ChangingNumbers()
        self._used: UsedArguments | None = None  # what the function reads of its arguments, if not all of them
        self._is_used_known = False
        self._forward: CompiledFunction[..., Any] | None = None  # of a module, for methods that call it
        self._restored: Held | None = None  # what a file has, if it comes from one
        self._with_grad = Gradients.NONE  # of which inputs the function was seen to read or change the `.grad`
        functools.update_wrapper(self, fn, updated=())
        if isinstance(fn, torch.nn.Module):
            vars(self).update(attributes_of_module(fn))

    def __repr__(self) -> str:
        return repr_of(self, self._options.compiler, len(self._specializations))

    def __getattr__(self, name: str) -> Any:
        """Returns what the module has that it was made of: `parameters`, `config`, `generate`, ..."""
        return attribute_of(self, name, self._compiled_forward)

    def _compiled_forward(self) -> Any:
        if self._forward is None:
            module: Any = self.fn
            self._forward = type(self)(module.forward, self._options)
        return self._forward

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        """Returns a method where a class holds it, if it was made of a function."""
        return bound(self, instance, owner)

    @_torch.dynamo.below_dynamo  # where it does not inline the function: see `_call_uncompiled`
    def __call__(self, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        latest, modes = self._specializations.latest, global_state()
        leaves: list[Any] | None = None
        treespec: optree.PyTreeSpec | None = None
        tried: _Tried = {}
        positional: Any = args
        keywords: Any = kwargs
        if latest is not None:
            entry = latest.entry
            if not entry.is_flat:
                if self._used is not None:
                    positional, keywords = self._used.parts_of((args, kwargs))
                if not entry.takes_arguments:
                    leaves, treespec = flatten((positional, keywords))
            try:
                result: _R = entry.call(positional, keywords, leaves, treespec, modes)
            except OtherValue as other:
                tried = {latest: other.with_traceback(None)}  # which would hold this frame
            else:
                if result is not MISS:
                    return result
        return self._call_another((positional, keywords, leaves, treespec, modes), (args, kwargs), tried)

    def _call_another(self, call: _Call, given: Given, tried: _Tried) -> _R:
        """Runs a call that the signature used last does not fit, or fits but for values that it reads.

        Args:
            call: The call.
            given: Its arguments.
            tried: What fits but for values that it reads, and what it found.
        """
        args, kwargs, leaves, treespec, modes = call
        if (leaves is None or not self._is_used_known) and not all(
            map(isinstance, (*args, *kwargs.values()), itertools.repeat(torch.Tensor))
        ):
            (args, kwargs), leaves, treespec = self._read_of(given), None, None
        if not tried:
            key = self._specializations.lookup_key([*args, *kwargs.values()] if leaves is None else leaves, modes)
            for specialization in self._specializations.others(key):
                entry = specialization.entry
                if leaves is None and not entry.takes_arguments:
                    leaves, treespec = flatten((args, kwargs))
                try:
                    result: _R = entry.call(args, kwargs, leaves, treespec, modes)
                except OtherValue as other:
                    tried = {specialization: other.with_traceback(None)}
                    break
                if result is not MISS:
                    self._specializations.use(specialization, key)
                    return result
        if not tried and (is_tracing() or torch.compiler.is_exporting()):  # what happens is another's business
            return self.fn(*given[0], **given[1])
        if not tried and _torch.dispatch.inside_transform():
            return self._in_transform(*given[0], **given[1])
        if leaves is None:
            leaves, treespec = flatten((args, kwargs))
        if not tried and (_torch.switches.mode_of_fake_tensors() is not None or _are_of_another_tracer(leaves)):
            return self.fn(*given[0], **given[1])
        return self._compile_and_run((args, kwargs, leaves, treespec, modes), given, tried)

    def _read_of(self, given: Given) -> Given:
        """Returns what the function reads of arguments that are more than tensors."""
        if not self._is_used_known:
            used = UsedArguments.of(self.fn)
            if used is None:
                self._is_used_known = True
                return given
            read = used.parts_of(given)
            of_all = [*zip(read[0], given[0], strict=False), *((x, given[1][name]) for name, x in read[1].items())]
            if list(map(len, read)) == list(map(len, given)) and all(x is y for x, y in of_all):
                return given  # it costs time at each call, so it waits until it makes a difference
            self._used, self._is_used_known = used, True
        return given if self._used is None else self._used.parts_of(given)

    def _flattened_call(self, given: Given, modes: Modes) -> _Call:
        """Returns a call by its arguments."""
        args, kwargs = self._read_of(given)
        return args, kwargs, *flatten((args, kwargs)), modes

    def _compile_and_run(self, call: _Call, given: Given, tried: _Tried) -> _R:
        """Runs a call that nothing fits which is compiled by now."""
        made: set[Specialization] = set()
        while True:
            known, why = {*self._specializations}, None
            try:
                specialization = self._compiled_for(call, given, tried, made)
            except RunsItself as reason:
                reason.forget()
                why = str(reason) if self._is_warned_of(reason) else ""
            if why is not None:  # and no more of `reason`, which would be the context of what the function raises
                return self._as_in_eager_mode(why, *given[0], **given[1])
            made |= {specialization} - known
            try:
                result = specialization.entry.call(*call)
            except OtherValue as other:
                tried[specialization] = other.with_traceback(None)
            else:
                if result is not MISS:  # unless another thread, or a handler of signals, has changed something since
                    found: _R = result
                    if len(known) >= self._options.cache_limit and self._options.dynamic is not False:
                        self._warn_of_one_value()
                    return found
            call = self._flattened_call(given, call[4])

    def _warn_of_one_value(self) -> None:
        """Says once that the function is compiled at each call, if one value is the reason for the latest of them."""
        latest = [reason.partition(_STAY)[0] for reason in self.recompiles[-_ALIKE:]]
        places = {reason.partition(": ")[0] for reason in latest}
        is_value = not any("; " in reason or ": Tensor " in reason for reason in latest)
        if len(latest) < _ALIKE or len(places) > 1 or not is_value or self._has_told_of_value:
            return
        self._has_told_of_value = True
        name = getattr(self.fn, "__name__", type(self.fn).__name__)
        count, limit = len(self.recompiles) + 1, self._options.cache_limit
        warn(_AGAIN_AND_AGAIN.format(name=name, count=count, limit=limit, reason=latest[-1]))

    def _as_in_eager_mode(self, why: str, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        """Calls the function itself for what it is not compiled for; warns if it does not fail, and `why` is not ""."""
        result = self.fn(*args, **kwargs)
        if why and not self._has_failed:
            self._has_failed = True
            warn(why)
        return result

    def _in_transform(self, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        """Runs the function itself, inside a transform, and says so once."""
        if not self._was_transformed:
            self._was_transformed = True
            name = getattr(self.fn, "__name__", type(self.fn).__name__)
            warn(_TRANSFORMED.format(name=name))
        return self.fn(*args, **kwargs)

    def __reduce__(self) -> Any:
        """Returns its name, if a module has it as it has functions. Any other copy compiles anew: what was compiled is
        made for the modules it was traced with.
        """
        return name_of(self) or (type(self), (self.fn, self._options))

    @property
    def source(self) -> str:
        """The generated Python of the signature used last."""
        latest = self._specializations.latest
        if latest is None:
            return Text("# Nothing was compiled yet: the first call compiles.")
        return Text("\n\n".join(latest.entry.sources.values()) + "\n")

    def _go_on_with(self, held: Held, used: UsedArguments | None, is_used_known: bool) -> None:
        """Has calls that nothing compiled fits look into a file before they are traced.

        Args:
            held: What the file has.
            used: What the function reads of its arguments, if not all of them.
            is_used_known: Whether that is known.
        """
        self._restored, self._used, self._is_used_known = held, used, is_used_known

    def save(self, path: str | PathLike[str]) -> None:
        """Writes what was compiled by now into a file, from which `load` goes on in another process without a trace.

        What inductor has made of graphs is in it; graphs that it was not given yet are compiled now.

        Args:
            path: The file.

        Raises:
            CompiledFileError: It has something that a file cannot hold: sizes by data, second derivatives, ...
        """
        with one_at_a_time:  # compilers may be run
            write_file(path, self.fn, self._options, [*self._specializations], self._used)

    def explain(self) -> str:
        """Returns what was compiled, for whom and why: signatures, leaves, graphs, writes, recompiles."""
        return Text(explain(self.fn, [*self._specializations], self._was_transformed))

    def stages(self, /, *args: _P.args, **kwargs: _P.kwargs) -> Stages:
        """Returns what becomes of a call: recorded operators, functional, joint, forward, backward graph, and the code.

        It is traced anew for that, with the sizes that are symbols by now. Nothing is kept, nothing is changed, and
        nothing is run but what a value that the function reads is computed of.

        Args:
            *args: The arguments of the call.
            **kwargs: The keyword arguments.

        >>> import torch
        >>> stages = aot_compile(lambda x: x.add(1).mul_(2)).stages(torch.ones(3))
        >>> print(stages.recorded)
        def forward(self, primals_1: "f32[3]"):
        ...
        """
        compilers: Any = {name: _uncompiled(backend) for name, backend in self._options.backends.items()}
        anew = type(self)(self.fn, dataclasses.replace(self._options, **compilers))
        anew._history = copy.deepcopy(self._history)
        with one_at_a_time, noted_stages() as texts:
            made = anew._specialization_for(args, kwargs)
        graphs = [made.graphs.forward, made.graphs.backward]
        texts["forward"], texts["backward"] = ("" if each is None else text_of(each.graph) for each in graphs)
        return Stages(**texts, code="\n\n".join(made.entry.sources.values()))

    def _specialization_for(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Specialization:
        """Returns what a call would run, which it compiles if need be. Nothing runs.

        Args:
            args: The arguments.
            kwargs: The keyword arguments.
        """
        given = args, kwargs
        try:
            return self._compiled_for(self._flattened_call(given, global_state()), given, {})
        except RunsItself as reason:
            if reason.error is None:
                raise
            error = reason.error
        raise error

    def _compiled_for(
        self, call: _Call, given: Given, tried: _Tried, made: Collection[Specialization] = ()
    ) -> Specialization:
        """Returns what is compiled for a call, perhaps by another thread while this one waited for the lock.

        Args:
            call: The call.
            given: Its arguments.
            tried: What fits but for values that it reads, and what it found.
            made: What was compiled for this very call.
        """
        args, kwargs, _, _, modes = call
        with one_at_a_time, _torch.plain_subclasses.classes_see("nothing"):
            fitting = [s for s in self._specializations if s.entry.call(*call, check_only=True) is not MISS]
            for specialization in fitting:
                if specialization not in tried and self._values.may_fit(specialization.signature, tried):
                    self._specializations.use(specialization)
                    return specialization
            if tried:
                self._values.learn(tried, made)
                if why := self._values.why_not_compiled(tried, len(fitting)):
                    if not self._stay_numbers(tried):
                        raise RunsItself(why)
                    tried = {}
            restored = (
                None if self._restored is None else self._restored.fitting(call, self._kept, [*self._specializations])
            )
            if restored is not None:
                self._specializations.use(restored)
                return restored
            self._changing.reasons = {}
            begin, build = functools.partial(self._begin, args, kwargs), functools.partial(self._build, tried)
            before = handlers_run()
            compiled: Specialization | None = None
            with suppress(_PartsMayChange):
                compiled = specialize(begin, build)
            if compiled is None:
                self._used = None if self._used is None else self._used.without_parts()
                return self._compiled_for(self._flattened_call(given, modes), given, {}, made)
            if compiled.entry.call(*call, check_only=True) is MISS and handlers_run() == before:
                why = _UNLIKE_ITSELF.format(line=refusing_line(compiled.entry.call, *call))
                if any(map(_torch.plain_subclasses.notes_functions, flatten((args, kwargs))[0])):
                    raise RunsItself(_NOTED.format(name=getattr(self.fn, "__name__", type(self.fn).__name__)))
                raise TraceError(why)
            self._specializations.use(compiled)
            return compiled

    def _stay_numbers(self, tried: _Tried) -> bool:
        """Has numbers of Python stay numbers of which too many values are read; returns whether there are any.

        Args:
            tried: What fits a call but for values that it reads.
        """
        found = [s for s in tried if self._changing.keep(s.signature.assumptions.numbers)]
        for specialization in self._specializations:
            if found and not self._changing.paths.issuperset(specialization.signature.assumptions.numbers):
                self._specializations.remove(specialization)
        return bool(found)

    def _arguments_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
        """Returns the call, flattened. Numbers that were seen to change are symbols.

        Args:
            args: The arguments.
            kwargs: The keyword arguments.
        """
        numbers = self._changing
        arguments = self._flattened(args, kwargs)
        if self._history.dynamic is not False and len(self._specializations):
            now = facts_of(arguments, global_state())
            for s in itertools.islice(self._specializations, _COMPARED):
                numbers.learn(arguments, s.signature, s.facts, now)
        return self._flattened(args, kwargs) if numbers.reasons else arguments

    def _flattened(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
        return Arguments.of(self.fn, args, kwargs, self._with_grad, self._changing.paths)

    def _begin(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], with_grad: Gradients, failure: BaseException | None
    ) -> Attempt | None:
        """Begins to compile for a call. What does not go with symbolic sizes is compiled for these sizes alone."""
        self._with_grad = max(self._with_grad, with_grad)
        try:
            arguments = self._arguments_of(args, kwargs)
        except OnlyInEagerModeError as error:
            if self._options.values == "refuse":
                raise
            raise self._only_in_eager_mode(error, None) from None
        if (lazy := arguments.first_lazy()) is not None:
            raise RunsItself(_LAZY.format(name=getattr(self.fn, "__name__", type(self.fn).__name__), path=lazy))
        if self._failures and (why := self._failures.why_given_up(kind_of(arguments, global_state()))):
            raise RunsItself(why)
        sizes = self._history.next(arguments)
        if self._values.varying and sizes is None:
            sizes = DynamicSizes()
        if failure is not None:
            stay = self._changing.keep(arguments.changing)
            if not sizes and not stay and not self._values.may_have_symbols:
                return None
            arguments = self._flattened(args, kwargs) if stay else arguments
            self._values.numbers_alone = not sizes
            sizes = self._history.without_symbols()
        looks = self._values.looks(failure is None)
        if isinstance(failure, RunsItself):
            failure.forget()
            failure = failure.error or failure.refusal
        return Attempt(arguments, sizes, looks, failure, parts=not self._options.double_backward)

    def _only_in_eager_mode(self, error: OnlyInEagerModeError, kind: Hashable) -> RunsItself:
        """Returns that the function itself runs a call.

        Args:
            error: What it does that only eager mode can do.
            kind: The kind of the call.
        """
        name = getattr(self.fn, "__name__", type(self.fn).__name__)
        return RunsItself(_ONLY_IN_EAGER_MODE.format(name=name, error=error), refusal=error, kind=kind)

    def _is_warned_of(self, reason: RunsItself) -> bool:
        """Notes that the function itself runs a call; returns whether a warning is to say so."""
        if reason.refusal is None:
            return True
        return self._failures.note(reason.kind, str(reason), isinstance(reason.refusal, LastingChangeError))

    def _build(self, tried: _Tried, attempt: Attempt) -> Specialization:
        """Traces and compiles a call in one attempt."""
        arguments, name = attempt.arguments, getattr(self.fn, "__name__", type(self.fn).__name__)
        try:
            trace = trace_arguments(self.fn, attempt, self._options.replaced)
        except BaseException as error:
            if isinstance(error, OnlyInEagerModeError) and attempt.values is not None:
                raise self._only_in_eager_mode(error, kind_of(arguments, global_state())) from None
            if not is_of_function(error):
                raise
            raise RunsItself.since(error, name) from None
        if self._used is not None and self._used.takes_parts and _changes_objects(arguments, trace.signature):
            raise _PartsMayChange
        options = self._options  # and not `self`, which nothing that is compiled may hold
        call = self.fn, arguments
        graphs = compile_graphs(name, trace, options, call, lambda fn: CompiledFunction(fn, options))
        if attempt.numbers:
            self._history.keep(attempt.numbers)
        if attempt.failure is not None:
            self._values.keep_numbers()
        why = self._reason(arguments, tried)
        reason = why + _stays(why, attempt, attempt.numbers if why == _FIRST else self._history.kept_in(why))
        made = Specialization.of(self.fn, arguments, trace.signature, graphs, reason, self._kept)
        log_code(made.entry.sources, name)
        if self._failures.may_build:
            self._failures.note_compiled(kind_of(arguments, global_state()))
        if why != _FIRST:
            self.recompiles.append(reason)
        return made

    def _reason(self, arguments: Arguments, tried: _Tried) -> str:
        """Returns why no entry fitted: the differences from the nearest one."""
        if self._restored is not None and self._restored.missed:
            return f"nothing in the file fits: {'; '.join(self._restored.missed)}"
        if not len(self._specializations):
            return _FIRST
        if tried:
            latest, other = list(tried.items())[-1]
            return self._values.reason(latest.signature, other)
        state = global_state()
        differences = (
            s.with_places(difference(s.facts, facts_of(arguments, state, s.scope))) for s in self._specializations
        )
        told = functools.partial(self._changing.told, arguments.paths_of_leaves)
        nearest = min(map(told, differences), key=_distance)
        return "; ".join(nearest) or "the same call as before (its entry was dropped from the cache)"


def _stays(why: str, attempt: Attempt, kept: Sequence[str]) -> str:
    """Returns why sizes stay numbers; "" where they are symbols, or are no reason.

    Args:
        why: Why no entry fitted.
        attempt: What was compiled.
        kept: The places of sizes with which sympy finds no end.
    """
    found = ""
    if kept:
        found = _NO_ANSWER.format(sizes=" and ".join(kept), are="stays a number" if len(kept) < 2 else "stay numbers")
    if attempt.failure is not None:
        found += f"{_STAY}with symbols it fails: {first_line(attempt.failure)}"
    elif attempt.known_since and ": Tensor " in why:
        found += f"{_STAY}this cannot be done with symbols: {attempt.known_since}"
    return found


def _distance(differences: list[str]) -> tuple[int, int]:
    """Returns how far two calls are from each other: one that fits but for what was assumed of symbols is near."""
    return sum(_NOT_SO not in line for line in differences), len(differences)


class _PartsMayChange(BaseException):
    """A function changes objects that may be those of which it was given parts. No `except Exception` catches it."""


def _changes_objects(arguments: Arguments, signature: JointSignature) -> bool:
    """Returns whether a call changes lists, dicts or objects; not so modules and tensors, of which no parts are taken.
    See Note [Arguments that are not read].
    """
    paths = {path for path, _ in arguments.modules}.union(signature.paths)
    return any(change.path not in paths and change.table.kind not in ("cells", "state") for change in signature.changes)


def _are_of_another_tracer(leaves: list[Any]) -> bool:
    """Returns whether a tracer of torch's runs, whose tensors these are: the function is a part of what it traces."""
    return any(map(_torch.wrappers.is_of_another_tracer, leaves))


@_torch.dynamo.dynamo_inlines(CompiledFunction.__call__)
def _call_uncompiled(compiled: CompiledFunction[_P, _R], /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
    """Runs the function itself, whose graph becomes a part of that of `torch.compile` or `torch.export`."""
    return compiled.fn(*args, **kwargs)


@_torch.dynamo.dynamo_inlines(CompiledFunction.__get__)
def _get_uncompiled(compiled: Any, instance: object, owner: type | None = None) -> Any:
    """Binds where Dynamo goes on, which cannot make a method."""
    binds = instance is not None and isinstance(compiled.fn, types.FunctionType | types.MethodDescriptorType)
    return functools.partial(compiled, instance) if binds else compiled


def _uncompiled(backend: Backend) -> Backend:
    """Returns a backend that is handed the same graphs, and compiles nothing."""
    return dataclasses.replace(backend, compile=BACKENDS["eager"].compile, chooses_strides=False, artifacts=None)
