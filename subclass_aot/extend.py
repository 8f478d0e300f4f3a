"""What another package hooks in by: compilers, operators of another namespace, classes that share a structure.

Everything here is registered by name and imported when it is used; nothing below this module imports it. See the page
*Extending* of the documentation, where each of these is written in a few lines.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any

import torch

from subclass_aot.base._torch.operators import Operator
from subclass_aot.base.logs import announced_to
from subclass_aot.base.written_out import WRITTEN_OUT
from subclass_aot.engine.compilers import BACKENDS
from subclass_aot.engine.compilers import Artifacts as Artifacts
from subclass_aot.engine.compilers import Backend as Backend
from subclass_aot.engine.compilers import BoxedFunction as BoxedFunction
from subclass_aot.engine.structures import STRUCTURES
from subclass_aot.engine.structures import Structure as Structure
from subclass_aot.engine.tables import holders
from subclass_aot.errors import DefinitionError
from subclass_aot.kit.flatten import FlattenPlan as FlattenPlan
from subclass_aot.kit.flatten import IndexMap as IndexMap
from subclass_aot.kit.flatten import SubclassCreationMeta as SubclassCreationMeta
from subclass_aot.kit.wrapper import SERVED
from subclass_aot.meta import Listener as Listener
from subclass_aot.meta import Operation as Operation
from subclass_aot.meta import Spec as Spec
from subclass_aot.meta import Storage as Storage
from subclass_aot.meta import register_meta as register_meta

__all__ = [
    "Artifacts",
    "Backend",
    "BoxedFunction",
    "FlattenPlan",
    "IndexMap",
    "Listener",
    "Operation",
    "Spec",
    "Storage",
    "Structure",
    "SubclassCreationMeta",
    "on_compile",
    "register_backend",
    "register_holder",
    "register_meta",
    "register_namespace",
    "register_structure",
    "register_whole",
]

_TAKEN = """There is a compiler named {name!r} already.
  Instead: another name, as "{package}.{name}"."""


def register_backend(name: str, backend: Backend) -> None:
    """Gives a compiler a name, by which `fw_compiler=` takes it and files know it.

    Args:
        name: The name.
        backend: The compiler, and what it takes.

    Raises:
        DefinitionError: The name is taken.
    """
    if name in BACKENDS:
        raise DefinitionError(_TAKEN.format(name=name, package="yours"))
    BACKENDS[name] = backend


def register_namespace(name: str, make: Callable[[Any, Any], Callable[..., Any] | None]) -> None:
    """Has operators of a namespace that reach wrappers be served by a function of yours.

    Rules of authors go before it, and parts of composite operators.

    Args:
        name: The namespace, as `c10d` of `torch.ops.c10d.allreduce_`.
        make: From the wrapper class and the operator to what is called as the operator is; None for one that is served
            as those of torch are.
    """
    SERVED[name] = make


def register_structure(cls: type[torch.Tensor], structure: Structure) -> None:
    """Says of a wrapper class which of its inner tensors are a structure that several tensors share.

    Args:
        cls: The class.
        structure: What a trace asks of it.
    """
    STRUCTURES[f"{cls.__module__}.{cls.__qualname__}"] = structure


def register_holder(cls: type, view: Callable[[Any], MutableMapping[str, Any]]) -> None:
    """Has what objects of a class hold be read, compared and written, though no dict and no slot has it.

    Args:
        cls: The class, of which no call has brought an object yet.
        view: Makes a mapping by name of what an object holds now. What it cannot remove raises `LastingChangeError`.
    """
    holders.HOLDERS[f"{cls.__module__}.{cls.__qualname__}"] = view


def register_whole(operator: Operator, written_out: Callable[..., Any]) -> None:
    """Has an operator stay whole in graphs for compilers that take it so, and be written out for all others.

    Args:
        operator: An overload, as `torch.ops.mine.product.default`.
        written_out: The function that computes the same, in operators of torch.
    """
    WRITTEN_OUT[operator] = written_out


def on_compile(announce: Callable[[str], object]) -> None:
    """Has a function be called with what is being compiled, and with "" when that is done.

    Args:
        announce: The function.
    """
    announced_to.append(announce)
