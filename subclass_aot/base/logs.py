"""Logs what is compiled, for those who watch: `TORCH_LOGS`, `TORCH_TRACE` and `logging`.

Note [Names of logs]
~~~~~~~~~~~~~~~~~~~~
`TORCH_LOGS` is read while torch is imported, before anybody else can register a name with it; but it takes the name of
any module that can be found. So `TORCH_LOGS="subclass_aot"` shows the graphs, and `"+subclass_aot"` the generated code,
too. Those who know torch's own names for such graphs get ours by them: `aot_joint_graph` and `aot_graphs`. The same
goes for what `tlparse` reads.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Literal

from torch import fx

from subclass_aot.base import _torch

_log = logging.getLogger(__name__)

_Kind = Literal["joint", "forward", "backward", "inference"]

announced_to: list[Callable[[str], object]] = []
"""Called with what is being compiled, and with "" when it is done."""


def log_graph(kind: _Kind, graph: fx.GraphModule, name: str) -> None:
    """Shows a graph, where `TORCH_LOGS` enables graphs.

    Args:
        kind: Which graph it is; one without a backward is of kind "inference".
        graph: The graph.
        name: What was compiled.
    """
    artifact = "aot_joint_graph" if kind == "joint" else "aot_graphs"
    if _wants(logging.INFO) or _torch.logs.is_artifact_enabled(artifact):
        log = _log.info if _wants(logging.INFO) else _torch.logs.artifact_log(artifact).debug
        log("%s graph of %s\n%s", kind, name, _text(graph))
    if _torch.logs.is_traced():
        _torch.logs.trace_structured(f"aot_{kind}_graph", _text(graph))


def log_code(sources: Mapping[str, str], name: str) -> None:
    """Shows the generated functions of one signature.

    Args:
        sources: Their text, by what they do.
        name: What was compiled.
    """
    if _wants(logging.DEBUG):
        _log.debug("generated code of %s\n%s", name, "\n\n".join(sources.values()))
    if _torch.logs.is_traced():
        _torch.logs.trace_structured_artifact("subclass_aot_code", "\n\n".join(sources.values()))


def _wants(level: int) -> bool:
    """Returns whether somebody has set the level of our own logger. That of all loggers is set by programs that do not
    expect a graph of a thousand lines.
    """
    ours = (_log, logging.getLogger("subclass_aot"))
    return any(log.level != logging.NOTSET for log in ours) and _log.isEnabledFor(level)


def _text(graph: fx.GraphModule) -> str:
    return graph.print_readable(print_output=False)
