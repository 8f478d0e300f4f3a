"""Wrappers on several devices: sharding, placements, collectives."""

from subclass_aot.kit.wrapper import SERVED
from subclass_aot.ranks.collectives import collective_handler, functional_handler
from subclass_aot.ranks.functional import in_eager_mode as in_eager_mode
from subclass_aot.ranks.placements import of_distributed as of_distributed
from subclass_aot.ranks.placements import within_distributed as within_distributed
from subclass_aot.ranks.sharding import gradient_handler

SERVED.update(c10d=collective_handler, _c10d_functional=functional_handler, fsdp=gradient_handler)
