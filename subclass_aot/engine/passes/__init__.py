"""Passes that do not know how a graph was recorded: splitting it, copying it, and cleaning up."""

from subclass_aot.engine.passes.cleanup import cleaned as cleaned
from subclass_aot.engine.passes.graphs import check_inputs as check_inputs
from subclass_aot.engine.passes.graphs import copied_graph as copied_graph
from subclass_aot.engine.passes.graphs import take_any_strides as take_any_strides
from subclass_aot.engine.passes.nodes import communicates as communicates
from subclass_aot.engine.passes.nodes import copied_node as copied_node
from subclass_aot.engine.passes.nodes import draws as draws
from subclass_aot.engine.passes.nodes import is_backward as is_backward
from subclass_aot.engine.passes.nodes import is_symint as is_symint
from subclass_aot.engine.passes.nodes import must_run as must_run
from subclass_aot.engine.passes.nodes import viewed_node as viewed_node
from subclass_aot.engine.passes.partition import backward_from as backward_from
from subclass_aot.engine.passes.partition import default_partition as default_partition
from subclass_aot.engine.passes.parts import part_of_graph as part_of_graph
from subclass_aot.engine.passes.symbol_inputs import shows_symbols as shows_symbols
