"""Composite operators in a trace with symbolic sizes.

Note [Composite operators with symbolic sizes]
~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
Many kernels of composite operators in C++ want sizes that are numbers. Torch has some of them in Python, too, and takes
these where sizes are symbols. Most compute the same. Two kinds do not: dropout that is off gives a copy, where eager
gives the tensor itself, and draws otherwise where it is on; and a recurrent network of several layers has no dropout
between them. Dropout in C++ takes symbolic sizes, so that is what a trace records. So does `matmul`, and its kernel in
Python takes several times as long. Networks run layer by layer, and layers of an LSTM by the operator of oneDNN where
eager mode does so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from subclass_aot.base import _torch
from subclass_aot.base.operators import effects_of
from subclass_aot.engine.graph import recurrent

_aten = torch.ops.aten
_DROPOUT: Any = _aten.dropout.default
_MATMUL: Any = _aten.matmul.default
_NETWORKS: tuple[Any, ...] = tuple(
    getattr(packet, name)
    for packet in (_aten.lstm, _aten.gru, _aten.rnn_tanh, _aten.rnn_relu)
    for name in ("input", "data")
)

_Kernel = Callable[..., Any]


def _layer_by_layer(func: _torch.operators.Operator) -> Callable[[_Kernel], _Kernel]:
    """Gives what makes the kernel of a recurrent network of torch's kernel, which forgets dropout between layers."""

    def made(kernel: _Kernel) -> _Kernel:
        def network(*args: Any, **kwargs: Any) -> Any:
            given = effects_of(func).bind(args, kwargs)
            if (
                func is _aten.lstm.input
                and (found := recurrent.network(given["input"], *list(given.values())[1:])) is not None
            ):
                return found
            layers, dropout = given["num_layers"], given["dropout"]
            if not (given["train"] and dropout and layers > 1):
                x, *final = kernel(*args, **kwargs)
                states = given["hx"] if isinstance(given["hx"], list | tuple) else [given["hx"]]
                # That of torch 2.11 gives an LSTM states of four dims.
                return x, *(a.reshape(b.shape) for a, b in zip(final, states, strict=True))
            batch_first, states = given.get("batch_first", False), given["hx"]
            states = states if isinstance(states, list | tuple) else [states]
            name = "input" if "input" in given else "data"
            x, last = given[name].transpose(0, 1) if batch_first else given[name], []
            parameters = given["params"]
            for i in range(layers):
                own = [each.chunk(layers)[i] for each in states]
                count = len(parameters) // layers
                layer = {
                    name: x,
                    "hx": own if isinstance(given["hx"], list | tuple) else own[0],
                    "params": parameters[i * count : (i + 1) * count],
                    "num_layers": 1,
                    "dropout": 0.0,
                } | ({"batch_first": False} if batch_first else {})
                x, *final = kernel(**{**given, **layer})
                last.append([a.reshape(b.shape) for a, b in zip(final, own, strict=True)])
                if i < layers - 1:
                    x = torch.dropout(x, dropout, True)
            return x.transpose(0, 1) if batch_first else x, *map(torch.cat, zip(*last, strict=True))

        return network

    return made


def _matmul(kernel: _Kernel) -> _Kernel:
    in_cpp = _torch.python_kernels.in_cpp(_MATMUL)

    def matmul(one: torch.Tensor, other: torch.Tensor) -> Any:
        try:
            return in_cpp(one, other)
        except RuntimeError as error:  # that of older torches takes no symbols
            if "symbolic sizes" not in str(error):
                raise
            return kernel(one, other)

    return matmul


COMPOSITES: dict[Any, Callable[[_Kernel], _Kernel]] = {
    _DROPOUT: lambda kernel: _torch.python_kernels.in_cpp(_DROPOUT),
    _MATMUL: _matmul,
    **{func: _layer_by_layer(func) for func in _NETWORKS},
}
"""What makes kernels of those that torch has in Python. See Note [Composite operators with symbolic sizes]."""
