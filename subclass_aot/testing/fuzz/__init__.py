"""Random programs, compiled and in eager mode: `python -m subclass_aot.testing.fuzz`. It needs hypothesis."""

from subclass_aot.testing.fuzz.captured import check_captured as check_captured
from subclass_aot.testing.fuzz.oracle import check_program as check_program
from subclass_aot.testing.fuzz.programs import Program as Program
from subclass_aot.testing.fuzz.programs import programs as programs
from subclass_aot.testing.fuzz.search import fuzz as fuzz
from subclass_aot.testing.fuzz.trees import KINDS as KINDS
