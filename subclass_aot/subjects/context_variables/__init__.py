"""Context variables that a function reaches: their values are read at each call, and set as in eager mode."""

from subclass_aot.subjects.context_variables.view import ContextVariable
from subclass_aot.tables import holders

holders.HOLDERS["_contextvars.ContextVar"] = ContextVariable
