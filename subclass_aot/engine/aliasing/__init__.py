"""Aliasing: tensors that share memory, a history or a version counter."""

from subclass_aot.engine.aliasing.history import as_non_leaf as as_non_leaf
from subclass_aot.engine.aliasing.history import autograd_base as autograd_base
from subclass_aot.engine.aliasing.history import have_one_history as have_one_history
from subclass_aot.engine.aliasing.history import have_own_histories as have_own_histories
from subclass_aot.engine.aliasing.history import is_autograd_leaf as is_autograd_leaf
from subclass_aot.engine.aliasing.history import retains_grad as retains_grad
from subclass_aot.engine.aliasing.storage import Base as Base
from subclass_aot.engine.aliasing.storage import bases_of as bases_of
from subclass_aot.engine.aliasing.storage import flat_base as flat_base
from subclass_aot.engine.aliasing.storage import has_internal_overlap as has_internal_overlap
from subclass_aot.engine.aliasing.storage import has_storage as has_storage
from subclass_aot.engine.aliasing.storage import overlapping_slots as overlapping_slots
from subclass_aot.engine.aliasing.storage import storage_groups as storage_groups
from subclass_aot.engine.aliasing.version_counters import versions as versions
