"""Compiling the blocks of a model in place, where equal blocks share one compilation."""

from __future__ import annotations

import fnmatch
import functools
import threading
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import torch

from subclass_aot.base import _torch
from subclass_aot.base.put_back import PutBack
from subclass_aot.engine.compile import CompiledFunction, aot_compile
from subclass_aot.engine.graph import Retrace
from subclass_aot.engine.runtime import Structure
from subclass_aot.engine.specializations import Specialization
from subclass_aot.engine.trace import Attempt, is_tracing, one_at_a_time
from subclass_aot.errors import BlockError, SubclassAotError
from subclass_aot.meta.symbols import SizesMustBeKnown

_CONTAINERS = (torch.nn.ModuleList, torch.nn.Sequential, torch.nn.ModuleDict)
_Model = TypeVar("_Model", bound=torch.nn.Module)

_NONE_FOUND = """{model} has no block to compile: {why}.
  By default, blocks are the children of an nn.ModuleList, nn.Sequential or nn.ModuleDict that are repeated: of one
  class, with parameters of the same names and shapes, and no single layer of torch.nn.
  Instead: name classes or paths, as in compile_blocks(model, [{example}]), or compile the whole, aot_compile(model)."""

_REPLACED = """{path}: the forward of this block is no longer that of its class, {cls}, but {forward!r}.
  Another library, or an assignment, has put it there, and it would be lost.
  Instead: call compile_blocks before that, or leave the block out."""


def compile_blocks(
    model: _Model, blocks: Iterable[type[torch.nn.Module] | str] | None = None, **options: Any
) -> _Model:
    """Compiles the blocks of a model in place; equal blocks share one trace and one compilation.

    What a block is called with, what it returns, its hooks, its class, the names in `state_dict()` and what wraps it
    stay as they are: only the `forward` of each block becomes a compiled one. A block whose Python attributes differ
    is compiled apart; one that changes Python objects, or holds other tensors than parameters and buffers, by itself.
    Copies of the model, and what is unpickled, compile anew. `del block.forward` undoes it.

    Args:
        model: The model; what is around its blocks stays as it is.
        blocks: Which modules: classes, names of classes, or paths as in `named_modules()`, in which `*` stands for
            anything. `None`: the repeated children of an `nn.ModuleList`, `nn.Sequential` or `nn.ModuleDict`.
        **options: As for `aot_compile`: `fw_compiler`, `dynamic`, ...

    Returns:
        The model itself. `block.forward.explain()` says what was compiled for the blocks of its structure.

    Raises:
        BlockError: The model has no such blocks, or the forward of one was replaced.

    >>> from torch import nn
    >>> layers = [nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(12)]
    >>> model = compile_blocks(nn.Sequential(*layers))
    >>> model(torch.ones(2, 4)).shape
    torch.Size([2, 4])
    """
    wanted = None if blocks is None else list(blocks)
    found = dict(_repeated(model) if wanted is None else _named(model, wanted))
    if not found:
        why = "nothing in it is repeated" if wanted is None else f"none is of {', '.join(map(_name, wanted))}"
        example = next((type(m).__name__ for m in model.children()), "Block")
        raise BlockError(_NONE_FOUND.format(model=type(model).__name__, why=why, example=example))
    for path, block in found.items():
        own = vars(block).get("forward")
        if (own is not None and not isinstance(own, BlockForward)) or isinstance(block, torch.jit.ScriptModule):
            raise BlockError(_REPLACED.format(path=path, cls=type(block).__name__, forward=own))
    compilations = Compilations(options)
    for block in found.values():
        block.forward = BlockForward(block, compilations)
    return model


class Compilations:
    """The functions that were compiled for the blocks of one model, by their structure."""

    _LIMIT = 64

    def __init__(self, options: dict[str, Any]) -> None:
        aot_compile(_run, **options)  # so that a wrong option is an error here and not at the first call
        self.options = options
        self._known: list[tuple[Any, _SharedFunction, Reads]] = []

    def of(self, key: object, name: str) -> tuple[_SharedFunction, Reads]:
        """Returns the compiled function of all blocks with this structure, and what was read of them so far.

        Structures that were met long ago are forgotten.
        """
        with one_at_a_time:
            for known, compiled, reads in self._known:
                if known == key:
                    return compiled, reads
            run = functools.wraps(_run)(lambda *args: _run(*args))
            run.__name__ = name
            compiled, reads = _SharedFunction(run, aot_compile(run, **self.options)._options), {}
            self._known = [(key, compiled, reads), *self._known][: self._LIMIT]
            return compiled, reads

    def __reduce__(self) -> Any:
        """Returns a copy compiles anew."""
        return type(self), (self.options,)


class BlockForward:
    """The forward of a block that is compiled; stands in the place of the method.

    Args:
        block: The block.
        compilations: What the blocks of its model share.
    """

    def __init__(self, block: torch.nn.Module, compilations: Compilations) -> None:
        self._block = block
        self._compilations = compilations
        self._tracing = _TraceInProgress()
        self._known: _Known | None = None
        self._alone: CompiledFunction[..., Any] | None = None
        functools.update_wrapper(self, type(block).forward.__get__(block))

    @_torch.dynamo.below_dynamo  # where it does not inline the method: see `_call_uncompiled`
    def __call__(self, *args: object, **kwargs: object) -> Any:
        if self._alone is not None:
            return self._alone(*args, **kwargs)
        if is_tracing():  # of something around
            return _call_uncompiled(self, *args, **kwargs)
        known = self._known
        if known is None or not known[0].still_holds():
            known = self._read()
        if not known[0].is_shared:
            return self._call_alone(*args, **kwargs)
        structure, compiled, traced = known
        tracing = self._tracing
        before = tracing.count
        tensors = structure.tensors()
        if tracing.of_another_thread(before):
            with one_at_a_time:
                tensors = structure.tensors()
        try:
            return compiled(traced, tensors, args, kwargs)
        except SubclassAotError as error:
            if error is not compiled.refused:
                raise
            compiled.refused = None
        return self._call_alone(*args, **kwargs)

    def _call_alone(self, /, *args: object, **kwargs: object) -> Any:
        """Compiles the block by itself, as `aot_compile` compiles a method, and notes that unless it is refused."""
        method = types.MethodType(type(self._block).forward, self._block)
        alone: CompiledFunction[..., Any] = aot_compile(method, **self._compilations.options)
        try:
            result = alone(*args, **kwargs)
        except SubclassAotError:
            raise
        except BaseException:  # of the program
            self._alone = alone
            raise
        self._alone = alone
        return result

    def explain(self) -> str:
        """Returns what was compiled for blocks of this structure, as `explain()` of a compiled function says it."""
        return (self._alone or (self._known or self._read())[1]).explain()

    def _read(self) -> _Known:
        with one_at_a_time:
            if self._known is not None and self._known[0].still_holds():  # another thread has traced it meanwhile
                return self._known
            structure = Structure(self._block)
            compiled, reads = self._compilations.of(structure.key, type(self._block).__name__)
            self._known = known = structure, compiled, TracedBlock(self._block, structure, reads, self._tracing)
            return known

    def __getstate__(self) -> dict[str, Any]:
        return {"block": self._block, "compilations": self._compilations}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]


@_torch.dynamo.dynamo_inlines(BlockForward.__call__)
def _call_uncompiled(forward: BlockForward, /, *args: object, **kwargs: object) -> Any:
    """Runs the method of the class, which `torch.compile` and `torch.export` see in place of a call."""
    block = forward._block
    return type(block).forward(block, *args, **kwargs)


_Known = tuple[Structure, "_SharedFunction", "TracedBlock"]
"""The structure of a block, what was compiled for it, and the block as the trace takes it."""

Reads = dict[tuple[str, str], None]
"""Attributes that were read while a function was traced, in the order in which they first were; it only grows."""


class _TraceInProgress:
    """A mark for threads that have other tensors in the places of a block, as while it is traced.

    Attributes:
        count: Odd while that is so.
        owner: The thread.
    """

    __slots__ = ("count", "owner")

    def __init__(self) -> None:
        self.count = self.owner = 0

    def of_another_thread(self, before: int) -> bool:
        """Returns whether it is so, or was since `count` was `before`, in another thread."""
        return (self.count != before or before % 2 == 1) and self.owner != threading.get_ident()


class _ObjectsChange(SubclassAotError):
    """A block was traced that changes objects, so that what is compiled would not be all that it does."""


class _SharedFunction(CompiledFunction[..., Any]):
    """What is compiled for the blocks of one structure, the first argument of each call.

    Attributes:
        refused: Why a block could not be compiled for all of them.
    """

    refused: SubclassAotError | None = None

    def _build(self, tried: Any, attempt: Attempt) -> Specialization:
        (structure,) = (leaf.structure for leaf in attempt.arguments.leaves if isinstance(leaf, TracedBlock))
        with PutBack(functools.partial(structure.restore, structure.contents())):
            try:
                made = super()._build(tried, attempt)
                if not structure.still_holds():
                    raise _ObjectsChange
                return made
            except (SizesMustBeKnown, Retrace):
                raise
            except SubclassAotError as error:
                self.refused = error
                raise


class TracedBlock:
    """A block, as it was read, that a compiled function of its structure is traced on.

    Two are equal for a guard if what any trace of that function has read of them is.

    Attributes:
        structure: The structure of the block.
    """

    __slots__ = ("_block", "_reads", "_tracing", "_values", "structure")

    def __init__(self, block: torch.nn.Module, structure: Structure, reads: Reads, tracing: _TraceInProgress) -> None:
        self._block, self.structure, self._reads, self._tracing = block, structure, reads, tracing
        self._values: tuple[Any, ...] = ()

    def run(self, tensors: dict[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Runs the forward of the block's class, in a trace with `tensors` for its own."""
        block, structure, tracing = self._block, self.structure, self._tracing
        if not is_tracing():
            return type(block).forward(block, *args, **kwargs)
        own, before = structure.tensors(), tracing.count

        def put_back() -> None:
            for path, table, name in structure.places:
                table[name] = own[path]
            tracing.count = before + 2

        with PutBack(put_back):
            tracing.owner = threading.get_ident()
            tracing.count = before + 1
            for path, table, name in structure.places:
                table[name] = tensors[path]
            with structure.scalars_noticed(self._note):
                result = type(block).forward(block, *args, **kwargs)
            if any(table.get(name) is not tensors[path] for path, table, name in structure.places):
                raise _ObjectsChange
            return result

    def _note(self, read: tuple[str, str]) -> None:
        if read in self.structure.scalars:
            self._reads.setdefault(read)

    def _read_values(self) -> tuple[Any, ...]:
        if len(self._values) != len(self._reads):
            self._values = tuple(self.structure.scalars[read] for read in tuple(self._reads))
        return self._values

    def __eq__(self, other: object) -> bool:
        return type(other) is TracedBlock and self._read_values() == other._read_values()

    def __hash__(self) -> int:
        return hash(TracedBlock)

    def __repr__(self) -> str:
        names = [f"{path}.{name}".removeprefix(".") for path, name in self._reads]
        values = ", ".join(f"{n}={v.value!r}" for n, v in zip(names, self._read_values(), strict=False))
        return f"{type(self._block).__name__}({values})"


def _run(block: TracedBlock, tensors: dict[str, Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return block.run(tensors, args, kwargs)


def _repeated(model: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    """Returns the children of containers that are of a class that is repeated: see `compile_blocks`."""
    repeated: set[Any] = set()
    kind_of: dict[str, Any] = {}
    children: dict[str, torch.nn.Module] = {}
    for path, container in model.named_modules():
        if not isinstance(container, _CONTAINERS):
            continue
        kinds: list[Any] = []
        for name, child in container.named_children():
            if not any(True for _ in child.children()) and type(child).__module__.startswith("torch.nn."):
                continue  # a single layer
            tensors = [*child.named_parameters(), *child.named_buffers()]
            kind = type(child), tuple((name, tensor.shape) for name, tensor in tensors)
            kinds.append(kind)
            where = f"{path}.{name}" if path else name
            children[where], kind_of[where] = child, kind
        repeated.update(kind for kind in kinds if kinds.count(kind) > 1)
    classes = {cls for cls, _ in repeated if not issubclass(cls, _CONTAINERS)}  # all of these are blocks, equal or not

    def fits(path: str, module: torch.nn.Module) -> bool:
        return type(module) in classes or kind_of[path] in repeated

    return _outermost(children.items(), fits)


def _named(model: torch.nn.Module, wanted: list[type[torch.nn.Module] | str]) -> Iterator[tuple[str, torch.nn.Module]]:
    def fits(path: str, module: torch.nn.Module) -> bool:
        return any(
            path == w or type(module).__name__ == w or fnmatch.fnmatchcase(path, w)
            if isinstance(w, str)
            else isinstance(module, w)
            for w in wanted
        )

    return _outermost(((p, m) for p, m in model.named_modules() if p), fits)


def _outermost(
    modules: Iterable[tuple[str, torch.nn.Module]], fits: Callable[[str, torch.nn.Module], bool]
) -> Iterator[tuple[str, torch.nn.Module]]:
    """Yields those that fit and are inside no other that fits."""
    inside: set[int] = set()
    for path, module in sorted(modules, key=lambda item: item[0].count(".")):
        if id(module) not in inside and fits(path, module):
            yield path, module
            inside.update(map(id, module.modules()))


def _name(wanted: type | str) -> str:
    return repr(wanted) if isinstance(wanted, str) else wanted.__name__
