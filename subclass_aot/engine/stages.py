"""What becomes of one call on its way to generated code, stage by stage, to be read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import Any

from torch import fx

from subclass_aot.base.put_back import PutBack

_HEADINGS = {
    "recorded": "recorded: the operators on inner tensors as they ran, forward and then backward, with their writes",
    "functional": "functional: the same without writes",
    "joint": "joint: what is read of that, as a graph of dense tensors",
    "forward": "forward: the part that is computed at the call, which gives its results and what is saved",
    "backward": "backward: the part that is computed by autograd, from what was saved",
    "code": "code: the generated functions, which check a call and run the graphs",
}

_texts: dict[str, str] | None = None

checked_by: list[Callable[[str, Any, Any], None]] = []
"""Called with the name of a function, its `JointTrace` and its `Graphs`, before these are compiled."""


@dataclass(frozen=True)
class Stages:
    """The stages of one signature, each as Python. `print` shows all of them.

    Attributes:
        recorded: The operators on inner tensors as they ran, forward and then backward, with their writes.
        functional: The same without writes.
        joint: What is read of that, as the graph that partitioners get.
        forward: The graph that the compiler of forward gets.
        backward: The graph that the compiler of backward gets; "" without gradients.
        code: The generated functions around them; `source` has those of the call before.
    """

    recorded: str
    functional: str
    joint: str
    forward: str
    backward: str
    code: str

    def __repr__(self) -> str:
        return f"<Stages {', '.join(field.name for field in fields(self) if getattr(self, field.name))}>"

    def __str__(self) -> str:
        """Returns all stages, each below a heading."""
        texts = [(_HEADINGS[field.name], getattr(self, field.name)) for field in fields(self)]
        return "\n\n".join(f"# {heading}\n{text}" for heading, text in texts if text)


@contextmanager
def noted_stages() -> Iterator[dict[str, str]]:
    """Has traces note their stages while the block runs. Traces run one at a time.

    Yields:
        The texts, by the names of the stages.
    """
    global _texts
    with PutBack(_put_back):
        _texts = {}
        yield _texts


def _put_back() -> None:
    global _texts
    _texts = None


def note_stage(name: str, nodes: Callable[[], Iterable[fx.Node]]) -> None:
    """Notes the nodes of a stage, if somebody wants to read them.

    Args:
        name: The stage.
        nodes: Gives its nodes, each after those that it reads.
    """
    if _texts is not None:
        graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
        for node in nodes():
            copies[node] = graph.node_copy(node, copies.__getitem__)
        _texts[name] = text_of(graph)


def text_of(graph: fx.Graph) -> str:
    """Returns a graph as Python, with sizes, and with the lines of the program that its parts come from.

    >>> text_of(fx.symbolic_trace(lambda x: x + 1).graph)
    'def forward(self, x):\\n    add = x + 1\\n    return add'
    """
    source: Any = graph.python_code("self", verbose=True).src
    source = re.sub(r'"MetaTensor\((.*?)\)"', r'"\1"', source)
    source = re.sub(r";  (\w+ = )+None", "", source)
    source = source.replace("# No stacktrace found for following nodes", "")
    source = re.sub(r"# (Backward of forward node: )?File: .*, code: ", "# ", source)
    return "\n".join(line.rstrip() for line in source.splitlines() if line.strip())
