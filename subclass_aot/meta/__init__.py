"""Tensors without data: specs, shape inference, `MetaTensor`, and the stream of operators on leaves."""

import importlib
import sys
import types
from typing import Any

import subclass_aot.base.later
import subclass_aot.base.tricks
import subclass_aot.meta.rules.convolution
import subclass_aot.meta.rules.layout
import subclass_aot.meta.rules.norms
import subclass_aot.meta.rules.quantization
import subclass_aot.meta.rules.refusals
import subclass_aot.meta.rules.shapes
import subclass_aot.meta.rules.views
import subclass_aot.meta.served
from subclass_aot.meta import places
from subclass_aot.meta.functions import Replaced as Replaced
from subclass_aot.meta.infer import call_on_meta as call_on_meta
from subclass_aot.meta.infer import register_meta as register_meta
from subclass_aot.meta.listener import Listener as Listener
from subclass_aot.meta.listener import Values as Values
from subclass_aot.meta.operation import Operation as Operation
from subclass_aot.meta.rules.forms import forms_of as forms_of
from subclass_aot.meta.rules.forms import put_forms as put_forms
from subclass_aot.meta.spec import Spec as Spec
from subclass_aot.meta.storage import Storage as Storage
from subclass_aot.meta.stream import Stream as Stream
from subclass_aot.meta.tensor import MetaTensor as MetaTensor
from subclass_aot.meta.tensor import new_leaf as new_leaf
from subclass_aot.meta.unbacked import unbacked_rule as unbacked_rule

__all__ = ["Listener", "MetaTensor", "Operation", "Spec", "Storage", "register_meta"]


_OF_RUNS_WITHOUT_DATA = {"meta", "missing_meta", "to_meta"}
"""Names of version 0.1 that are above this layer now."""


def __getattr__(name: str) -> Any:
    if name not in _OF_RUNS_WITHOUT_DATA:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(subclass_aot.base.later.promises["run_without_data"]), name)


class _Room(types.ModuleType):
    """This room has the name of a function, and is it, too: `subclass_aot.meta(device)`."""

    __call__ = staticmethod(places.run_without_data)


if subclass_aot.base.tricks.is_on("callable module"):
    sys.modules[__name__].__class__ = _Room
