"""What was compiled for one signature, as JSON, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import fx

from subclass_aot.call import Arguments
from subclass_aot.descriptors import descriptor_of
from subclass_aot.guards import Modes, symbolic_places
from subclass_aot.runtime import Graphs
from subclass_aot.saved.codec import Decoder, Encoder, Json
from subclass_aot.saved.graphs import GraphReader, encode_graph
from subclass_aot.saved.key import Key, is_of_call, key_of
from subclass_aot.saved.refused import Refused, at
from subclass_aot.saved.signatures import needs_function, saved_signature, signature_of
from subclass_aot.saved.sizes import saved_symbols, symbols_of
from subclass_aot.saved.stand_ins import SavedGraphs, SavedSignature, SavedSymbols
from subclass_aot.signature import JointSignature

NEEDS_FUNCTION = "it reads or changes {path}, which only the function or module has: sa.load(path, fn_or_module)"
NO_TRACE = "it was loaded from a file, and a gradient of another kind needs a trace"

_KEYS = ("call", "function", "needs", "facts", "reason", "symbols", "signature", "graphs", "forward", "backward")


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
    encoder.symbols = symbols = signature.assumptions.symbols
    with at("symbols"):
        of_symbols = None if symbols is None else saved_symbols(symbols, symbolic_places(signature))
        written_symbols = encoder.encode(of_symbols)
    with at("signature"):
        saved = saved_signature(signature, key.pinned)
        written = encoder.encode(saved)
    beside = SavedGraphs(
        tuple((desc, *computed) for desc, computed in graphs.computed.items()),
        tuple(map(tuple, graphs.saved)),  # type: ignore[arg-type]
        graphs.num_saved_symints,
    )
    document = {
        "call": key.call,
        "function": key.function,
        "needs": needs_function(saved, is_of_call),
        "facts": facts,
        "reason": reason,
        "symbols": written_symbols,
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
        with at("symbols"):
            try:
                self.symbols = Decoder([], trust).of(written["symbols"], SavedSymbols | None)
            except RecursionError as error:
                raise Refused("it is too deep") from error

    @property
    def places(self) -> dict[str, str]:
        """The sizes and strides that are no part of the key, and their texts."""
        return {} if self.symbols is None else self.symbols.places

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
        if self.symbols is not None and not self._trust:
            # Run alone, operators ask more of sizes than in a trace: what that solver was asked is forgotten.
            self._read(named, check=True)
        return self._read(named, check=self.symbols is None and not self._trust)

    def _read(self, named: Mapping[str, Any], check: bool) -> Revived:
        decoder = Decoder(self.specs, self._trust)
        with at("symbols"):
            symbols = decoder.symbols = None if self.symbols is None else symbols_of(self.symbols)
        with at("signature"):
            saved = decoder.of(self.written["signature"], SavedSignature)
            signature = signature_of(saved, named, self._trust, symbols)
            if symbolic_places(signature) != self.places:
                raise Refused("its symbolic sizes stand elsewhere than it says")
        with at("graphs"):
            beside = decoder.of(self.written["graphs"], SavedGraphs)
        reader = GraphReader(decoder, self._blobs, check)
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
        counted = beside.saved, beside.num_saved_symints
        return Revived(signature, Graphs.without_trace(signature, forward, backward, computed, *counted))


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
    symints = beside.num_saved_symints
    if symints < 0 or outputs != len(beside.computed) + len(beside.saved) + symints:
        raise Refused(f"the forward graph has {outputs} outputs, and the signature has others")
    if any(i is not None and not 0 <= i < inputs for i, _ in beside.saved):
        raise Refused("what is saved for backward is no input")
    if backward is not None:
        given = len(backward.graph.find_nodes(op="placeholder"))
        leaves = sum(len(tangent.specs) for tangent in signature.tangents)
        saved = len(beside.saved) + symints
        if given < saved or given > saved + leaves + len(signature.mutations.backward_writes):
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


def key_of_call(arguments: Arguments, state: Modes, places: Mapping[str, str]) -> Key:
    """The key of a call that may fit.

    Args:
        arguments: The call.
        state: The modes of torch.
        places: The sizes and strides that are no part of it.

    Raises:
        Refused: It has something that no file has.
    """
    return key_of(arguments, arguments.plan.unwrap(arguments.values), state, places, refuse=True)
