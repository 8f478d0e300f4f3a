"""Operators: what their schemas and tags say."""

from subclass_aot.operators.schema import PHYSICAL as PHYSICAL
from subclass_aot.operators.schema import Effects as Effects
from subclass_aot.operators.schema import argument_at as argument_at
from subclass_aot.operators.schema import effects_of as effects_of
from subclass_aot.operators.schema import without_out as without_out
