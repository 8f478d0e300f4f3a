"""What a program costs before it runs: memory and its owners, products, bytes moved and sent."""

from subclass_aot.cost.profiling.command import run_command as run_command
from subclass_aot.cost.profiling.report import Report as Report
from subclass_aot.cost.profiling.run import Profiled as Profiled
from subclass_aot.cost.profiling.run import profile as profile

__all__ = ["Profiled", "Report", "profile"]
