"""What FSDP2 does with a parameter of a declared class around an all-gather: `ranks/sharding.py` does it."""

from __future__ import annotations

from typing import Any

from subclass_aot.base.later import Later

before: Later[..., tuple[tuple[Any, ...], Any]] = Later("pre_all_gather")
"""Returns what this rank sends of a shard, and what is needed after it came."""

after: Later[..., tuple[Any, tuple[Any, ...]] | None] = Later("post_all_gather")
"""Returns the whole of what all ranks have sent."""
