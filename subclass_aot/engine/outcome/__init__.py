"""Outcomes: what a call leaves behind beside the writes into tensors, and the code that repeats it."""

from subclass_aot.engine.outcome.finish import emit_finish as emit_finish
from subclass_aot.engine.outcome.finish import emit_start as emit_start
from subclass_aot.engine.outcome.leaks import find_holders as find_holders
from subclass_aot.engine.outcome.of_backward import AfterForward as AfterForward
from subclass_aot.engine.outcome.of_backward import BackwardOutcome as BackwardOutcome
from subclass_aot.engine.outcome.of_backward import Present as Present
from subclass_aot.engine.outcome.older_objects import OlderObjects as OlderObjects
from subclass_aot.engine.outcome.reader import Context as Context
from subclass_aot.engine.outcome.reader import read_outcome as read_outcome
from subclass_aot.engine.outcome.recipes import RECIPES as RECIPES
from subclass_aot.engine.outcome.recipes import Change as Change
from subclass_aot.engine.outcome.recipes import Leaf as Leaf
from subclass_aot.engine.outcome.recipes import NewObject as NewObject
from subclass_aot.engine.outcome.recipes import Outcome as Outcome
from subclass_aot.engine.outcome.recipes import Recipe as Recipe
