"""The demo: a quantized vision transformer trained through `aot_compile`, equal to eager, and what that costs."""

from subclass_aot.demo.processes import run as run_processes
from subclass_aot.demo.stages import run as run

__all__ = ["run", "run_processes"]
