"""What the test databases that torch installs hold, as programs: operators, modules, optimizers, custom operators.

Each case makes equal programs as often as it is called, so that one is run by eager mode and one is compiled.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy
import optree
import pytest
import torch
from torch import Tensor, nn
from torch.testing._internal import common_methods_invocations, common_utils
from torch.testing._internal.opinfo import core as opinfo_core

from tests.device import DEVICE

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True)
class Program:
    """A function, what it is called with, and what it may change.

    Attributes:
        function: What is compiled.
        arguments: Makes new, equal arguments.
        state: Gives what else the function may change.
        calls: How many calls are compared.
        is_determined: Whether the values of its results are: those of `torch.empty` are not.
    """

    function: Callable[..., Any]
    arguments: Callable[[], Arguments] = lambda: ((), {})
    state: Callable[[], Any] = list
    calls: int = 2
    is_determined: bool = True


@dataclass(frozen=True)
class Case:
    """A name, and what makes the program."""

    name: str
    program: Callable[[], Program] = field(repr=False)


@dataclass(frozen=True)
class Run:
    """What a program gave: results, gradients, arguments and state afterwards, and which results share memory."""

    results: list[Any]
    gradients: list[Any]
    inputs: list[Any]
    state: list[Any]
    aliases: list[Any]


def seed(number: int) -> None:
    """Sets the seed of every generator that torch's samples draw from."""
    torch.manual_seed(number)
    random.seed(number)
    numpy.random.seed(number)


def tensors(tree: Any) -> list[Any]:
    """Returns the tensors of a tree, those that modules hold among them."""
    found: list[Any] = []
    for leaf in optree.tree_leaves(tree, none_is_leaf=True):
        if isinstance(leaf, nn.Module):
            found += [*leaf.parameters(), *leaf.buffers()]
        elif isinstance(leaf, Tensor):
            found.append(leaf)
    return found


def run(program: Program, compiled: Callable[..., Any]) -> list[Run]:
    """Calls what was compiled, each time with a backward through all results."""
    return [_call(program, compiled, number) for number in range(program.calls)]


def _call(program: Program, compiled: Callable[..., Any], number: int) -> Run:
    args, kwargs = program.arguments()
    seed(number)
    results = compiled(*args, **kwargs)
    found, given = tensors(results), tensors((args, kwargs))
    wanted = [x for x in (*given, *tensors(program.state())) if x.requires_grad and x.is_leaf]
    roots = [x for x in found if x.requires_grad]
    gradients: list[Any] = []
    if roots and wanted:
        gradients = list(torch.autograd.grad(roots, wanted, [_tangent(x) for x in roots], allow_unused=True))
    state = [x.detach().clone() if isinstance(x, Tensor) else x for x in optree.tree_leaves(program.state())]
    return Run(optree.tree_leaves(results, none_is_leaf=True), gradients, given, state, _aliases(found, given))  # type: ignore[arg-type]


def _tangent(x: Tensor) -> Tensor:
    return torch.ones_like(x) * torch.linspace(1, 2, x.numel(), device=x.device).to(x.real.dtype).view(x.shape)


def _aliases(results: list[Tensor], given: list[Tensor]) -> list[Any]:
    """Returns, for each pair of a result and another tensor, whether they are one, or share memory."""
    found: list[Any] = []
    for i, x in enumerate(results):
        for y in (*results[:i], *given):
            found.append("same" if x is y else "shared" if _memory(x) is not None and _memory(x) == _memory(y) else "")
    return found


def _memory(x: Tensor) -> int | None:
    """Returns where the memory of a tensor lies; None if it has none, or no single one."""
    if x.layout is not torch.strided or x.is_nested:
        return None
    return x.untyped_storage().data_ptr() or None


def compare(got: Any, expected: Any, path: str, values: bool = True, **tolerance: float) -> None:
    """Raises AssertionError, with the path, where two results differ."""
    assert type(got) is type(expected), f"{path} is a {type(got).__name__}, and {type(expected).__name__} in eager mode"
    if isinstance(got, list | tuple):
        assert len(got) == len(expected), path
        for i, (a, b) in enumerate(zip(got, expected, strict=True)):
            compare(a, b, f"{path}[{i}]", values, **tolerance)
    elif isinstance(got, Tensor):
        for fact in ("shape", "dtype", "device", "layout", "requires_grad"):
            ours, theirs = getattr(got, fact), getattr(expected, fact)
            assert ours == theirs, f"{path}.{fact} is {ours}, and {theirs} in eager mode"
        if values:
            torch.testing.assert_close(got, expected, equal_nan=True, msg=lambda text: f"{path}: {text}", **tolerance)
    elif isinstance(got, float):
        assert got == pytest.approx(expected, nan_ok=True), path
    elif type(got).__eq__ is not object.__eq__:
        assert got == expected, path


@functools.cache
def cases(database: str) -> list[Case]:
    """Returns the cases of a database."""
    with _quick_samples():
        return list(DATABASES[database]())


@contextlib.contextmanager
def _quick_samples() -> Iterator[None]:
    """Takes from samples the search through the whole stack for a unittest, which lasts longer than the rest."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (common_utils, opinfo_core):
            patch.setattr(module, "extract_test_fn", lambda: None)
        yield


def _copied(x: Any) -> Any:
    if isinstance(x, Tensor):
        return x.detach().clone().requires_grad_(x.requires_grad)
    return x


def _sample(op: Any) -> Any:
    """Returns the first sample of an operator; None if it has none on the device."""
    has = op.supported_dtypes(torch.device(DEVICE).type)
    dtypes = [d for d in (torch.float32, torch.int64, torch.complex64, torch.bool, torch.float64) if d in has]
    if not dtypes or op.name.startswith("jiterator"):  # those run on GPUs only
        return None
    seed(0)
    needs = op.supports_autograd and (dtypes[0].is_floating_point or dtypes[0].is_complex)
    return next(iter(op.sample_inputs(DEVICE, dtypes[0], requires_grad=needs)), None)


_UNDETERMINED = frozenset({"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"})


def _operator(op: Any, sample: Any, function: Callable[..., Any]) -> Program:
    def arguments() -> Arguments:
        tree: Any = ((sample.input, *sample.args), dict(sample.kwargs))
        args, kwargs = optree.tree_map(_copied, tree, none_is_leaf=True)
        return tuple(args), kwargs

    return Program(function, arguments, is_determined=op.name not in _UNDETERMINED)


def _operators(database: list[Any]) -> Iterator[Case]:
    for op in database:
        sample = _sample(op)
        if sample is not None:
            name = f"{op.name}.{op.variant_test_name}".rstrip(".")
            yield Case(name, functools.partial(_operator, op, sample, lambda *a, op=op, **k: op.op(*a, **k)))


def op_db() -> Iterator[Case]:
    """Every operator of torch, its first sample."""
    return _operators(common_methods_invocations.op_db)


def writing_op_db() -> Iterator[Case]:
    """Those that write: in place into a value, in place into an argument, and into `out`."""
    for op in common_methods_invocations.op_db:
        sample = _sample(op)
        if sample is None or not isinstance(sample.input, Tensor):
            continue
        name = f"{op.name}.{op.variant_test_name}".rstrip(".")
        in_place = op.inplace_variant
        if in_place is not None and not sample.broadcasts_input:

            def value(x: Any, *args: Any, write: Any = in_place, **kwargs: Any) -> Any:
                return write(x.clone(), *args, **kwargs)

            def argument(x: Any, *args: Any, write: Any = in_place, **kwargs: Any) -> Any:
                with torch.no_grad():
                    write(x, *args, **kwargs)
                return x * 1

            yield Case(f"{name}, in place", functools.partial(_operator, op, sample, value))
            yield Case(f"{name}, in place on the argument", functools.partial(_operator, op, sample, argument))
        if op.supports_out:
            yield Case(f"{name}, out=", functools.partial(_with_out, op, sample))


def _with_out(op: Any, sample: Any) -> Program:
    program = _operator(op, sample, op.op)

    def arguments() -> Arguments:
        args, kwargs = optree.tree_map(lambda x: _copied(x), program.arguments(), none_is_leaf=True)  # type: ignore[arg-type]
        for x in tensors((args, kwargs)):
            x.requires_grad_(False)
        seed(0)
        out = optree.tree_map(lambda x: torch.zeros_like(x), op.op(*args, **kwargs))
        return tuple(args), {**kwargs, "out": out}

    def function(*args: Any, out: Any, **kwargs: Any) -> Any:
        op.op(*args, **kwargs, out=out)
        return optree.tree_leaves(optree.tree_map(lambda x: x * 1, out)) if not isinstance(out, Tensor) else out * 1

    return Program(function, arguments, is_determined=program.is_determined)


def module_db() -> Iterator[Case]:
    """Every module of torch in training and not, its first two samples."""
    from torch.testing._internal.common_modules import module_db as modules

    for info in modules:
        for training in (True, False):
            seed(0)
            found = info.module_inputs_func(info, DEVICE, torch.float32, True, training)
            for number, sample in enumerate(itertools.islice(found, 2)):
                if sample.forward_input is not None:
                    name = f"{info.name}, {'training' if training else 'eval'}, sample {number}"
                    yield Case(name, functools.partial(_module, info, sample, training))


def _module(info: Any, sample: Any, training: bool) -> Program:
    seed(0)
    given = sample.constructor_input
    module = info.module_cls(*given.args, **given.kwargs).train(training).to(DEVICE)

    def arguments() -> Arguments:
        tree: Any = (sample.forward_input.args, sample.forward_input.kwargs)
        args, kwargs = optree.tree_map(_copied, tree, none_is_leaf=True)
        return tuple(args), kwargs

    return Program(module, arguments, lambda: [*module.parameters(), *module.buffers()])


def optim_db() -> Iterator[Case]:
    """Every optimizer of torch in every configuration: its step alone, and a whole training step."""
    from torch.testing._internal.common_optimizers import optim_db as optimizers

    for info in optimizers:
        for number, sample in enumerate(info.optim_inputs_func(device=DEVICE)):
            for flags in ({}, {"foreach": True}, {"foreach": False}):
                if (
                    flags
                    and "foreach" not in info.supported_impls
                    or {"foreach", "fused"} & set(sample.kwargs) & set(flags)
                ):
                    continue
                how = "".join(f", {k}={v}" for k, v in flags.items())
                name = f"{info.optim_cls.__name__} {number}{how}"
                for whole in (False, True):
                    new = functools.partial(_optimizer, info, {**sample.kwargs, **flags}, whole)
                    yield Case(f"{name}, {'training step' if whole else 'step'}", new)


def _optimizer(info: Any, options: dict[str, Any], whole: bool) -> Program:
    seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2))
    if info.optim_cls.__name__ == "Muon":
        model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Tanh(), nn.Linear(4, 2, bias=False))
    model.to(DEVICE)
    x = torch.randn(5, 4, device=DEVICE)
    options = {k: v.clone() if isinstance(v, Tensor) else v for k, v in options.items()}
    optimizer = info.optim_cls(model.parameters(), **options)
    closure = info.step_requires_closure

    def loss() -> Any:
        optimizer.zero_grad()
        value = model(x).square().sum()
        value.backward()
        return value

    def training_step() -> Any:
        if closure:
            return optimizer.step(loss)
        value = loss()
        optimizer.step()
        return value.detach()

    def step() -> Any:
        optimizer.step()

    def state() -> list[Any]:
        return [*[p.detach() for p in model.parameters()], *_leaves(list(optimizer.state.values()))]

    if whole or closure:
        return Program(training_step, state=state, calls=4)

    def arguments() -> Arguments:
        loss()
        return (), {}

    return Program(step, arguments, state, calls=4)


def _leaves(tree: Any) -> list[Any]:
    return list(optree.tree_leaves(tree, none_is_leaf=True))


def hop_db() -> Iterator[Case]:
    """Higher-order operators: those that have samples on the device."""
    from torch.testing._internal.hop_db import hop_db as operators

    return _operators(operators)


def custom_op_db() -> Iterator[Case]:
    """Custom operators."""
    from torch.testing._internal.custom_op_db import custom_op_db as operators

    return _operators(operators)


def autograd_function_db() -> Iterator[Case]:
    """Functions of `torch.autograd.Function`."""
    from torch.testing._internal.autograd_function_db import autograd_function_db as operators

    return _operators(operators)


DATABASES: dict[str, Callable[[], Iterator[Case]]] = {
    "op_db": op_db,
    "writing_op_db": writing_op_db,
    "module_db": module_db,
    "optim_db": optim_db,
    "hop_db": hop_db,
    "custom_op_db": custom_op_db,
    "autograd_function_db": autograd_function_db,
}
