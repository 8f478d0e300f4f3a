"""The one place that every operator on leaves goes through: it infers specs, makes leaves, and keeps aliasing right."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import torch

from subclass_aot.base._stack import user_line
from subclass_aot.base._torch.operators import Operator
from subclass_aot.base.operators import PHYSICAL, Effects, argument_at, effects_of
from subclass_aot.errors import MutationError, TraceError
from subclass_aot.meta.by_example import infer_by_example
from subclass_aot.meta.infer import infer, on_new_rule, solver_of_call
from subclass_aot.meta.operation import tell_listeners
from subclass_aot.meta.places import run_on_inputs
from subclass_aot.meta.rules.forms import set_to_memory
from subclass_aot.meta.spec import Spec
from subclass_aot.meta.storage import MEMORY, Storage, in_thread
from subclass_aot.meta.symbols import SizesMustBeKnown, cache_of, key_of
from subclass_aot.meta.tensor import MetaTensor, is_over, new_leaf, set_spec
from subclass_aot.meta.threads import is_elsewhere
from subclass_aot.meta.unbacked import unbacked_rule

REAL_WRITTEN = """A result without data would be written into a real one: the tensor `{name}`.
  Your line:  {line}
  Instead: use a MetaTensor there, too, as in MetaTensor.like(tensor)."""

_OVER = """{operator} is given a tensor that belongs to a trace that is over, and has no data.
  Your line:  {line}
  The tensor: {tensor}
  It was kept while a function was traced, in a place that a later call does not fill again.
  Instead: return it from the function, or keep it in an attribute of an argument or of a module that is compiled."""


def run(func: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: C901  # one frame is faster
    """Runs one operator on leaves.

    Args:
        func: The operator overload.
        args: Its arguments; tensors are `MetaTensor`s or plain ones.
        kwargs: Its keyword arguments, likewise.

    Returns:
        What the operator returns, with `MetaTensor`s for tensors. A written argument comes back as the same object,
        a view has the storage of what it is a view of.
    """
    # A number's type matters to promotion, and 1 == 1.0 == True: types are in the key beside values. Symbolic numbers
    # are in lists, which have no hash: theirs would make an assumption.
    key: list[Any] = [id(func), torch.get_default_dtype()]
    for a in args:
        kind = type(a)
        if kind is MetaTensor:
            key.append(a.meta_spec)
        elif kind is list or kind is tuple:
            _list_key(a, key)
        elif isinstance(a, torch.Tensor):
            key.append(Spec.of(a))
        else:
            key.append(kind)
            key.append(a if kind not in _SYMBOLIC else [a])
    for name in kwargs:
        key.append(name)
        a = kwargs[name]
        if isinstance(a, torch.Tensor):
            key.append(Spec.of(a) if type(a) is not MetaTensor else a.meta_spec)
        elif type(a) in (list, tuple):
            _list_key(a, key)
        else:
            key.append(type(a))
            key.append(a if type(a) not in _SYMBOLIC else [a])
    try:
        effects, specs = _cache[tuple(key)]
    except (KeyError, TypeError):  # not there yet, or an argument that cannot be hashed
        effects, specs = _inferred(key, func, _specs(args), _specs(kwargs))
    if type(specs) is Spec:
        if effects.pure:
            return new_leaf(specs)
        viewed = effects.returns_view_of[0]
        if viewed is not None:
            return _view(specs, argument_at(viewed, args, kwargs))
    if effects.pure:
        return _blanks(specs)
    if func in _SETS and type(args[0]) is MetaTensor:
        args[0].meta_storage = Storage.of(args[1]) if len(args) > 1 else Storage(specs)
    return _aliased(effects, specs, args, kwargs)


def _dispatch(
    cls: type[MetaTensor],
    func: Operator,
    types: Collection[type[torch.Tensor]],
    args: tuple[Any, ...] = (),
    kwargs: dict[str, Any] | None = None,
) -> Any:
    """Returns the body of `MetaTensor.__torch_dispatch__`."""
    if not (LEAF_TYPES.issuperset(types) or only_leaves(types)):
        return NotImplemented
    kwargs = kwargs or {}
    for a in args:
        if type(a) is MetaTensor:
            if a.meta_tag is not None and _is_elsewhere(func, a):
                return run_on_inputs(func, args, kwargs)
        elif type(a) is list:
            for b in a:
                if type(b) is MetaTensor and b.meta_tag is not None and _is_elsewhere(func, b):
                    return run_on_inputs(func, args, kwargs)
        elif type(a) in MEMORY:
            return set_to_memory(*args)
    func = PHYSICAL.get(func, func)
    result = run(func, args, kwargs)
    if in_thread.listeners:
        tell_listeners(None, func, args, kwargs, result)
    return result


MetaTensor.__torch_dispatch__ = classmethod(_dispatch)


def _inferred(key: list[Any], func: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Effects, Any]:
    """Infers, and caches where the arguments can be hashed: with symbolic numbers, for as long as their trace."""
    if func in _ASK_FOR_SIZES:
        raise SizesMustBeKnown
    effects = effects_of(func)
    if unbacked_rule(func) is not None:  # each time another result
        return effects, infer(func, args, kwargs)
    solver = solver_of_call(key)
    cache = _cache if solver is None else cache_of(solver, "inferred")
    # What a draw gives does not depend on its generator, which would live as long as the cache.
    frozen = tuple([part if type(part) in _OFTEN else _frozen(part) for part in key])
    try:
        found = cache.get(frozen)
    except TypeError:
        return effects, infer(func, args, kwargs)
    if found is None:
        specs = None if solver is None else infer_by_example(func, args, kwargs)
        found = effects, infer(func, args, kwargs) if specs is None else specs
        if len(cache) > _CACHE_LIMIT:
            cache.clear()
        cache[frozen] = found
    return found


def _frozen(part: Any) -> Any:
    if type(part) is list:
        return key_of(*part)
    return None if isinstance(part, torch.Generator) else part


_OFTEN = frozenset({Spec, int, float, bool, str, type, type(None), torch.dtype})
"""What stands in a key as it is. Whether something is a generator, a class of torch's answers in Python."""


def _is_elsewhere(func: Operator, leaf: MetaTensor) -> bool:
    """Returns whether another thread traces a tensor, or has traced it.

    Raises:
        TraceError: The trace is over.
    """
    if is_elsewhere(leaf.meta_tag):
        return True
    if is_over(leaf):
        raise TraceError(_OVER.format(operator=func, line=user_line(), tensor=leaf))
    return False


def only_leaves(types: Collection[type[torch.Tensor]]) -> bool:
    """Returns True if no argument is a wrapper or some other tensor that wants to see the operator first."""
    for kind in types:
        if kind in LEAF_TYPES:
            continue
        if kind.__torch_dispatch__ is not _DENSE_DISPATCH:
            return False
        LEAF_TYPES.add(kind)
    return True


def _aliased(effects: Effects, specs: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Makes results of which some are arguments, or views of arguments."""
    for place in effects.writes:
        target = argument_at(place, args, kwargs)
        for leaf in target if type(target) in (list, tuple) else (target,):
            if isinstance(leaf, torch.Tensor) and type(leaf) is not MetaTensor and not leaf.is_meta:
                raise MutationError(REAL_WRITTEN.format(name=place[1], line=user_line()))
    if not effects.returns_written:  # as `_foreach_add_`
        return None
    single = type(specs) is not tuple or len(effects.returns_written) != len(specs)
    results = []
    for spec, written, viewed in zip(
        (specs,) if single else specs, effects.returns_written, effects.returns_view_of, strict=True
    ):
        if written is not None:
            argument = argument_at(written, args, kwargs)
            if type(argument) is not MetaTensor:  # one of torch's own on the meta device
                if not Spec.of(argument).equals(spec):
                    raise MutationError(REAL_WRITTEN.format(name=written[1], line=user_line()))
            elif argument.meta_spec is not spec and not argument.meta_spec.equals(spec):
                set_spec(argument, spec)
            results.append(argument)
        elif viewed is not None:
            argument = argument_at(viewed, args, kwargs)
            results.append([_view(s, argument) for s in spec] if type(spec) is list else _view(spec, argument))
        else:
            results.append(_blanks(spec))
    return results[0] if single else tuple(results)


def _blanks(specs: Any) -> Any:
    """Returns new leaves for the specs of results: of one, or of several, which may be lists in turn."""
    kind = type(specs)
    if kind is Spec:
        return new_leaf(specs)
    return kind([_blanks(s) for s in specs]) if kind is tuple or kind is list else specs


def _view(spec: Spec, of: Any) -> MetaTensor:
    """Makes a view. Of a normal tensor it is one in inference mode, too: autograd has it share the version counter."""
    storage = of.meta_storage if type(of) is MetaTensor else Storage.of(of)
    if torch.is_inference_mode_enabled() and not of.is_inference():
        with torch.inference_mode(False):
            return new_leaf(spec, storage)
    return new_leaf(spec, storage)


def _list_key(values: Iterable[Any], key: list[Any]) -> None:
    key.append("[")
    for v in values:
        if type(v) is MetaTensor:
            key.append(v.meta_spec)
        elif isinstance(v, torch.Tensor):
            key.append(Spec.of(v))
        else:
            key.append(type(v))
            key.append(v if type(v) not in _SYMBOLIC else [v])
    key.append("]")


def _specs(values: Any) -> Any:
    """Returns the same structure with specs for tensors."""
    kind = type(values)
    if kind is MetaTensor:
        return values.meta_spec
    if kind is tuple or kind is list:
        return kind([_specs(v) for v in values])
    if kind is dict:
        return {k: _specs(v) for k, v in values.items()}
    return Spec.of(values) if isinstance(values, torch.Tensor) else values


_DENSE_DISPATCH = torch.Tensor.__torch_dispatch__
_SYMBOLIC = frozenset({torch.SymInt, torch.SymFloat, torch.SymBool})
LEAF_TYPES: set[type] = {MetaTensor, torch.Tensor, torch.nn.Parameter}
_SETS = frozenset(getattr(torch.ops.aten.set_, name) for name in torch.ops.aten.set_.overloads())
_ASK_FOR_SIZES = frozenset({torch.ops.aten.size.default, torch.ops.aten.stride.default})
"""What torch calls where a formula in C++ wants plain numbers, and a tensor has symbolic ones."""
_CACHE_LIMIT = 200_000
_cache: dict[tuple[Any, ...], tuple[Effects, Any]] = {}
on_new_rule.append(_cache.clear)
