"""Runs without data: a mode in which all that torch makes is without data, also where no argument is."""

from __future__ import annotations

import os
import weakref
from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any

import optree
import torch

from subclass_aot.base import _torch
from subclass_aot.base._stack import user_line
from subclass_aot.base._torch.operators import Operator
from subclass_aot.base.lru_caches import forgotten_in_caches
from subclass_aot.base.operators import argument_at, effects_of
from subclass_aot.base.put_back import PutBack
from subclass_aot.cost.cuda import answers, claimed
from subclass_aot.cost.cuda import profile as profile_of_claims
from subclass_aot.cost.devices import Device, claim_of
from subclass_aot.cost.without_data.assumptions import Assumptions, Given, positions
from subclass_aot.cost.without_data.by_leaf import ByLeaf, leaves_of
from subclass_aot.cost.without_data.decided import decided, is_decided
from subclass_aot.cost.without_data.rows import MOST, SMALL, fill, is_kept, on_rows
from subclass_aot.errors import DataDependentError, MutationError, ProfileError, TraceError
from subclass_aot.meta import (
    Listener,
    MetaTensor,
    Storage,
    Stream,
    dispatch,
    fillers,
    functions,
    places,
    served,
    spec,
    tensor,
)
from subclass_aot.meta.symbols import is_symbolic
from subclass_aot.ranks import in_eager_mode

_IN_A_TRACE = """`subclass_aot.meta()` is entered by a function while it is traced, where nothing has data anyway.
  Your line:  {line}
  Instead: make the tensors without data outside, and pass them as arguments."""

_ITSELF = """The program uses a tensor itself of which it was given a copy without data: {tensor}.
  Your line:  {line}
  A profile runs a copy, and copies what functions close over with it, but not what methods read of their module.
  Instead: pass what holds the tensor: sa.profile(step, model, optimizer, batch)."""

_COMMUNICATES = _torch.collectives.COLLECTIVES | {"fsdp"}

_foreach = _torch.cuda.foreach_takes(MetaTensor)


@places.run_without_data.put
@contextmanager
def meta(
    device: str | os.PathLike[str] | torch.device | Device | None = None,
    *,
    assume: Given = False,
    fraction: float = 1.0,
) -> Iterator[Assumptions]:
    """Makes all tensors without data: inside, `torch.zeros`, `torch.tensor`, layers and `torch.nn.init` cost no memory.

    Every result is a `MetaTensor`, or a wrapper of such. A program goes the way of eager mode. The values of small
    tensors that follow from constants alone (masks, positions) are known until the block ends, so a program may read
    them. Other reads of values are errors, unless they are assumed. It is for one thread. `loss.backward()` makes
    nothing with data outside of the block either; `torch.autograd.grad` makes the zeros that it needs with data, and
    belongs inside.

    Args:
        device: What tensors claim to be on where a program names no device; the default device if left out. Hardware is
            not needed, neither for it nor for the devices that the program names. A device of torch's ("cuda:1"), or a
            profile: "H100", "A100", "RTX 4090", the path of a TOML file, or a `Device`. A profile of a GPU is claimed
            as `cuda:0`, and `torch.cuda` answers from it. Where there is no CUDA, a plain claim of it is an H100's.
        assume: Whether values that nobody knows are assumed: a check holds (`all`, `isfinite`), a comparison does not,
            a mask is full. Or, by the place of a line, what is read there: `{"model.py:12": False}`;
            the values of other lines are assumed.
        fraction: The part of the elements of a mask that are true, and of a tensor that are not zero.

    Yields:
        What was assumed: of each, the line, what is read there, the answer and how often.

    Raises:
        TraceError: It is entered by a function that is being traced, or a line has read an assumed value so often that
            it may wait for another one.

    >>> import subclass_aot as sa
    >>> with sa.meta("cuda:1"):
    ...     layer = torch.nn.Linear(10**6, 10**6)
    ...     tokens = torch.zeros(10**4, 10**6, device="cuda:2")
    >>> layer.weight.device, tokens
    (device(type='cuda', index=1), MetaTensor([10000, 1000000], float32, cuda:2))
    >>> with sa.meta(assume=True) as assumed:
    ...     rows = tokens[torch.randn(10**4) > 0]
    >>> rows.shape, [each.answer for each in assumed]
    (torch.Size([10000, 1000000]), [10000])
    """
    running = running_stream()
    if running is not None and not isinstance(running, DataFree):
        raise TraceError(_IN_A_TRACE.format(line=user_line()))
    with ExitStack() as stack:
        claim, profile = claim_of(device)
        if claim is not None:
            stack.enter_context(claim)
            _claim(stack, claim, profile)
        if running is None:
            stack.enter_context(forgotten_in_caches(MetaTensor))
            running = stack.enter_context(_data_free())
        if fraction != 1 and assume is False:
            raise ValueError(
                f"fraction is {fraction}, and nothing is assumed. Write sa.meta(assume=True, fraction={fraction})."
            )
        if assume is not False:
            stack.enter_context(PutBack(partial(setattr, running, "assumptions", running.assumptions)))
            running.assumptions = Assumptions(assume, fraction).with_constants(running.value_of)
        yield running.assumptions


@contextmanager
def _data_free() -> Iterator[DataFree]:
    """Runs the block as one without data, in which no other one runs yet."""
    with (
        _torch.switches.devices_untouched(),
        torch.autograd.set_multithreading_enabled(False),  # listeners are those of a thread
        _foreach(),
        DataFree() as running,
        _torch.dynamo.without_dynamo(lambda: running.compiled.setdefault(user_line())),
        functions.Replaced(running, functions.RECURRENT_WITH_CUDNN),
    ):
        yield running


def _claim(stack: ExitStack, claim: torch.device, profile: Device | None) -> None:
    """Has `torch.cuda` answer of a device that is claimed, in the blocks of a stack."""
    if claim.type != "cuda":
        return
    if running_stream() is None:  # what a block before this one has claimed is over
        claimed.profile = profile
    elif profile is not None:
        stack.enter_context(PutBack(partial(setattr, claimed, "profile", claimed.profile)))
        claimed.profile = profile
    if claimed.profile is not None or spec.native_device(claim) != claim:
        stack.enter_context(_torch.cuda.answering(answers(profile_of_claims(), claim.index or 0)))


@tensor.around_backward.put
@contextmanager
def gradients_without_data(start: MetaTensor) -> Iterator[None]:
    """Runs the block so that zeros that autograd makes for absent gradients have no data, and the device of `start`."""
    running = running_stream()
    if running is not None and not isinstance(running, DataFree):
        yield
        return
    with (
        _data_free() if running is None else nullcontext(running) as stream,
        PutBack(partial(setattr, stream, "of_meta", stream.of_meta)),
    ):
        stream.of_meta = start.spec.device
        yield


def running_stream() -> Stream | None:
    """Returns the innermost stream of this thread: a trace, or a run without data."""
    return next((mode for mode in reversed(_torch.dispatch.dispatch_modes()) if isinstance(mode, Stream)), None)


def called_compiled() -> list[str]:
    """Returns the lines that have called functions made by `torch.compile` in this run, which run as in eager mode."""
    running = running_stream()
    return list(running.compiled) if isinstance(running, DataFree) else []


@contextmanager
def uses_no(originals: Iterable[torch.Tensor]) -> Iterator[None]:
    """Runs the block, a program that has copies of some tensors, and refuses to use these tensors themselves.

    Args:
        originals: The tensors. Of integers and flags, both have the values.

    Raises:
        ProfileError: The program does, since something was not copied with them.
    """
    running = running_stream()
    assert isinstance(running, DataFree)
    with PutBack(partial(setattr, running, "originals", running.originals)):
        running.originals = {id(x): x for x in originals if x.is_floating_point() or x.is_complex()}
        yield


class DataFree(Stream):
    """Computes, beside the specs, the values of small tensors that follow from known ones.

    A leaf that is known has a constant on the CPU. What is done to the leaf is done to the constant, so views of known
    leaves have views for constants, and writes need no care. A leaf is forgotten when something unknown is written to
    it.
    """

    records = False

    def __init__(self) -> None:
        super().__init__()
        self.assumptions = Assumptions()
        self.compiled: dict[str, None] = {}  # the lines that call functions of `torch.compile`
        self.originals: dict[int, torch.Tensor] = {}  # by id, tensors that the program has copies of
        self._values = ByLeaf()
        self._met: weakref.WeakSet[Storage] = weakref.WeakSet()  # what stands for the memory of real tensors
        self.of_meta = torch.device("meta")  # what a factory on this device means: see `native_device`
        self._around = _torch.switches.mode_of_fake_tensors()

    def __torch_dispatch__(
        self,
        func: Operator,
        types: Collection[type[torch.Tensor]],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        fake = _torch.switches.mode_of_fake_tensors()
        if fake is not None and fake is not self._around and _torch.switches.are_fake(types):
            return func(*args, **(kwargs or {}))  # DTensor looks for a shape: no work, and none of ours
        if kwargs and isinstance(kwargs.get("device"), torch.device) and kwargs["device"].type == "meta":
            kwargs = {**kwargs, "device": self.of_meta}
        with _torch.dispatch.disable_torch_function():  # else modes see each look at a tensor from here on
            try:
                return super().__torch_dispatch__(func, types, args, kwargs)
            except DataDependentError as error:
                if error.operator is None:
                    raise
                refusal = self.assumptions.refusal_of(func, args)
            raise refusal

    def _in_another_form(self, func: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if func.namespace not in _COMMUNICATES:
            return super()._in_another_form(func, args, kwargs)
        args = tuple(map(self._admitted, args))
        with self, Listener.without_listeners():
            result = in_eager_mode(func, args)
        if result is NotImplemented:
            return super()._in_another_form(func, args, kwargs)
        if func.namespace == "c10d":
            written = leaves_of(args[0])
            if any(Storage.of(x) in self._met for x in written):
                raise MutationError(dispatch.REAL_WRITTEN.format(name=func.overloadpacket.__name__, line=user_line()))
            self._forget(written)
        Listener.tell(self, func, args, kwargs, result)
        return result

    def value_of(self, leaf: MetaTensor) -> torch.Tensor | None:
        return self._values.of(leaf)  # type: ignore[no-any-return]

    def lift(self, tensor: torch.Tensor) -> MetaTensor:
        if id(tensor) in self.originals:
            shown = f"{type(tensor).__name__}({list(tensor.shape)}, {str(tensor.dtype).removeprefix('torch.')})"
            raise ProfileError(_ITSELF.format(tensor=shown, line=user_line()))
        leaf = super().lift(tensor)
        if tensor.device.type != "meta":
            self._met.add(Storage.of(leaf))
        is_plain = type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.device.type == "cpu"
        is_weight = tensor.dtype.is_floating_point or tensor.dtype.is_complex
        if is_plain and (tensor.numel() <= SMALL or not is_weight):  # programs read flags, positions and lengths
            self._note(leaf, tensor.detach())
        return leaf

    def on_operator(self, func: Operator, args: tuple[Any, ...], kwargs: dict[str, Any], result: object) -> None:
        if self.assumptions.is_on:
            self.assumptions.note(func, args, kwargs, result)
        if func.overloadpacket in fillers.BLANK:
            return  # whatever the memory here has had
        writes, number = effects_of(func).writes, fillers.made_by(func, args, kwargs)
        if not writes and number is None:
            for a in args:
                if type(a) is MetaTensor and id(a) not in self._values and not is_decided(func):
                    return  # as most
        for place in writes:
            if any(Storage.of(x) in self._met for x in leaves_of(argument_at(place, args, kwargs))):
                raise MutationError(dispatch.REAL_WRITTEN.format(name=place[1], line=user_line()))
        made, values, in_place = leaves_of(result), None, False
        if func.overloadpacket is not torch.ops.aten.set_ and all(x.meta_spec.solver is None for x in made):
            values, in_place = self._computed(func, args, kwargs, made, number)
        if not in_place:
            for written in writes:  # and else all that share the memory have their constants written
                self._forget(argument_at(written, args, kwargs))
        for leaf, value in zip(made, values or (), strict=values is not None):
            self._note(leaf, value)

    def _computed(
        self, func: Operator, args: tuple[Any, ...], kwargs: dict[str, Any], made: list[MetaTensor], number: Any
    ) -> tuple[list[torch.Tensor] | None, bool]:
        """Returns the constants of what an operator made or wrote, and whether those that there were are written.

        Args:
            func: The operator, which has run.
            args: Its arguments.
            kwargs: Its keyword arguments.
            made: The leaves that it made or wrote.
            number: What it fills its result with; None if it does not.
        """
        tree: Any = (args, kwargs)
        given = leaves_of(tree)
        known = not any(id(x) not in self._values for x in given)
        writes = effects_of(func).writes
        found: Any = None
        in_place = bool(writes) and known and self._is_written(func, args, kwargs, given)
        if in_place or known and not writes and all(x.meta_spec.numel <= SMALL for x in given + made):
            found = self._on_constants(func, args, kwargs)
        elif writes and not all(map(_is_whole, made)):
            return None, False  # only a part
        elif number is not None:
            found = [fill(x.meta_spec, torch.tensor(number)) for x in made]
        elif known and not effects_of(func).random:
            call = self._with_constants((args, kwargs))
            found = None if call is None else on_rows(func, call, [x.meta_spec for x in made])
            if found is None and writes and self._is_written(func, args, kwargs, given, as_rows=False):
                in_place, found = True, self._on_constants(func, args, kwargs)
        elif is_decided(func) and len(made) == 1:
            found = decided(func, args, kwargs, self._values.of, made[0].meta_spec)
        if found is None:
            return None, False
        values = [x for x in optree.tree_leaves(found, none_is_leaf=True) if isinstance(x, torch.Tensor)]
        return values, in_place

    def _is_written(
        self,
        func: Operator,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        given: list[MetaTensor],
        as_rows: bool = True,
    ) -> bool:
        """Returns whether an operator writes constants in their place, as it writes leaves.

        They have memory as the leaves have, then.

        Args:
            func: The operator.
            args: Its arguments.
            kwargs: Its keyword arguments.
            given: The leaves among these.
            as_rows: Whether a long one that is written as a whole, and has no views, is none: one row is computed.
        """
        written = [x for place in effects_of(func).writes for x in leaves_of(argument_at(place, args, kwargs))]
        if effects_of(func).random or effects_of(func).reshapes:
            return False
        has_memory = all(map(self._has_memory, written))
        is_long = any(Storage.of(x).nbytes > SMALL for x in written)
        is_alone = all(_is_whole(x) and len(self._values.sharing(Storage.of(x))) == 1 for x in written)
        if as_rows and is_long and not has_memory and is_alone:
            return False
        if any(x.meta_spec.numel * x.meta_spec.dtype.itemsize > MOST for x in given):
            return False
        return all(map(self._with_memory, written))

    def _has_memory(self, leaf: MetaTensor) -> bool:
        return self._values.of(leaf).untyped_storage().nbytes() >= Storage.of(leaf).nbytes  # type: ignore[no-any-return]

    def _with_memory(self, leaf: MetaTensor) -> bool:
        """Gives the constants of all leaves that share memory with one memory, so that a write reaches all of them."""
        if self._has_memory(leaf):
            return True
        storage = Storage.of(leaf)
        if storage.nbytes > MOST:
            return False
        with _torch.dispatch.disable_current_modes():
            memory = torch.UntypedStorage(storage.nbytes)
            for each, value in self._values.sharing(storage):
                own = torch.empty(0, dtype=value.dtype)
                own.set_(memory, each.storage_offset(), each.shape, each.stride())
                places = tuple(slice(None) if step else slice(1) for step in each.stride())
                own[places] = value[places]
                self._values.note(each, own)
        return True

    def replaced(self, leaf: MetaTensor, other: torch.Tensor) -> None:
        self._forget([leaf, other])

    def _known(self, func: Operator, args: tuple[Any, ...], kwargs: dict[str, Any], value_of: object) -> Any:
        tree: Any = (args, kwargs)
        given = leaves_of(tree)
        device = given[0].meta_spec.device
        if any(x.meta_spec.solver is None and not self._is_short(x) for x in given):
            value = self._values.of(given[0]) if func.overloadpacket is torch.ops.aten.nonzero else None
            found = None if value is None else (positions(given[0], value.numel() if value.flatten()[0] else 0),)
        else:
            found = self._on_constants(func, args, kwargs)
        if found is None:
            found = (self.assumptions.answer(func, args, kwargs),)

        def leaf_of(value: object) -> Any:
            if not isinstance(value, torch.Tensor) or type(value) is MetaTensor:
                return value
            return self._note(MetaTensor(value, device), value)

        result: Any = found[0]
        return None if result is None else optree.tree_map(leaf_of, result, none_is_leaf=True)

    def lengths(self, tensor: torch.Tensor, most: int) -> torch.Tensor | None:
        known = self.known(tensor)
        return self.assumptions.lengths(tensor, most) if known is None else known

    def elements(self, leaf: MetaTensor) -> torch.Tensor:
        known = self.value_of(leaf)
        return self.assumptions.elements(leaf) if known is None else known

    def memory(self, leaf: MetaTensor) -> torch.Tensor:
        return self.elements(leaf)

    def _on_constants(self, func: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any] | None:
        """Returns what an operator gives for the constants of its arguments, in a tuple; None if that is not known."""
        found = None if effects_of(func).random else self._with_constants((args, kwargs))
        if found is None:
            return None
        args, kwargs = found
        try:
            with _torch.dispatch.disable_current_modes(), torch.no_grad():
                return (func(*args, **kwargs),)
        except (RuntimeError, NotImplementedError):  # the device that is claimed may have kernels that a CPU lacks
            return None

    def _with_constants(self, call: tuple[Any, ...]) -> Any:
        """Returns the arguments of an operator with constants for tensors; None if those of one are not known."""
        tree: Any = call
        leaves, structure = optree.tree_flatten(tree, none_is_leaf=True)
        constants = [self._constant(x) for x in leaves]
        if any(x is None for x, leaf in zip(constants, leaves, strict=True) if leaf is not None):
            return None
        found: Any = optree.tree_unflatten(structure, constants)
        if found[1].get("pin_memory"):
            found[1]["pin_memory"] = False
        return found

    def _constant(self, value: object) -> Any:
        if type(value) is MetaTensor:
            return self._values.of(value)
        if is_symbolic(value):  # an operator on real tensors would read it, and that would be assumed
            return None
        return torch.device("cpu") if isinstance(value, torch.device) else value

    @staticmethod
    def _is_short(leaf: MetaTensor) -> bool:
        """Returns whether an operator that reads all of a constant may be computed."""
        return leaf.meta_spec.numel * leaf.meta_spec.dtype.itemsize <= MOST  # type: ignore[no-any-return]

    def _note(self, leaf: MetaTensor, value: torch.Tensor) -> MetaTensor:
        if is_kept(value):
            self._values.note(leaf, value)
        return leaf

    def _forget(self, written: object) -> None:
        """Forgets the known values of what shares memory with a leaf, or with several."""
        self._values.forget(leaves_of(written))


def _is_whole(leaf: MetaTensor) -> bool:
    """Returns whether a leaf has all of its memory."""
    return Storage.of(leaf).nbytes == leaf.meta_spec.numel * leaf.meta_spec.dtype.itemsize  # type: ignore[no-any-return]


served.serve_stream(DataFree)
