"""Tables: where Python objects hold others, and which objects are walked."""

from subclass_aot.engine.tables.classes import ATOMS as ATOMS
from subclass_aot.engine.tables.classes import CONTAINERS as CONTAINERS
from subclass_aot.engine.tables.classes import can_be_made as can_be_made
from subclass_aot.engine.tables.classes import has_vars as has_vars
from subclass_aot.engine.tables.classes import is_object as is_object
from subclass_aot.engine.tables.classes import object_tables as object_tables
from subclass_aot.engine.tables.classes import stands_for_another as stands_for_another
from subclass_aot.engine.tables.of_thread import tables_of_this_thread as tables_of_this_thread
from subclass_aot.engine.tables.reached import Reached as Reached
from subclass_aot.engine.tables.table import HOOKS as HOOKS
from subclass_aot.engine.tables.table import MODULE_TABLES as MODULE_TABLES
from subclass_aot.engine.tables.table import Table as Table
from subclass_aot.engine.tables.tables_of import Gradients as Gradients
from subclass_aot.engine.tables.tables_of import extras_of as extras_of
from subclass_aot.engine.tables.tables_of import tables_of as tables_of
