"""One call of a function, everything that can be seen of it, and how two such calls differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.base._stack import pass_on_interruption
from subclass_aot.engine.call import flatten
from subclass_aot.kit.wrapper import plain_tangent
from subclass_aot.testing.compare import cut_off, dense_leaves, difference, rebuilt, sharing

INVALIDATED = "a view that was invalidated"


@dataclass(frozen=True)
class Later:
    """The use that a program makes of the results.

    Attributes:
        backward: Whether to go backward, where anything requires grad.
        twice: Whether to go backward a second time.
        used: Which of the ends of autograd's graph take part in backward, in turn.
        tangents: "random", or "expanded" as those that `sum` sends back.
        after: Whether to write into the results before: "", "grad", or "no_grad".
    """

    backward: bool = True
    twice: bool = False
    used: tuple[bool, ...] = (True,)
    tangents: str = "random"
    after: str = ""


@dataclass
class Run:
    """The observations of one call.

    Attributes:
        arguments: The tensors it was given.
        behind: The leaves of autograd's graph behind them, and what they are views of.
        results: What it returned, flat.
        structure: The structure of that.
        counted: For each tensor of the arguments, inner ones too, whether its version counter moved.
        partial: Whether some results had no part in backward.
        cut: Which results and arguments lead to no leaf.
        failed: Where it failed: "call", "after", "backward", or "" for nowhere.
        error: What it raised there.
    """

    arguments: list[Any]
    behind: list[Any]
    results: list[Any] = field(default_factory=list)
    structure: Any = None
    counted: list[bool] = field(default_factory=list)
    partial: bool = False
    cut: list[bool] = field(default_factory=list)
    failed: str = ""
    error: Exception | None = None

    @property
    def gradient_targets(self) -> list[Any]:
        """What gradients may arrive in, among other things: the leaves behind the arguments, and results."""
        return [*self.behind, *self.results]


@dataclass(frozen=True)
class Difference:
    """One thing that two calls do differently.

    Attributes:
        kind: "error", "no error", "result", "argument", "gradient", "aliasing", "identity" or "version".
        text: What, in one line.
        error: What only one of them raises.
        position: Of which result, argument or gradient, if of one.
    """

    kind: str
    text: str
    error: Exception | None = None
    position: int = -1

    def like(self, other: Difference) -> bool:
        """Returns whether the same may be wrong here."""
        return self.kind == other.kind and type(self.error) is type(other.error)


def observe(
    function: Callable[..., Any],
    made: tuple[list[Any], list[Any]],
    seed: int = 0,
    later: Later = Later(),  # noqa: B008
    mode: Callable[[], AbstractContextManager[Any]] = nullcontext,
    like: Run | None = None,
) -> Run:
    """Calls `function`, and goes backward through its results.

    Args:
        function: What to call.
        made: Its arguments, and the leaves behind them.
        seed: For random operators in it, and for the gradients it gets.
        later: What to do with the results.
        mode: The context manager in which it is called.
        like: A run to compare with: backward leaves out results of which autograd says nothing there.
    """
    run = Run(*made)
    tensors = [t for x in run.arguments for t in _tree(x)]
    versions = [_torch.autograd.version_of(t) for t in tensors]
    try:
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(seed)
            run.failed = "call"
            with mode():
                results, run.structure = flatten(function(*run.arguments))
                run.results = [_readable(x) for x in results]
            run.counted = [_torch.autograd.version_of(t) != v for t, v in zip(tensors, versions, strict=True)]
            run.failed = "after"
            for result in run.results:
                _write_after(result, later.after)
            run.results = [_readable(x) for x in run.results]
            if like is not None and len(like.results) == len(run.results):
                run.results = [e if e is INVALIDATED else x for e, x in zip(like.results, run.results, strict=True)]
            run.failed = "backward"
            if later.backward:
                _backward(run, later, torch.Generator().manual_seed(seed + 1), like)
        run.failed = ""
    except Exception as error:
        pass_on_interruption(error)
        run.error = error
    return run


def _backward(run: Run, later: Later, generator: torch.Generator, like: Run | None) -> None:
    candidates = [*run.results, *run.arguments]
    run.cut = cut = [isinstance(x, torch.Tensor) and cut_off(x) for x in candidates]
    if like is not None and len(like.cut) == len(cut):  # a compiled result may lead to leaves that get zeros
        cut = [a or b for a, b in zip(cut, like.cut, strict=True)]
    ends = [
        x
        for i, (x, leads_nowhere) in enumerate(zip(candidates, cut, strict=True))
        if isinstance(x, torch.Tensor) and x.requires_grad and not leads_nowhere
        and (i < len(run.results) or not x.is_leaf)
    ]  # fmt: skip
    used = [x for i, x in enumerate(ends) if later.used[i % len(later.used)]]
    run.partial = len(used) < len(ends)
    for again in (True, False) if later.twice and used else (False,) if used else ():
        tangents = [tangent_of(x, later.tangents, generator) for x in used]
        torch.autograd.backward(used, tangents, retain_graph=again)


def tangent_of(tensor: torch.Tensor, kind: str, generator: torch.Generator) -> Any:
    """Returns a random tangent: dense for classes whose operators give dense tensors, as in eager mode."""
    if kind == "expanded":
        return rebuilt(plain_tangent(tensor), _expanded)
    return rebuilt(plain_tangent(tensor), lambda leaf: _random(leaf, generator))


def _expanded(leaf: torch.Tensor) -> torch.Tensor:
    return leaf.new_full((), 0.7).expand(leaf.shape) if _has_gradients(leaf) else leaf.clone()


def _random(leaf: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    if not _has_gradients(leaf):
        return leaf.clone()
    return torch.rand(leaf.shape, generator=generator, dtype=leaf.dtype).to(leaf.device)


def _has_gradients(leaf: torch.Tensor) -> bool:
    """Returns whether a leaf has gradients: a mask or offsets of a wrapper, which say where values are, have none."""
    return leaf.is_floating_point() or leaf.is_complex()


def _tree(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yields a tensor, and all tensors inside."""
    yield tensor
    if hasattr(tensor, "__tensor_flatten__"):
        for name in tensor.__tensor_flatten__()[0]:
            yield from _tree(getattr(tensor, name))


def _write_after(result: object, after: str) -> None:
    """Writes into a result, as users may do."""
    if after and isinstance(result, torch.Tensor) and result.dtype.is_floating_point:
        with torch.set_grad_enabled(after == "grad"):
            result.add_(0.5)


def _readable(value: object) -> Any:
    """Returns a value, or a word in place of an invalidated view, on which autograd raises."""
    try:
        if isinstance(value, torch.Tensor):
            value.grad_fn  # noqa: B018
    except RuntimeError:
        return INVALIDATED
    return value


def differences(expected: Run, got: Run, tolerances: tuple[float, float] = (1e-5, 1e-6)) -> Iterator[Difference]:
    """Yields how `got` differs from `expected`, most telling first. After an error there is nothing more to compare.

    Args:
        expected: What happened in eager mode.
        got: What else happened.
        tolerances: The relative and the absolute error that values may have.
    """
    if {expected.failed, got.failed} & {"call", "after"}:
        yield from _errors(expected, got)
        return
    if expected.structure != got.structure:
        yield Difference("result", f"the structure {expected.structure} expected, {got.structure} got")
        return
    yield from _state(expected, got, tolerances)
    yield from _relations(expected, got)
    if expected.failed or got.failed:
        yield from _errors(expected, got)
    else:
        yield from _gradients(expected, got, tolerances)


def _errors(expected: Run, got: Run) -> Iterator[Difference]:
    where = {"call": "the call", "after": "a later write into the results", "backward": "backward", "": "nothing"}
    if expected.failed != got.failed:
        if got.error is not None and (expected.error is None or got.failed == "call"):
            kind = type(got.error).__name__
            yield Difference("error", f"{where[got.failed]} raises {kind}: {got.error}", got.error)
        else:
            kind = type(expected.error).__name__
            text = f"{where[expected.failed]} should raise {kind}: {expected.error}"
            yield Difference("no error", text, expected.error)


def _state(expected: Run, got: Run, tolerances: tuple[float, float]) -> Iterator[Difference]:
    for kind, name, mine, eager in (
        ("result", "result", got.results, expected.results),
        ("argument", "argument", got.arguments, expected.arguments),
        ("argument", "the tensor behind argument", got.behind, expected.behind),
    ):
        for i, (a, b) in enumerate(zip(eager, mine, strict=True)):
            if a is INVALIDATED:
                continue
            found = difference(a, b, True, *tolerances)
            if found:
                yield Difference(kind, f"{name} {i}: {found}", position=i)


def _relations(expected: Run, got: Run) -> Iterator[Difference]:
    kept = [i for i, x in enumerate(expected.results) if isinstance(x, torch.Tensor)]
    if any(not isinstance(got.results[i], torch.Tensor) for i in kept):
        return
    mine, eager = ([*r.arguments, *(r.results[i] for i in kept)] for r in (got, expected))
    names = [*(f"argument {i}" for i in range(len(got.arguments))), *(f"result {i}" for i in kept)]
    if sharing(mine) != sharing(eager):
        yield Difference("aliasing", f"shared storages of {names}: {sharing(eager)} expected, {sharing(mine)} got")
    if _identity(mine) != _identity(eager):
        yield Difference("identity", f"same objects of {names}: {_identity(eager)} expected, {_identity(mine)} got")
    if expected.counted != got.counted:
        counted = f"{expected.counted} expected, {got.counted} got"
        yield Difference("version", f"which version counters of the arguments (and inside) moved: {counted}")


def _gradients(expected: Run, got: Run, tolerances: tuple[float, float]) -> Iterator[Difference]:
    for i, (x, y) in enumerate(zip(expected.gradient_targets, got.gradient_targets, strict=True)):
        if not isinstance(x, torch.Tensor) or not x.is_leaf:
            continue
        if x.grad is None and y.grad is not None and expected.partial:  # zeros for nothing
            if any(leaf.any() for leaf in dense_leaves(y.grad)):
                yield Difference("gradient", f"gradient {i} should be nothing", position=i)
            continue
        found = difference(x.grad, y.grad, False, *tolerances)
        if found:
            yield Difference("gradient", f"gradient {i}: {found}", position=i)


def _identity(values: Sequence[Any]) -> list[int]:
    return [next(i for i, y in enumerate(values) if y is x) for x in values]
