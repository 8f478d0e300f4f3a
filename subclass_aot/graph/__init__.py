"""Recording of operators into a graph, and what is done to graphs."""

from subclass_aot.graph.cleanup import drop_dead as drop_dead
from subclass_aot.graph.cleanup import drop_identities as drop_identities
from subclass_aot.graph.functionalize import remove_mutations as remove_mutations
from subclass_aot.graph.generators import drawing_from as drawing_from
from subclass_aot.graph.generators import generators as generators
from subclass_aot.graph.generators import set_generators as set_generators
from subclass_aot.graph.higher_order import HIGHER_ORDER as HIGHER_ORDER
from subclass_aot.graph.looks import Look as Look
from subclass_aot.graph.looks import Looks as Looks
from subclass_aot.graph.looks import LooksAreNeeded as LooksAreNeeded
from subclass_aot.graph.looks import SymbolsAreNeeded as SymbolsAreNeeded
from subclass_aot.graph.lstm import FusedLstm as FusedLstm
from subclass_aot.graph.partition import backward_from as backward_from
from subclass_aot.graph.partition import default_partition as default_partition
from subclass_aot.graph.partition import draws as draws
from subclass_aot.graph.partition import is_backward as is_backward
from subclass_aot.graph.recorder import GRADIENT as GRADIENT
from subclass_aot.graph.recorder import GradientsAreRead as GradientsAreRead
from subclass_aot.graph.recorder import Recorder as Recorder
from subclass_aot.graph.resolved import RESOLVED as RESOLVED
from subclass_aot.graph.rng import Draws as Draws
from subclass_aot.graph.symint_nodes import is_symint as is_symint
from subclass_aot.graph.view_ops import regenerated_view as regenerated_view
