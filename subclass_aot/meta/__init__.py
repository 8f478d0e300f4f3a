"""Tensors without data: specs, shape inference, `MetaTensor`, and the stream of operators on leaves."""

import sys
import types

from subclass_aot.meta import layout_rules as layout_rules
from subclass_aot.meta import shape_rules as shape_rules
from subclass_aot.meta.functions import Replaced as Replaced
from subclass_aot.meta.infer import call_on_meta as call_on_meta
from subclass_aot.meta.infer import current_symbols as current_symbols
from subclass_aot.meta.infer import infer as infer
from subclass_aot.meta.infer import register_meta as register_meta
from subclass_aot.meta.infer import unbacked_sizes as unbacked_sizes
from subclass_aot.meta.mode import meta as meta
from subclass_aot.meta.module import to_meta as to_meta
from subclass_aot.meta.operators import Effects as Effects
from subclass_aot.meta.operators import SizesMustBeKnown as SizesMustBeKnown
from subclass_aot.meta.operators import argument_at as argument_at
from subclass_aot.meta.operators import effects_of as effects_of
from subclass_aot.meta.sparse import SparseGradient as SparseGradient
from subclass_aot.meta.spec import STRIDED_NESTED as STRIDED_NESTED
from subclass_aot.meta.spec import Spec as Spec
from subclass_aot.meta.stream import MetaTensor as MetaTensor
from subclass_aot.meta.stream import Stream as Stream
from subclass_aot.meta.stream import is_over as is_over
from subclass_aot.meta.stream import new_leaf as new_leaf
from subclass_aot.meta.stream import root as root
from subclass_aot.meta.stream import run as run
from subclass_aot.meta.symbols import Bounds as Bounds
from subclass_aot.meta.symbols import Number as Number
from subclass_aot.meta.symbols import RuntimeAssert as RuntimeAssert
from subclass_aot.meta.symbols import Symbols as Symbols
from subclass_aot.meta.symbols import is_symbolic as is_symbolic
from subclass_aot.meta.symbols import key_of as key_of
from subclass_aot.meta.symbols import lasting_key_of as lasting_key_of
from subclass_aot.meta.symbols import plain as plain
from subclass_aot.meta.symbols import solver_in as solver_in
from subclass_aot.meta.unbacked import unbacked_rule as unbacked_rule


class _Room(types.ModuleType):
    """This room has the name of its best known function, and is it, too: `subclass_aot.meta(device)`."""

    __call__ = staticmethod(meta)


sys.modules[__name__].__class__ = _Room
