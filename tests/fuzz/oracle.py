"""Compares a compiled random program with eager; differences that eager itself shows between modes are accepted."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import optree
import torch

from subclass_aot.base import _torch
from subclass_aot.doors.blocks import compile_blocks
from subclass_aot.engine.compile import CompiledFunction, aot_compile
from subclass_aot.testing.compare import difference
from subclass_aot.testing.runs import INVALIDATED, Difference, Later, Run, differences, observe
from tests.fuzz import caches
from tests.fuzz.programs import Program, mode_of, torch_does_not_warn
from tests.fuzz.templates import LOOKING, PLACED, RESHAPES

EAGER_ONLY = (
    "not implemented for",  # where the result is not used, no kernel is asked
    "is currently only supported for contiguous inputs",  # likewise, of `as_strided_scatter` below a leaf
    "does not support complex input",
    "not supported for complex",
    "index out of range in self",
    "Dimension out of range",  # of kernels of batch normalization
    "the same dtype",
    "expected scalar type",
    "Expected object of scalar type",
    "to have non-zero size",
    "is out of bounds",
    "is not intended to support complex",
    "can't be cast to the desired output type",
    "Boolean inputs not supported",
    "on a bool tensor is not supported",
    "Gradients belong to the outer tensor",  # under no_grad nothing requires grad while it is traced
    "Cannot set version_counter for inference tensor",  # torch's own aliasing of views under inference mode
)
_COARSE = {"bfloat16": torch.bfloat16, "half": torch.float16}
"""The dtypes of little precision that a program may go through, by what stands in its text then."""

LARGER = {2: 4, 3: 5, 4: 6}
"""Other sizes that a program with symbolic ones is called with, too."""

REFUSED = (
    (re.compile(r"custom\.\w+_\("), ("has elements in the same places of memory",)),
    # Windows that overlap: a class may make a fill of its own out of a copy.
    (re.compile(r"unfold|as_strided"), ("several elements are one place in memory", "reaches out of that view")),
    (RESHAPES, ("changes the size or strides", "the view cannot be regenerated")),  # of inputs that change their look
    (re.compile(r"\.(a|b|value|extra|codes|scale|parts\[0\])$"), ("writes into it what requires grad",)),
    (re.compile(r"= TwoTensor\("), ("this inner tensor of a TwoTensor requires grad",)),  # since a write into it
    (re.compile(r"dropout"), ("not implemented for 'Complex", "can't be cast")),  # which eager refuses of dense ones
    # torch warns of results of another size than `out=`, and will refuse them.
    (
        re.compile(r"out="),
        (
            "has another size, stride or offset after the call",
            "is too small for the result",
            "the view cannot be regenerated",
        ),
    ),
)


def check_program(program: Program, seeds: tuple[int, ...] = (1, 2), **options: Any) -> CompiledFunction[..., Any]:
    """Compiles `program` once, and compares a call, and backward, with eager mode for each of `seeds`.

    One with symbolic sizes is called with larger arguments, too; one in which places in memory count, with arguments
    that begin elsewhere.

    Args:
        program: What to check.
        seeds: For the values of its arguments, and for random operators.
        **options: What `aot_compile` is given.

    Returns:
        The compiled function.

    Raises:
        AssertionError: There is a difference that cannot be excused, or the second call was compiled again, though it
            looks at no values.
    """
    compiled = aot_compile(program.function, **{"dynamic": program.symbolic or None, **options})
    for seed in seeds:
        check_call(program, seed, compiled)
    looks = any(LOOKING.search(text) for text, _ in program.statements)
    assert not compiled.recompiles or looks, compiled.recompiles
    if any(PLACED.search(text) for text, _ in program.statements):
        check_call(program.moved(3), seeds[0], compiled)
    if program.symbolic:
        check_call(program.resized(LARGER), seeds[0], compiled)
        # Sizes that depend on data are another matter: whether `view` has a rule in a class may depend on them.
        # So are results of another size than `out=`, which torch will refuse.
        resizes = any("out=" in text for text, _ in program.statements)
        assert looks or resizes or "with symbols it fails" not in compiled.explain()
    return compiled


class _Block(torch.nn.Module):
    """A module that has a program as its forward."""

    def __init__(self, program: Program) -> None:
        super().__init__()
        self.program = program.function

    def forward(self, *args: object) -> Any:
        return self.program(*args)


def check_blocks(program: Program, seeds: tuple[int, ...] = (1, 2, 3)) -> None:
    """Compares calls of two equal blocks in turn, and backward, with eager mode.

    Args:
        program: Their forward.
        seeds: For the values of arguments, and for random operators.

    Raises:
        AssertionError: There is a difference that cannot be excused.
    """
    blocks = torch.nn.ModuleList([_Block(program), _Block(program)])
    compile_blocks(blocks, [_Block], dynamic=program.symbolic or None)
    for seed in seeds:
        check_call(program, seed, blocks[seed % 2])


def check_call(program: Program, seed: int, compiled: Callable[..., Any]) -> None:
    """Compares one call, and backward, with eager mode.

    Args:
        program: The program.
        seed: For the values of its arguments, and for random operators.
        compiled: Its function, compiled.

    Raises:
        AssertionError: There is a difference that cannot be excused.
    """
    expected = _run(program, program.function, seed)
    got = _run(program, compiled, seed, like=expected)
    if _refused(program, got) or _fails_in_every_backward(program, expected, got, seed):
        return
    if expected.failed == "call" and (got.failed == "call" or any(r in str(expected.error) for r in EAGER_ONLY)):
        if got.failed == "call":
            _assert_unchanged(program, expected, got, seed)
        return
    # Of several views that one operator made, autograd gives up all when one is written. A compiled result is a view of
    # another result or of an input only.
    if expected.failed == "after" or program.later.after and any(x is INVALIDATED for x in expected.results):
        return
    if program.mode != "inference":  # there a part of a conjugate may be computed
        assert _bits(got) == _bits(expected), f"{_bits(expected)} expected, {_bits(got)} got (seed {seed})"
    for found in differences(expected, got):
        if _excused(found, program, expected, got) or _minds_a_mode(found, program, got, seed):
            continue
        if _is_rounded_otherwise(found, program, expected, got) or _begins_elsewhere(found, program, got, seed):
            continue
        if not _saves_less(found, program, got, seed):
            raise AssertionError(f"{found.text} (seed {seed})") from found.error


def _bits(run: Run) -> list[tuple[bool, bool]]:
    """Returns which dense results are conjugates and negatives as a bit alone says it."""
    return [(x.is_conj(), x.is_neg()) for x in run.results if type(x) is torch.Tensor]


def _run(
    program: Program, function: Callable[..., Any], seed: int, later: Later | None = None, like: Run | None = None
) -> Run:
    made = program.make_arguments(seed)
    if seed % 2:  # else eager mode has filled them
        caches.clear()
    with torch_does_not_warn():
        return observe(function, made, seed, later or program.later, lambda: mode_of(program), like)


def _minds_a_mode(found: Difference, program: Program, got: Run, seed: int) -> bool:
    """Whether autograd makes another gradient as soon as any dispatch mode is on, as while it is traced.

    Some of its formulas write into what they make, or not, depending on that alone. And those of complex numbers take
    conjugates, which a class that runs operators on its inner tensors takes for what they are conjugates of.
    """
    if found.kind != "gradient":
        return False
    for mode in (_torch.dispatch.PassOn, _torch.dispatch.ConjugatesAtOnce):
        with mode():
            watched = _run(program, program.function, seed)
        if not any(d.kind == "gradient" and d.position == found.position for d in differences(watched, got)):
            return True
    return False


def _begins_elsewhere(found: Difference, program: Program, got: Run, seed: int) -> bool:
    """Whether eager mode writes another element of a gradient, or one that is not there, for where an input begins.

    When a view of a wrapper by `as_strided` was written, autograd regenerates it of the gradient, with the offset that
    it has in the memory of the wrapper; the gradient begins where its own memory does. So the same wrapper there is
    the measure. Of a program whose results depend on where it begins, that measures nothing.
    """
    is_placed = any(PLACED.search(text) for text, _ in program.statements)
    if found.kind not in ("gradient", "no error") or not (is_placed and program.has_wrappers):
        return False
    there = _run(program.moved(-1), program.function, seed)
    return not there.failed and not any(d.kind in ("result", "argument", "gradient") for d in differences(there, got))


def _is_rounded_otherwise(found: Difference, program: Program, expected: Run, got: Run) -> bool:
    """Whether a gradient is a sum in little precision: where results share a base, it is added up in another order."""
    texts = [text for text, _ in program.statements]
    coarse = [torch.finfo(dtype).eps for word, dtype in _COARSE.items() if any(word in text for text in texts)]
    if found.kind != "gradient" or not coarse:
        return False
    again = differences(expected, got, (2 * max(coarse), 2 * max(coarse)))
    return not any(d.kind == "gradient" and d.position == found.position for d in again)


def _saves_less(found: Difference, program: Program, got: Run, seed: int) -> bool:
    """Whether a compiled backward does not need what the user has written, and eager mode has saved all the same."""
    if found.kind != "no error" or "modified by an inplace operation" not in str(found.error):
        return False
    spared = _run(program, _with_copies(program.function), seed)
    return not spared.failed and not any(d.kind == "gradient" for d in differences(spared, got))


def _with_copies(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns copies of computed results, so that a write into them reaches nothing that is saved for backward."""

    def call(*args: object) -> Any:
        return optree.tree_map(lambda x: x.clone() if isinstance(x, torch.Tensor) else x, function(*args))

    return call


def _refused(program: Program, got: Run) -> bool:
    if got.failed != "call":
        return False
    return any(
        any(pattern.search(text) for text, _ in program.statements) and any(r in str(got.error) for r in reasons)
        for pattern, reasons in REFUSED
    )


def _fails_in_every_backward(program: Program, expected: Run, got: Run, seed: int) -> bool:
    """A backward that fails whenever it is run fails where it is traced, or for results that are not used, too."""
    if got.failed not in ("call", "backward") or expected.failed == got.failed:
        return False
    through_all = dataclasses.replace(program.later, used=(True,), after="")
    return _run(program, _with_bases(program.function), seed, through_all).failed == "backward"


def _with_bases(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns what the results are views of, too: a view that was made under no_grad does not lead there itself."""

    def call(*args: object) -> Any:
        results = function(*args)
        bases = [_torch.autograd.base_of(x) for x in optree.tree_leaves(results) if isinstance(x, torch.Tensor)]
        return results, [base for base in bases if base is not None]

    return call


def _assert_unchanged(program: Program, expected: Run, got: Run, seed: int) -> None:
    """Where values decide that a call fails, the function itself runs, and has written as much as in eager mode."""
    before, _ = program.make_arguments(seed)
    for i, (x, y, z) in enumerate(zip(before, got.arguments, expected.arguments, strict=True)):
        d = difference(x.detach(), y.detach())
        assert not d or not difference(z.detach(), y.detach()), f"x{i} changed although the call failed: {d}"


def _excused(found: Difference, program: Program, expected: Run, got: Run) -> bool:
    inference = program.mode == "inference"
    given_up = [i for i, x in enumerate(got.results) if inference and x is INVALIDATED]
    if given_up and found.kind in ("result", "gradient"):  # a write counts that does not count in eager mode
        return found.kind == "gradient" or found.position in given_up
    if found.kind in ("result", "argument"):  # of views of a written input, autograd says one thing or another
        return inference and (INVALIDATED in found.text or " is_leaf " in found.text)
    if found.kind in ("version", "aliasing") and any(".resolve_conj()" in text for text, _ in program.statements):
        return True  # in eager mode a wrapper of lazy views has them for itself, and writes into it are counted there
    if found.kind in ("version", "identity"):  # a foreign class is given composite operators whole, and wraps anew
        return inference
    if found.kind == "error" and got.failed == "backward":  # eager does not look at results that are not used
        return expected.partial and bool(program.later.after)
    if found.kind == "no error" and "no autograd formula was registered" in str(expected.error):
        return any(no_grad for _, no_grad in program.statements)  # of a view made under no_grad, which leads nowhere
    if found.kind == "no error" and "A view was created in no_grad mode" in str(expected.error):
        return any(no_grad for _, no_grad in program.statements)  # eager adds a gradient to a view that nobody has
    if found.kind == "no error" and expected.failed == "backward":
        # Only eager shares version counters; and of an input that the program writes where autograd sees it, a compiled
        # backward keeps the value and not the tensor, so that the user may write into it.
        written = program.later.after and any(a.grad not in ("none", "leaf") for a in program.arguments)
        return bool(written) or any(argument.alias for argument in program.arguments)
    if found.kind == "gradient":  # its class may depend on what autograd copies it into when a view is written
        kinds = {argument.tree.kind for argument in program.arguments} - {"dense"}
        x, y = (run.gradient_targets[found.position].grad for run in (expected, got))
        return len(kinds) > 1 and type(x) is not type(y)
    return False
