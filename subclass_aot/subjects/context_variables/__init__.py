"""Context variables that a function reaches: their values are read at each call, and set as in eager mode."""

from subclass_aot.engine.tables import holders
from subclass_aot.subjects.context_variables.view import ContextVariable

holders.HOLDERS["_contextvars.ContextVar"] = ContextVariable
