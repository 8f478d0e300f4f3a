"""A program with all that it is given, without data."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterator
from typing import Any

import optree
import torch

from subclass_aot.base import _torch
from subclass_aot.base._stack import first_line, pass_on_interruption
from subclass_aot.base.left_alone import reached
from subclass_aot.cost.profiling.closures import Closures, Shells
from subclass_aot.cost.without_data import deep_copied, is_kept
from subclass_aot.errors import ProfileError, SubclassAotError
from subclass_aot.meta import MetaTensor

PyTree = Any
"""Any object, of which optree finds the leaves."""

_NO_COPY = """The program cannot be copied to run without data: {error}
  A profile runs a copy, so that nothing of yours is changed.
  Instead: make the model in `with sa.meta():`, and profile it there, with `with sa.profile(model) as report:`."""


_MORE_DATA = """{name!r} is of the class {cls} of {library}, whose other data no copy without data has: {others}.
  A profile runs a copy, in which each tensor is one without data.
  Instead: run it on its data: with sa.profile(model) as report: step(...); or quantize a copy of the model with
  sa.quantize_(model, sa.Int8Weight), and profile that."""


def without_data(tree: PyTree, device: torch.device | None, originals: list[torch.Tensor] | None = None) -> Any:
    """Returns a copy of a tree of modules, optimizers, tensors and other objects in which no tensor has data.

    What is the same object in several places stays the same in all. In a run without data, small tensors of integers
    and single numbers keep their values, which a program may read.

    Args:
        tree: Any tree.
        device: What its tensors claim to be on; their own if left out.
        originals: Gets the tensors that were copied.

    Raises:
        ProfileError: It cannot be copied.
    """
    for name, tensor in _named_tensors(tree):
        _refuse_more_data(name, tensor)

    def of_tensor(tensor: torch.Tensor) -> torch.Tensor:
        if originals is not None:
            originals.append(tensor)
        return _without_data(tensor, device)

    return copied(tree, of_tensor)


def _named_tensors(tree: PyTree) -> Iterator[tuple[str, torch.Tensor]]:
    for module in modules_in(tree):
        yield from module.named_parameters()
        yield from module.named_buffers()


def _refuse_more_data(name: str, tensor: torch.Tensor) -> None:
    """Raises an error for a tensor that has more than its elements, and no way to say it, as those of bitsandbytes."""
    cls = type(tensor)
    library = cls.__module__.partition(".")[0]
    if library in ("torch", "subclass_aot") or not vars(tensor):
        return
    if not _torch.wrappers.is_traceable_wrapper_subclass(tensor):
        others = ", ".join(sorted(vars(tensor)))
        raise ProfileError(_MORE_DATA.format(name=name, cls=cls.__name__, library=library, others=others))


def copied(tree: PyTree, of_tensor: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """Returns a copy of a tree of modules, optimizers, tensors and other objects.

    Args:
        tree: Any tree.
        of_tensor: Returns what stands for a tensor.

    Raises:
        ProfileError: It cannot be copied.
    """
    closures = closures_of(tree)
    memo: dict[int, Any] = {}
    beside = (x for x in reached([*closures.values, *_objects_in(tree)]) if isinstance(x, torch.Tensor))
    for tensor in (*_tensors_in(tree), *beside):
        if id(tensor) not in memo:
            memo[id(tensor)] = of_tensor(tensor)
    shells = Shells(closures.functions)
    memo.update({id(function): made for function, made in shells})
    try:
        others = (x for x in reached(closures.values) if isinstance(x, torch.optim.Optimizer))
        for optimizer in (*optimizers_in(tree), *others):
            if id(optimizer) not in memo:
                made = memo[id(optimizer)] = object.__new__(type(optimizer))
                # torch's own copies leave out attributes, those of LBFGS too
                vars(made).update(deep_copied(vars(optimizer), memo))
                vars(made).update({key: memo.get(id(x), x) for key, x in vars(optimizer).items() if callable(x)})
        for value in closures.values:
            deep_copied(value, memo)
        shells.fill(memo)
        found: PyTree = deep_copied(tree, memo)
        return (
            optree.tree_map(lambda x: shells.other(x, memo), found, none_is_leaf=True) if closures.functions else found
        )
    except Exception as error:  # of whatever objects the program has
        pass_on_interruption(error)
        if isinstance(error, SubclassAotError):
            raise
        raise ProfileError(_NO_COPY.format(error=first_line(error))) from error


def _objects_in(tree: PyTree) -> list[Any]:
    """Returns the leaves of a tree that may hold tensors, and are no functions."""
    known = torch.Tensor | torch.nn.Module | torch.optim.Optimizer | types.FunctionType
    return [x for x in optree.tree_leaves(tree, none_is_leaf=True) if not isinstance(x, known)]


def closures_of(tree: PyTree) -> Closures:
    """Returns what the functions and other objects among the leaves of a tree lead to."""
    leaves = [
        x for x in optree.tree_leaves(tree, none_is_leaf=True) if not isinstance(x, torch.Tensor | torch.nn.Module)
    ]
    return Closures([*leaves, *_functions_of_modules(tree)], set(map(id, _tensors_in(tree))))


def _functions_of_modules(tree: PyTree) -> list[Any]:
    """Returns the hooks of modules, and functions that they have as attributes, as a forward that was replaced."""
    found: list[Any] = []
    for part in (part for module in modules_in(tree) for part in module.modules()):
        for value in vars(part).values():
            parts = value.values() if isinstance(value, dict) else (value,)
            found += [x for x in parts if isinstance(x, types.FunctionType | types.MethodType | functools.partial)]
    return found


def _like(tensor: torch.Tensor, device: torch.device | None) -> torch.Tensor:
    made = MetaTensor.like(tensor, device=device)
    if isinstance(tensor, torch.nn.Parameter):
        made = torch.nn.Parameter(made.detach(), requires_grad=tensor.requires_grad)
    if tensor.is_leaf and tensor.grad is not None:
        made.grad = MetaTensor.like(tensor.grad, device=device)
    return made  # type: ignore[no-any-return]


def _without_data(tensor: torch.Tensor, device: torch.device | None) -> torch.Tensor:
    if is_small_number(tensor):
        return tensor.to(tensor.device if device is None or not tensor.dim() else device, copy=True)
    value = _filled_with(tensor)
    return _like(tensor, device) if value is None else torch.full_like(tensor, value, device=device)


def _is_number(tensor: torch.Tensor) -> bool:
    return type(tensor) is torch.Tensor and not (
        tensor.is_meta or tensor.requires_grad or tensor.layout != torch.strided
    )


def is_small_number(tensor: torch.Tensor) -> bool:
    """Returns whether values may decide what a program does: those of masks, positions, lengths, counted steps."""
    return _is_number(tensor) and (not tensor.dim() or (not tensor.is_floating_point() and is_kept(tensor)))


def _filled_with(tensor: torch.Tensor) -> int | None:
    """Returns what is everywhere in a long tensor of integers, as a mask that leaves nothing out; None of others."""
    if not _is_number(tensor) or tensor.is_floating_point() or tensor.is_complex() or not tensor.numel():
        return None
    with _torch.dispatch.disable_current_modes():
        first = tensor[(0,) * tensor.dim()]
        return first.item() if bool((tensor == first).all()) else None  # type: ignore[return-value]


def of_training(tree: PyTree) -> list[Any]:
    """Returns the modules and the optimizers that a program leads to beside the leaves of its tree."""
    found = [x for x in reached(closures_of(tree).values) if isinstance(x, torch.nn.Module | torch.optim.Optimizer)]
    known = {id(x) for module in modules_in(tree) for x in module.modules()} | set(map(id, optimizers_in(tree)))
    inside = {id(x) for module in found if isinstance(module, torch.nn.Module) for x in [*module.modules()][1:]}
    return [x for x in found if id(x) not in known | inside]


def modules_in(tree: PyTree) -> list[torch.nn.Module]:
    """Returns the modules among the leaves of a tree."""
    leaves = optree.tree_leaves(tree, none_is_leaf=True)
    return [x for x in leaves if isinstance(x, torch.nn.Module)]


def optimizers_in(tree: PyTree) -> list[torch.optim.Optimizer]:
    """Returns the optimizers among the leaves of a tree."""
    leaves = optree.tree_leaves(tree, none_is_leaf=True)
    return [x for x in leaves if isinstance(x, torch.optim.Optimizer)]


def _tensors_in(tree: PyTree) -> Iterator[torch.Tensor]:
    """Yields the tensors of a tree, of its modules, also those that are plain attributes, and of its optimizers."""
    for leaf in optree.tree_leaves(tree, none_is_leaf=True):
        if isinstance(leaf, torch.Tensor):
            yield leaf
        elif isinstance(leaf, torch.optim.Optimizer):
            yield from _tensors_in([dict(group) for group in leaf.param_groups])
            yield from _tensors_in([dict(state) for state in leaf.state.values()])
        elif isinstance(leaf, torch.nn.Module):
            for module in leaf.modules():
                yield from module.parameters(recurse=False)
                yield from module.buffers(recurse=False)
                yield from (x for x in vars(module).values() if isinstance(x, torch.Tensor))
