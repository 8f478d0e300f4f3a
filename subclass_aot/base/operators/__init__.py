"""Operators: what their schemas and tags say."""

from subclass_aot.base.operators.arithmetic import flops_of as flops_of
from subclass_aot.base.operators.arithmetic import is_counted as is_counted
from subclass_aot.base.operators.kinds import MOVES as MOVES
from subclass_aot.base.operators.kinds import OperatorKind as OperatorKind
from subclass_aot.base.operators.kinds import kind_of as kind_of
from subclass_aot.base.operators.originals import ORIGINALS as ORIGINALS
from subclass_aot.base.operators.schema import PHYSICAL as PHYSICAL
from subclass_aot.base.operators.schema import Effects as Effects
from subclass_aot.base.operators.schema import argument_at as argument_at
from subclass_aot.base.operators.schema import effects_of as effects_of
from subclass_aot.base.operators.schema import note_shape_by_data as note_shape_by_data
from subclass_aot.base.operators.schema import out_of_place as out_of_place
from subclass_aot.base.operators.schema import without_out as without_out
from subclass_aot.base.operators.sets import OperatorSet as OperatorSet
from subclass_aot.base.operators.side_effects import runs_once as runs_once
