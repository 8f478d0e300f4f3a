"""Generated Python that people may read."""

from subclass_aot.base.codegen.source import GuardedSource as GuardedSource
from subclass_aot.base.codegen.source import Source as Source
from subclass_aot.base.codegen.source import constant_checks as constant_checks
from subclass_aot.base.codegen.source import identifier as identifier
