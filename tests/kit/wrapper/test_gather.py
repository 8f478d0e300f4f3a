"""The two functions by which FSDP2's hooks reach what shards wrappers."""

from __future__ import annotations

from subclass_aot.kit.wrapper import gather
from subclass_aot.ranks import sharding


def test_they_are_those_of_the_room_for_ranks() -> None:
    assert gather.before._function is sharding.pre_all_gather and gather.after._function is sharding.post_all_gather
