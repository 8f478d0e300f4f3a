"""Random programs, compiled and in eager mode: `python -m tests.fuzz`. It needs hypothesis."""

from tests.fuzz.captured import check_captured as check_captured
from tests.fuzz.oracle import check_program as check_program
from tests.fuzz.programs import Program as Program
from tests.fuzz.programs import programs as programs
from tests.fuzz.search import fuzz as fuzz
from tests.fuzz.trees import KINDS as KINDS
