"""Checks that a function may be called once more for its second derivatives, with the same outcome."""

from __future__ import annotations

from subclass_aot.base.operators import runs_once
from subclass_aot.engine.passes import draws, is_backward
from subclass_aot.engine.runtime import Graphs
from subclass_aot.engine.signature import JointSignature
from subclass_aot.errors import DoubleBackwardError

_REFUSED = """Second derivatives of this function are wanted (double_backward=True), and it {what}.
  They call the function once more, and {why}.
  Instead: {instead}"""

_BACKWARD_WRITES = {
    "what": "writes into {path} while gradients are computed",
    "why": "would write a second time",
    "instead": "write outside the compiled function, or compile it without double_backward.",
}
_SHARED = {
    "what": "writes into memory that several inputs share: {path}",
    "why": "the inputs as they were before the write are kept one by one, so they would share nothing any more",
    "instead": "pass tensors that do not share storage, as in x.clone().",
}
_MADE_LEAF = {
    "what": "makes {path} a leaf of autograd's graph and computes with it",
    "why": "would make another leaf",
    "instead": "make the leaf before the call and pass it, or compile without double_backward.",
}
_ASSIGNED_DATA = {
    "what": "assigns to {path}.data",
    "why": "would assign again",
    "instead": "write into the tensor, as in `with torch.no_grad(): x.copy_(value)`.",
}
_EFFECT = {
    "what": "runs an operator that has an effect ({path})",
    "why": "it would have it twice",
    "instead": "run the operator outside the compiled function, or compile it without double_backward.",
}
_DRAWS = {
    "what": "draws random numbers ({path})",
    "why": "the draws must be the same again. {reason}",
    "instead": 'draw outside and pass the result as an argument, or use fw_compiler="eager" and the default generator '
    "in forward.",
}


def draws_again(signature: JointSignature, graphs: Graphs, repeats_draws: bool) -> bool:
    """Returns whether a second call must begin with the state of the random generator that the first began with.

    Args:
        signature: What was traced.
        graphs: Its graphs.
        repeats_draws: Whether the compiler draws random numbers as the function does.

    Raises:
        DoubleBackwardError: It does what a second call would not repeat.
    """

    def refuse(kind: dict[str, str], path: str, reason: str = "") -> None:
        texts = {name: text.format(path=path, reason=reason) for name, text in kind.items()}
        raise DoubleBackwardError(_REFUSED.format(**texts))

    for leaf in signature.made_leaves:
        if leaf.gradient is not None:
            refuse(_MADE_LEAF, str(leaf.output))
    for position in signature.mutations.assigned_data:
        refuse(_ASSIGNED_DATA, signature.inputs[position].path)
    for slot in signature.mutations.in_backward:
        refuse(_BACKWARD_WRITES, signature.path_of(slot))
    for base in signature.mutations.bases:
        refuse(_SHARED, " and ".join(map(signature.path_of, base.slots)))
    nodes = [n for g in (graphs.forward, graphs.backward) if g is not None for n in g.graph.nodes]
    for node in filter(lambda node: runs_once(node.target), nodes):
        refuse(_EFFECT, str(node.target))
    random = [n for n in nodes if draws(n)]
    for node in random:
        if is_backward(node):
            refuse(_DRAWS, str(node.target), "These are drawn in backward.")
        if not repeats_draws:
            refuse(_DRAWS, str(node.target), 'Only the compiler "eager" is known to draw as the function does.')
    return bool(random)
