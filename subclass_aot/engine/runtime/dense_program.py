"""A compiled call without its guard and without autograd: a function of leaves, as an export takes it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from subclass_aot.base.codegen import Source
from subclass_aot.engine.compilers import BoxedFunction
from subclass_aot.engine.guards import Reads
from subclass_aot.engine.outcome import emit_finish
from subclass_aot.engine.runtime.call import emit_call
from subclass_aot.engine.runtime.calling_convention import Convention
from subclass_aot.engine.runtime.graphs import Graphs
from subclass_aot.engine.signature import JointSignature, Mutations
from subclass_aot.kit.flatten import PlainTensorMeta


def write_dense_program(signature: JointSignature, graphs: Graphs, graph: BoxedFunction) -> Callable[[list[Any]], Any]:
    """Generates `program(leaves)`: it runs the forward graph on the leaves of a call, and gives what the call would
    return.

    Writes are those in the graph: what a call sets beside, such as version counters, is not wanted there.

    Args:
        signature: The signature; its call changes nothing but data, and results are dense.
        graphs: Its graphs.
        graph: What runs the forward graph.
    """
    signature = dataclasses.replace(signature, mutations=Mutations(), tangents=())
    source = Source("program", "leaves", "Runs the forward graph on leaves, and gives results their structure.")
    leaves = [f"leaves[{slot}]" for slot in range(len(signature.index_map.slots))]
    values = []
    for i, given in enumerate(signature.inputs):
        (slot, *_) = signature.index_map.flat_of(i)
        values.append(leaves[slot] if isinstance(given.meta, PlainTensorMeta) else "None")
    results = emit_call(source, Reads(values, leaves, ", ".join), Convention(signature, graphs, False), graph)
    source.line(f"return {emit_finish(source, signature.outcome, values, results)}")
    return source.build()
