"""Puts random draws into a form that inductor compiles right.

Note [Draws by inductor]
~~~~~~~~~~~~~~~~~~~~~~~~
Inductor draws in the kernels that read the numbers, from a seed that torch's generator gives; so does `torch.compile`.
These are not the numbers of eager mode. With its switch `fallback_random` a kernel of eager mode draws, and the numbers
are eager's under one seed.

For `bernoulli`, which dropout is made of on a CPU, inductor (torch 2.13) has a form of its own: it fills a tensor in
place. What reads that tensor may be fused with what comes before, and is then computed before the tensor is filled. So
`bernoulli` is a comparison of uniform numbers where inductor draws, and elsewhere an operator that returns what it
draws. So is an operator whose name is a keyword of Python: the text of a graph that has it cannot be run.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, fx

from subclass_aot.base import _torch

_aten = torch.ops.aten


def inductor_decompositions() -> Mapping[Any, Callable[..., Any]]:
    """Returns the operators that are replaced in a graph for inductor. See Note [Draws by inductor]."""
    table: Mapping[Any, Callable[..., Any]] = _torch.inductor.inductor_decompositions()
    return table if _torch.inductor.draws_as_eager() else {**table, **_BY_UNIFORM}


def keep_draws(graph: fx.Graph) -> None:
    """Replaces draws that inductor does not compile right by operators that it calls as they are.

    Args:
        graph: A graph without writes. It is changed.
    """
    for func in (_aten.bernoulli.p, _aten.bernoulli.Tensor, getattr(_aten.random, "from")):
        for node in graph.find_nodes(op="call_function", target=func):
            node.target = _as_it_is(func)


def _bernoulli_(x: Tensor, p: float | Tensor = 0.5, *, generator: torch.Generator | None = None) -> Any:
    return NotImplemented if generator is not None else x.copy_(_bernoulli(x, p))


def _bernoulli(x: Tensor, p: float | Tensor = 0.5, *, generator: torch.Generator | None = None) -> Any:
    if generator is not None:
        return NotImplemented
    return (torch.rand_like(x, dtype=torch.float32) < p).to(x.dtype)


_BY_UNIFORM: dict[Any, Callable[..., Any]] = {
    _aten.bernoulli_.float: _bernoulli_,
    _aten.bernoulli_.Tensor: _bernoulli_,
    _aten.bernoulli.p: _bernoulli,
    _aten.bernoulli.Tensor: _bernoulli,
}


@functools.cache
def _as_it_is(func: _torch.operators.Operator) -> _torch.operators.Operator:
    """Returns an operator that does what `func` does, and that inductor knows nothing of."""
    name = func.name().partition("::")[2].replace(".", "_")
    schema = str(_torch.operators.schema_of(func)).partition("(")[2]
    tags = (torch.Tag.nondeterministic_seeded,)
    _library.define(f"{name}({schema}", tags=tags)
    _library.impl(name, func, "CompositeExplicitAutograd")
    made: _torch.operators.Operator = getattr(torch.ops.subclass_aot, name).default
    return made


_library = torch.library.Library("subclass_aot", "FRAGMENT")
