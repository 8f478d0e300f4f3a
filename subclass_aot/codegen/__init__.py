"""Generated Python that people may read."""

from subclass_aot.codegen.source import GuardedSource as GuardedSource
from subclass_aot.codegen.source import Source as Source
from subclass_aot.codegen.source import constant_checks as constant_checks
from subclass_aot.codegen.source import identifier as identifier
