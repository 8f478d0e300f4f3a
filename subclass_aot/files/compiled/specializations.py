"""Encodes what was compiled for one signature as JSON, and decodes it."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from torch import fx

from subclass_aot.base.plain_values import Json
from subclass_aot.base.refused import at
from subclass_aot.engine.call import Arguments
from subclass_aot.engine.facts import Kind, Modes, Scope, facts_of, is_of_call, words
from subclass_aot.engine.runtime import Graphs
from subclass_aot.engine.signature import JointSignature
from subclass_aot.engine.specializations import Specialization
from subclass_aot.files.compiled.codec import Decoder, Encoder, sized
from subclass_aot.files.compiled.graphs import GraphReader, encode_graph
from subclass_aot.files.compiled.key import Key, key_of
from subclass_aot.files.compiled.signatures import encode_signature, needs_function, read_signature
from subclass_aot.files.compiled.sizes import SavedSymbols, saved_symbols, symbols_of

NEEDS_FUNCTION = "it reads or changes {path}, which only the function or module has: load_compiled(path, fn_or_module)"
NO_TRACE = "it was loaded from a file, and a gradient of another kind needs a trace"


def encode_specialization(specialization: Specialization, encoder: Encoder, blobs: list[bytes]) -> Json:
    """Returns what was compiled for a signature, as JSON.

    Args:
        specialization: What was compiled.
        encoder: What writes values.
        blobs: Gets the data of constants.

    Raises:
        Refused: Something of it cannot be written.
    """
    signature, graphs = specialization.signature, specialization.graphs
    key = key_of(specialization.facts)
    encoder.symbols = symbols = signature.assumptions.symbols
    with at("symbols"):
        of_symbols = None if symbols is None else saved_symbols(symbols)
        written_symbols = encoder.write(of_symbols)
    with at("signature"):
        written = encode_signature(signature, encoder)
    computed = {desc: tuple(each) for desc, each in graphs.computed.items()}
    beside = computed, tuple(map(tuple, graphs.saved)), graphs.num_saved_symints
    document = {
        "scope": specialization.scope,
        "call": key.call,
        "function": key.function,
        "needs": needs_function(signature, is_of_call),
        "facts": words(specialization.facts),
        "reason": specialization.reason,
        "symbols": written_symbols,
        "signature": written,
        "graphs": [encoder.write(part) for part in beside],
    }
    for name, graph in (("forward", graphs.forward), ("backward", graphs.backward)):
        with at(f"{name} graph"):
            document[name] = None if graph is None else encode_graph(graph, encoder, blobs)
    return document


_OF_SIZES = tuple([f": {kind.value}" for kind in (Kind.SIZE, Kind.ASSUMED)])

_SYMBOL = re.compile(r"\bs\d+\b")


class SavedSpecialization:
    """The entry of a file for one signature. Nothing of it is read but the key, before a call fits.

    Args:
        written: What `encode_specialization` gave.
        specs: The specs of the file.
        blobs: The data of constants.
    """

    def __init__(self, written: Json, specs: Json, blobs: Sequence[bytes]) -> None:
        self.call: dict[str, str] = written["call"]
        self.function: dict[str, str] = written["function"]
        self.facts: dict[str, str] = written["facts"]
        self.scope = Scope.read(written["scope"])
        self.needs: str = written["needs"]
        self._written, self._specs, self._blobs = written, specs, blobs
        with at("symbols"):
            self.symbols: SavedSymbols | None = Decoder([]).read(written["symbols"])

    def differences(self, key: Key, has_function: bool) -> list[str]:
        """Returns what differs between the call that was compiled and another one, each as one line.

        Args:
            key: The key of the other.
            has_function: Whether there is a function to compare.
        """
        pairs = [(self.call, key.call)] + [(self.function, key.function)] * has_function
        found: list[str] = []
        of_sizes: list[str] = []
        for before, now in pairs:
            for name in dict.fromkeys([*before, *now]):
                if before.get(name) != now.get(name):
                    was, is_now = _cut(before.get(name, "absent"), now.get(name, "absent"))
                    line = f"{name}: {was} in the file, {is_now} now"
                    (of_sizes if name.endswith(_OF_SIZES) else found).append(line)
        if not found:  # else there may be no such sizes
            places = {text: place for place, text in reversed(self.scope.places)}
            found = [_SYMBOL.sub(lambda name: places.get(name[0], name[0]), line) for line in of_sizes]
        if not has_function and self.needs:
            found.append(NEEDS_FUNCTION.format(path=self.needs))
        return found

    def read(self, named: Collection[str]) -> tuple[JointSignature, Graphs]:
        """Reads all of it: the signature and its graphs.

        Args:
            named: The paths of objects that the call has.

        Raises:
            Refused: It is not what such a file has.
        """
        decoder = Decoder(self._specs)
        with at("symbols"):
            decoder.symbols = None if self.symbols is None else symbols_of(self.symbols)
        with at("signature"):
            signature = read_signature(self._written["signature"], decoder, named)
        with at("graphs"):
            beside = map(decoder.read, sized(self._written["graphs"], 3))
        reader = GraphReader(decoder, self._blobs)
        graphs: dict[str, fx.GraphModule | None] = {}
        for name in ("forward", "backward"):
            with at(f"{name} graph"):
                written = self._written[name]
                graphs[name] = None if written is None else reader.read(written, name.title())
        forward, backward = graphs["forward"], graphs["backward"]
        assert forward is not None
        return signature, Graphs.without_trace(signature, forward, backward, *beside)


def _cut(one: str, other: str, width: int = 60) -> tuple[str, str]:
    """Returns two texts from shortly before the place where they begin to differ."""
    same = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    start = max(0, same - width // 3)
    return tuple(("..." if start else "") + x[start : start + width] + ("..." if len(x) > start + width else "")
                 for x in (one, other))  # type: ignore[return-value]  # fmt: skip


def key_of_call(arguments: Arguments, state: Modes, saved: SavedSpecialization) -> Key:
    """Returns the key of a call that may fit.

    Args:
        arguments: The call.
        state: The modes of torch.
        saved: What it may fit: not all of the call counts there.

    Raises:
        Refused: It has something that no file has.
    """
    return key_of(facts_of(arguments, state, saved.scope))
