"""The sets of operators that have a name."""

from __future__ import annotations

import itertools
import subprocess
import sys

import subclass_aot as sa
from subclass_aot.base.operators import OperatorKind


def test_there_is_a_set_for_each_kind() -> None:
    named = {name: getattr(sa.ops, name) for name in sa.ops.__all__}
    assert {frozenset({kind}): kind.name.lower() for kind in OperatorKind} == {v.kinds: k for k, v in named.items()}
    assert all(repr(one) == f"ops.{name}" and one.description for name, one in named.items())


def test_no_operator_is_in_two_of_them() -> None:
    listed = [set(getattr(sa.ops, name)) for name in sa.ops.__all__]
    assert all(len(one) > 40 for one in listed)
    assert not any(one & other for one, other in itertools.combinations(listed, 2))


def test_nothing_is_looked_up_at_import() -> None:
    """Kinds are read when they are asked for: an import reads none."""
    program = (
        "import subclass_aot\nfrom subclass_aot.base.operators import kinds\nassert not kinds._kinds, kinds._kinds"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
