"""Random programs on random wrapper trees: `aot_compile` against eager.

The default is a fixed set of examples. `make fuzz` looks for new ones.
"""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings

from tests.fuzz.oracle import check_program
from tests.fuzz.programs import Program, programs


@given(programs())
@settings(max_examples=100, suppress_health_check=list(HealthCheck))
def test_random_programs(program: Program) -> None:
    check_program(program)
