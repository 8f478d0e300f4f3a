"""Infers the specs of results with symbolic sizes: by a formula, which is held against what is inferred for an example.

Note [Results by example]
~~~~~~~~~~~~~~~~~~~~~~~~~
Torch's rules for shapes, on symbolic sizes, are Python functions that ask a solver dozens of questions for each
operator. Most operators of a model need none of these: a product of two packed tensors of one size is a packed tensor
of that size, whatever the size is.

So a formula (`rules/formulas.py`) says sizes, strides and offset of what an operator gives, and gives no answer where
it depends on more than on which numbers are the same expression. Everything else of the result (its dtype, its device,
what is refused) is inferred for the sizes that the call has, without symbols, and there the numbers have to be those of
the formula. If they are not, or if there is no formula, torch's rule is asked with symbols.

Of views, copies, and plain arithmetic on floats of one precision, there is nothing else that could differ: the result
has the dtype and the device of the first tensor, and what is refused the formula refuses (`of_first`). No example is
inferred for these, unless a user has registered a rule.

What a formula says has to be right for all sizes that its symbols may have. Where that depends on whether a size is at
least two, or one stride less than another, it asks the solver, which puts a guard if the answer is not known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.base._stack import pass_on_interruption
from subclass_aot.base._torch.operators import Operator
from subclass_aot.base.operators import effects_of
from subclass_aot.meta.infer import has_rule_of_user, infer, on_new_rule
from subclass_aot.meta.rules.formulas import NoFormula, formula_of, of_first
from subclass_aot.meta.spec import Spec
from subclass_aot.meta.symbols import is_symbolic, unbacked_sizes


def infer_by_example(func: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Infers what an operator gives on specs with symbols; None where only torch's rule with symbols says it.

    Args:
        func: The operator overload.
        args: Positional arguments, every tensor replaced by its `Spec`.
        kwargs: Keyword arguments, likewise.
    """
    formula = formula_of(func)
    if formula is None:
        return None
    try:
        given = effects_of(func).bind(args, kwargs)
        places = formula(**given)
        like = None if has_rule_of_user(func) else of_first(func, given)
        if like is not None and type(places) is tuple:
            size, stride, offset = places
            return Spec.make(size, stride, offset, like.dtype, like.device, like.layout)
        with unbacked_sizes(None), _torch.dispatch.no_python_dispatcher():
            example = _example(func, *_known((args, kwargs)))
    except (NoFormula, TypeError):  # a parameter that the formula does not know, or a number that data decides
        return None
    except Exception as error:  # of a rule: with symbols, it is raised once more
        pass_on_interruption(error)
        return None
    return _filled(example, places)


def _example(func: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Infers what an operator gives on specs with numbers; once, as traces without symbols do."""
    key = id(func), torch.get_default_dtype(), _key_of((args, kwargs))
    try:
        return _examples[key]
    except KeyError:
        is_kept = True
    except TypeError:  # an argument that cannot be hashed
        is_kept = False
    found = infer(func, args, kwargs)
    if is_kept and len(_examples) < _LIMIT:
        _examples[key] = found
    return found


def _key_of(value: Any) -> Any:
    """Returns what is equal for arguments of which an operator gives the same: 1, 1.0 and True are not.

    Symbolic numbers are in lists, which have no hash: theirs would make an assumption.
    """
    kind = type(value)
    if kind is tuple or kind is list:
        return kind, *map(_key_of, value)
    if kind is dict:
        return tuple((name, _key_of(each)) for name, each in value.items())
    if isinstance(value, torch.Generator):  # it would live as long as the cache, and counts for nothing
        return torch.Generator
    return value if kind is Spec else (kind, [value] if is_symbolic(value) else value)


_LIMIT = 200_000
_examples: dict[Any, Any] = {}
on_new_rule.append(_examples.clear)


def _known(value: Any) -> Any:
    """Returns arguments with numbers for symbols: those of the call."""
    if type(value) is Spec:
        return value if value.solver is None else _filled_in(value)
    if type(value) is tuple or type(value) is list:
        return type(value)([_known(each) for each in value])
    if type(value) is dict:
        return {name: _known(each) for name, each in value.items()}
    if is_symbolic(value):
        return _torch.symbolic.example_of(value)  # refuses what is no size
    return value


def _filled_in(spec: Spec) -> Spec:
    size, stride, offset = _numbers(spec.size), _numbers(spec.stride), _numbers((spec.offset,))[0]
    return Spec.make(size, stride, offset, spec.dtype, spec.device, spec.layout)


def _numbers(numbers: Sequence[Any]) -> tuple[int, ...]:
    return tuple([n if type(n) is int else _torch.symbolic.example_of(n) for n in numbers])


def _filled(example: Any, places: Any) -> Any:
    """Returns what was inferred for an example, with symbols in sizes and strides; None if these do not fit."""
    if type(example) is Spec:
        if type(places) is not tuple:
            return None
        size, stride, offset = places
        given = _numbers(size), _numbers(stride), *_numbers((offset,))
        if given != (example.size, example.stride, example.offset):
            return None
        return Spec.make(size, stride, offset, example.dtype, example.device, example.layout)
    if type(example) not in (tuple, list) or type(places) is not list or len(places) != len(example):
        return None
    found = [
        each if type(each) is not Spec else _filled(each, place) for each, place in zip(example, places, strict=True)
    ]
    is_whole = all(type(new) is type(each) for new, each in zip(found, example, strict=True))
    return type(example)(found) if is_whole else None
