"""Training fields of a wrapper, and not the tensor as a whole: low-rank factors, learned scales."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.utils import parametrize

from subclass_aot.base import _torch
from subclass_aot.errors import ShardingError
from subclass_aot.kit.declaration import Declaration
from subclass_aot.kit.wrapper.declare.construct import inner_tensors
from subclass_aot.kit.wrapper.declare.gradients import construct

_NO_WRAPPER = """train_fields: {name} of this {module} is {what}, and not a parameter of a class with declared fields.
  Instead: first make it one, as in module.{name} = torch.nn.Parameter(LoraWeight(...), requires_grad=False)."""

_NO_FIELD = """train_fields: {field!r} is no field of the {cls} `{name}` that can be trained.
  Those that can: {fields}."""

_CUT_ALONE = """Tensor parallelism cannot cut the {cls} that is `{name}` of a {module}.
  why: train_fields made parameters of its fields, and each would be cut by itself.
  Instead: torch.distributed.fsdp.fully_shard (FSDP2), which brings the fields together before they are used."""


def train_fields(module: nn.Module, name: str, *fields: str) -> None:
    """Makes the fields of a wrapper parameter parameters of their own, of which the named ones are trained.

    From then on `module.name` is made of them whenever it is read, as torch's own parametrizations are:
    `torch.nn.utils.parametrize.remove_parametrizations(module, name)` makes it one parameter again. Optimizers see the
    fields. The others are frozen.

    Args:
        module: The module that has the parameter.
        name: The name of the parameter there.
        fields: Which fields are trained: floating point ones, and no structure. A field of several tensors means each.

    Raises:
        TypeError: The parameter is not a tensor of a class with declared fields.
        ValueError: A field is unknown, absent, or cannot be trained.

    >>> from subclass_aot import Int8Weight
    >>> layer = nn.Linear(4, 2, bias=False)
    >>> layer.weight = nn.Parameter(Int8Weight.from_float(layer.weight), requires_grad=False)
    >>> train_fields(layer, "weight", "scale")
    >>> layer(torch.ones(3, 4)).sum().backward()
    >>> [tuple(p.shape) for p in layer.parameters() if p.grad is not None], type(layer.weight).__name__
    ([(2, 1)], 'Int8Weight')
    """
    wrapper: Any = dict(module.named_parameters(recurse=False)).get(name)
    declaration = Declaration.of(type(wrapper))
    if declaration is None:
        what = "no parameter" if wrapper is None else f"a {type(wrapper).__name__}"
        raise TypeError(_NO_WRAPPER.format(name=name, module=type(module).__name__, what=what))
    inner = inner_tensors(wrapper)
    trainable = {
        each: declaration.field_of(each)
        for each, tensor in inner.items()
        if (tensor.is_floating_point() or tensor.is_complex()) and not declaration.is_structure(each)
    }
    for field in fields:
        if field not in trainable.values():
            known = ", ".join(sorted(set(trainable.values()))) or "none"
            raise ValueError(_NO_FIELD.format(field=field, cls=type(wrapper).__name__, name=name, fields=known))
    wrapper.requires_grad_(False)
    parametrize.register_parametrization(module, name, _OfFields(wrapper), unsafe=True)
    originals: Any = module.parametrizations[name]  # type: ignore[index]
    for i, each in enumerate(inner):
        getattr(originals, f"original{i}").requires_grad_(trainable.get(each) in fields)
    made: Any = type(module)  # by torch, for this module alone
    made.register_parameter = _registering(made)
    setattr(made, _torch.modules.IS_DISTRIBUTED, _RefusedToTensorParallelism())


class _OfFields(nn.Module):
    """A wrapper as a function of its inner tensors."""

    def __init__(self, like: Any) -> None:
        super().__init__()
        self.cls = type(like)
        self.names = tuple(inner_tensors(like))
        self.others = like.__wrapper_state__()

    @_torch.dynamo.not_by_dynamo  # type: ignore[untyped-decorator]  # which has no way to trace how a tensor of a subclass is made
    def forward(self, *tensors: torch.Tensor) -> Any:
        """Returns the wrapper that holds these inner tensors."""
        return construct(self.cls, {**dict(zip(self.names, tensors, strict=True)), **self.others})

    def right_inverse(self, wrapper: Any) -> tuple[torch.Tensor, ...]:
        """Returns the inner tensors of a wrapper."""
        return tuple(inner_tensors(wrapper).values())


class _RefusedToTensorParallelism:
    """The attribute that torch reads of a module before tensor parallelism cuts its parameters."""

    def __get__(self, module: nn.Module | None, cls: type) -> Any:
        if module is not None:
            _refuse_to_cut(module)
        raise AttributeError(_torch.modules.IS_DISTRIBUTED)


def _registering(made: type[nn.Module]) -> Callable[..., None]:
    """Returns what does as `Module.register_parameter` of a class does, for all but a parameter that was cut."""

    def register_parameter(self: nn.Module, name: str, param: nn.Parameter | None) -> None:
        if _torch.wrappers.is_distributed(param):
            _refuse_to_cut(self)
        super(made, self).register_parameter(name, param)  # type: ignore[misc]

    return register_parameter


def _refuse_to_cut(module: nn.Module) -> None:
    for name, made_by in getattr(module, "parametrizations", {}).items():
        for each in made_by:
            if isinstance(each, _OfFields):
                cls = parametrize.type_before_parametrizations(module)
                raise ShardingError(_CUT_ALONE.format(cls=each.cls.__name__, name=name, module=cls.__name__))
