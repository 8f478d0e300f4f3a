"""`torch.compile(f, backend="subclass_aot", fullgraph=True).aot_compile(...)`: what torch writes into its own files.

Note [Precompilation]
~~~~~~~~~~~~~~~~~~~~~
Torch compiles for one example there, keeps Dynamo's guards and bytecode in a file, and gets from the backend bytes that
make its function again. These are a file of this library, with the constants that Dynamo has put into the graph. The
function is an `aot_compile` of the graph: what Dynamo's guards do not see, its own guard does, and what it was not
compiled for is an error by name where it was loaded.
"""

from __future__ import annotations

import dataclasses
import io
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.doors.dynamo.captured import Captured, Inputs, nothing
from subclass_aot.engine.call import Arguments
from subclass_aot.engine.compile import CompiledFunction
from subclass_aot.engine.options import Options
from subclass_aot.files.compiled import write_file
from subclass_aot.files.compiled.load import load_compiled
from subclass_aot.meta.symbols import is_symbolic


class _OfGraph(CompiledFunction[..., Any]):
    """A compiled function of what Dynamo captured, which brings nothing to a call."""

    def _arguments_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
        return Arguments.of(nothing, args, kwargs, self._with_grad)

    def save(self, path: Any) -> None:
        write_file(path, nothing, self._options, [*self._specializations])


class Precompiled(_torch.dynamo.serializable_callable()):  # type: ignore[misc]
    """The object that torch calls, and writes to a file.

    Args:
        function: Takes tensors.
        inputs: Makes them of the inputs of the graph.
        sees_classes: Whether classes see functions of torch while it runs.
    """

    def __init__(self, function: CompiledFunction[..., Any], inputs: Inputs, sees_classes: bool) -> None:
        self.function = function
        self.inputs = inputs
        self.sees_classes = sees_classes

    @classmethod
    def serialize_compile_artifacts(cls, fn: Precompiled) -> bytes:
        """Writes it. Torch calls this."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / _FILE
            fn.function.save(path)
            compiled = path.read_bytes()
        buffer = io.BytesIO()
        torch.save((compiled, fn.inputs, fn.sees_classes), buffer)
        return buffer.getvalue()

    @classmethod
    def deserialize_compile_artifacts(cls, data: bytes) -> Precompiled:
        """Reads it. Torch calls this, of a file that it has unpickled, so that it is trusted."""
        compiled, inputs, sees_classes = torch.load(io.BytesIO(data), weights_only=False)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / _FILE
            path.write_bytes(compiled)
            return cls(load_compiled(path, trust=True), inputs, sees_classes)

    def __call__(self, *args: object) -> Any:
        tensors = self.inputs.tensors(args)
        if self.sees_classes:
            return self.function(*tensors)
        with _torch.plain_subclasses.without_torch_function():
            return self.function(*tensors)


_FILE = "captured.sa"


def _has_symbols(example: Any) -> bool:
    return is_symbolic(example) or isinstance(example, torch.Tensor) and any(map(is_symbolic, example.shape))


class _OfTensors:
    """A captured graph in which each number that is a size is read from the tensors of the call.

    Args:
        captured: The graph; its numbers are Dynamo's symbols.
    """

    def __init__(self, captured: Captured) -> None:
        self._captured = captured
        self._places: dict[Any, tuple[int, int]] = {}
        for position in range(len(captured.inputs.sources)):
            example = captured.examples.get(f"args[{position}]")
            sizes = example.shape if isinstance(example, torch.Tensor) else (example,)
            for dim, size in enumerate(sizes):
                if is_symbolic(size):
                    self._places.setdefault(_torch.symbolic.expression_of(size), (position, dim))

    @property
    def __name__(self) -> str:
        return self._captured.__name__

    def __call__(self, *tensors: torch.Tensor) -> Any:
        values = {symbol: tensors[position].shape[dim] for symbol, (position, dim) in self._places.items()}
        known = {
            i: _torch.symbolic.evaluate(_torch.symbolic.expression_of(number), values)
            if is_symbolic(number)
            else number
            for i, number in self._captured.known.items()
        }
        return dataclasses.replace(self._captured, known=known)(*tensors)


def precompiled(
    captured: Captured, example_inputs: Sequence[object], options: Options, sees_classes: bool
) -> Callable[..., Any]:
    """Compiles a graph for the example inputs.

    Args:
        captured: The graph.
        example_inputs: The tensors of the call, and numbers.
        options: What to compile with.
        sees_classes: Whether classes see functions of torch while it runs.
    """
    if any(map(_has_symbols, captured.examples.values())):
        options = dataclasses.replace(options, dynamic=True)
    function = _OfGraph(_OfTensors(captured), options)
    function._specialization_for(captured.inputs.tensors(example_inputs), {})
    return Precompiled(function, captured.inputs, sees_classes)
