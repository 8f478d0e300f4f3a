"""Runs without data: where no argument is there either, what values follow, and what is assumed."""

from subclass_aot.cost.without_data.copies import deep_copied as deep_copied
from subclass_aot.cost.without_data.missing_rules import missing_meta as missing_meta
from subclass_aot.cost.without_data.mode import called_compiled as called_compiled
from subclass_aot.cost.without_data.mode import meta as meta
from subclass_aot.cost.without_data.mode import uses_no as uses_no
from subclass_aot.cost.without_data.module import to_meta as to_meta
from subclass_aot.cost.without_data.rows import is_kept as is_kept
