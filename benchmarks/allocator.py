"""What torch's own allocator on CPUs says of a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.profiler import ProfilerActivity, profile


def real_peak(run: Callable[[], object], base: int = 0) -> int:
    """The most bytes of torch's allocator during `run()`, on top of what is there before."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as prof:
        run()
    events: Any = prof.profiler.kineto_results.events()  # type: ignore[union-attr]
    changes = sorted((e.start_ns(), i, e.nbytes()) for i, e in enumerate(events) if e.name() == "[memory]")
    now = peak = base
    for _, _, by in changes:
        now += by
        peak = max(peak, now)
    return peak


def held(tensors: Any) -> int:
    """Bytes of all storages."""
    found: dict[int, int] = {}

    def visit(tensor: Any) -> None:
        if hasattr(tensor, "__tensor_flatten__"):
            for name in tensor.__tensor_flatten__()[0]:
                visit(getattr(tensor, name))
        else:
            found[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()

    for tensor in tensors:
        visit(tensor)
    return sum(found.values())
