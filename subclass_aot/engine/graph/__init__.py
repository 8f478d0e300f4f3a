"""Recording of operators into a graph."""

from subclass_aot.engine.graph.drawn import drawn_named as drawn_named
from subclass_aot.engine.graph.drawn import name_of_drawn as name_of_drawn
from subclass_aot.engine.graph.draws_elsewhere import DRAW_ELSEWHERE as DRAW_ELSEWHERE
from subclass_aot.engine.graph.functional.functionalize import remove_mutations as remove_mutations
from subclass_aot.engine.graph.generators import drawing_from as drawing_from
from subclass_aot.engine.graph.generators import generators as generators
from subclass_aot.engine.graph.listeners.listener import GraphListener as GraphListener
from subclass_aot.engine.graph.listeners.of_recorder import LISTENERS as LISTENERS
from subclass_aot.engine.graph.looks import Look as Look
from subclass_aot.engine.graph.looks import Looks as Looks
from subclass_aot.engine.graph.recorder import GRADIENT as GRADIENT
from subclass_aot.engine.graph.recorder import Recorder as Recorder
from subclass_aot.engine.graph.replaced import REPLACED as REPLACED
from subclass_aot.engine.graph.retrace import Retrace as Retrace
from subclass_aot.engine.graph.retrace import TraceOptions as TraceOptions
