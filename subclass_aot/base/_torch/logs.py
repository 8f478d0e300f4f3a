"""Torch's own logs of compilations. `torch._logging` has public setters, and nothing public for what writes them."""

from __future__ import annotations

import logging
import os

from torch._logging import _internal


def is_artifact_enabled(name: str) -> bool:
    """Returns whether `TORCH_LOGS` or `torch._logging.set_logs` enables what has this name. When it goes: False."""
    return bool(_internal.log_state.is_artifact_enabled(name))


def artifact_log(name: str) -> logging.Logger:
    """Returns this library's logger of this name; only below `torch` is it shown. When it goes: any logger."""
    found: logging.Logger = _internal.getArtifactLogger("torch.subclass_aot", name)
    return found


def is_traced() -> bool:
    """Returns whether there are files of `TORCH_TRACE`, which `tlparse` reads. When it goes: no.

    Torch itself finds out by writing a first text, which is slow to make. What takes the records of all loggers, as
    pytest does, asks for no graphs.
    """
    of_all = logging.getLogger().handlers
    kind = getattr(_internal, "LazyTraceHandler", None)
    handlers = _internal.trace_log.handlers
    undecided = all(
        handler in of_all or type(handler) is kind and getattr(handler, "root_dir", "") is None for handler in handlers
    )
    return not undecided or bool(handlers) and "MAST_HPC_JOB_NAME" in os.environ


def trace_structured(name: str, text: str) -> None:
    """Writes a graph there. When it goes: nothing."""
    _internal.trace_structured(name, payload_fn=lambda: text, expect_trace_id=False)


def trace_structured_artifact(name: str, text: str) -> None:
    """Writes a text of any name there."""
    _internal.trace_structured(
        "artifact",
        metadata_fn=lambda: {"name": name, "encoding": "string"},
        payload_fn=lambda: text,
        expect_trace_id=False,
    )
