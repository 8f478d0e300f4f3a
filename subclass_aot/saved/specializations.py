"""What was compiled for one signature, as JSON, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import fx

from subclass_aot.call import Arguments
from subclass_aot.descriptors import descriptor_of
from subclass_aot.guards import Modes
from subclass_aot.runtime import Graphs
from subclass_aot.saved.codec import Decoder, Encoder, Json
from subclass_aot.saved.graphs import GraphReader, encode_graph
from subclass_aot.saved.key import Key, is_of_call, key_of
from subclass_aot.saved.refused import Refused, at
from subclass_aot.saved.signatures import needs_function, saved_signature, signature_of
from subclass_aot.saved.stand_ins import SavedGraphs, SavedSignature
from subclass_aot.signature import JointSignature

NEEDS_FUNCTION = "it reads or changes {path}, which only the function or module has: sa.load(path, fn_or_module)"
NO_TRACE = "it was loaded from a file, and a gradient of another kind needs a trace"

_KEYS = ("call", "function", "needs", "facts", "reason", "signature", "graphs", "forward", "backward")


def encode_specialization(
    signature: JointSignature,
    graphs: Graphs,
    key: Key,
    facts: Mapping[str, str],
    reason: str,
    encoder: Encoder,
    blobs: list[bytes],
) -> Json:
    """What was compiled for a signature, as JSON.

    Args:
        signature: The signature.
        graphs: Its graphs.
        key: What calls are told by.
        facts: The same in words, for people.
        reason: Why it was compiled.
        encoder: What writes values.
        blobs: Gets the data of constants.

    Raises:
        Refused: Something of it cannot be written.
    """
    if key.problem is not None:
        raise key.problem.bare()
    with at("signature"):
        saved = saved_signature(signature, key.pinned)
        written = encoder.encode(saved)
    if graphs.num_saved_symints:
        raise Refused("it has symbolic sizes. Compile with dynamic=False")
    beside = SavedGraphs(
        tuple((desc, *computed) for desc, computed in graphs.computed.items()),
        tuple(map(tuple, graphs.saved)),  # type: ignore[arg-type]
    )
    document = {
        "call": key.call,
        "function": key.function,
        "needs": needs_function(saved, is_of_call),
        "facts": facts,
        "reason": reason,
        "signature": written,
        "graphs": encoder.encode(beside),
    }
    for name, graph in (("forward", graphs.forward), ("backward", graphs.backward)):
        with at(f"{name} graph"):
            document[name] = None if graph is None else encode_graph(graph, encoder, blobs)
    return document


@dataclass(frozen=True, slots=True, eq=False)
class Revived:
    """A signature and its graphs, read for a call."""

    signature: JointSignature
    graphs: Graphs


class SavedSpecialization:
    """What a file has for one signature. Nothing of it is read but the key, before a call fits.

    Args:
        written: What `encode_specialization` gave.
        specs: The specs of the file.
        blobs: The data of constants.
        trust: Whether modules are imported and functions taken from them. If not, each operator is run once on tensors
            without data.

    Raises:
        Refused: It is not what such a file has.
    """

    def __init__(self, written: Json, specs: Json, blobs: Sequence[bytes], trust: bool) -> None:
        if type(written) is not dict or tuple(written) != _KEYS:
            raise Refused("it has other parts than a specialization has")
        self.call = texts(written["call"], "call")
        self.function = texts(written["function"], "function")
        self.facts = texts(written["facts"], "facts")
        if type(written["needs"]) is not str or type(written["reason"]) is not str:
            raise Refused("it has no reason")
        self.needs: str = written["needs"]
        self.reason: str = written["reason"]
        self.written = written
        self.specs, self._blobs, self._trust = specs, blobs, trust

    def differences(self, key: Key, has_function: bool) -> list[str]:
        """What differs between the call that was compiled and another one, each as one line.

        Args:
            key: The key of the other.
            has_function: Whether there is a function to compare.
        """
        pairs = [(self.call, key.call)] + [(self.function, key.function)] * has_function
        found = []
        for before, now in pairs:
            for name in dict.fromkeys([*before, *now]):
                if before.get(name) != now.get(name):
                    was, is_now = _cut(before.get(name, "absent"), now.get(name, "absent"))
                    found.append(f"{name}: {was} in the file, {is_now} now")
        if not has_function and self.needs:
            found.append(NEEDS_FUNCTION.format(path=self.needs))
        return found

    def read(self, named: Mapping[str, Any]) -> Revived:
        """Reads all of it.

        Args:
            named: The objects of the call that are the same at each, by their paths.

        Raises:
            Refused: It is not what such a file has.
        """
        decoder = Decoder(self.specs, self._trust)
        with at("signature"):
            signature = signature_of(decoder.of(self.written["signature"], SavedSignature), named, self._trust)
        with at("graphs"):
            beside = decoder.of(self.written["graphs"], SavedGraphs)
        reader = GraphReader(decoder, self._blobs, check=not self._trust)
        graphs: dict[str, fx.GraphModule | None] = {}
        for name in ("forward", "backward"):
            with at(f"{name} graph"):
                written = self.written[name]
                graphs[name] = None if written is None else reader.read(written, name.title())
        forward, backward = graphs["forward"], graphs["backward"]
        if forward is None or (backward is not None) is not signature.needs_backward:
            raise Refused("it has other graphs than its signature needs")
        _compare(signature, forward, backward, beside)
        computed = {desc: (alias, view) for desc, alias, view in beside.computed}
        return Revived(signature, Graphs.without_trace(signature, forward, backward, computed, beside.saved))


def _compare(
    signature: JointSignature, forward: fx.GraphModule, backward: fx.GraphModule | None, beside: SavedGraphs
) -> None:
    """Compares the graphs with the signature: as many inputs and outputs as it has.

    Raises:
        Refused: They are of another one.
    """
    inputs = len(forward.graph.find_nodes(op="placeholder"))
    if inputs != len(signature.graph_slots) + len(signature.mutations.bases):
        raise Refused(f"the forward graph has {inputs} inputs, and the signature has others")
    outputs = len(descriptor_of(forward.graph.output_node()))
    if outputs != len(beside.computed) + len(beside.saved):
        raise Refused(f"the forward graph has {outputs} outputs, and the signature has others")
    if any(i is not None and not 0 <= i < inputs for i, _ in beside.saved):
        raise Refused("what is saved for backward is no input")
    if backward is not None:
        given = len(backward.graph.find_nodes(op="placeholder"))
        leaves = sum(len(tangent.specs) for tangent in signature.tangents)
        if given < len(beside.saved) or given > len(beside.saved) + leaves + len(signature.mutations.backward_writes):
            raise Refused(f"the backward graph has {given} inputs, and the signature has others")


def _cut(one: str, other: str, width: int = 60) -> tuple[str, str]:
    """Two texts from shortly before the place where they begin to differ."""
    same = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    start = max(0, same - width // 3)
    return tuple(("..." if start else "") + x[start : start + width] + ("..." if len(x) > start + width else "")
                 for x in (one, other))  # type: ignore[return-value]  # fmt: skip


def texts(written: Json, what: str) -> dict[str, str]:
    """A dict of texts.

    Raises:
        Refused: It is none.
    """
    if type(written) is not dict or not all(type(x) is str for x in written.values()):
        raise Refused(f"{what} is no list of texts")
    return written


def key_of_call(arguments: Arguments, state: Modes) -> Key:
    """The key of a call that may fit.

    Raises:
        Refused: It has something that no file has.
    """
    return key_of(arguments, arguments.plan.unwrap(arguments.values), state, refuse=True)
