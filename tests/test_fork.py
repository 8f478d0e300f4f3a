"""A process that imports the library and forks: the import starts no threads, and the child computes."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")

PRODUCT = "assert (torch.ones(1024, 1024) @ torch.ones(1024, 1024)).sum() == 2**30"

PROGRAMS = {
    "the import starts no threads": """
        before = threads()
        import subclass_aot
        assert threads() == before, (before, threads())
    """,
    "rooms start no threads": """
        before = threads()
        import subclass_aot as sa
        import subclass_aot.testing.inspection, subclass_aot.cost.profiling, subclass_aot.doors.dynamo
        sa.show_config()
        sa.aot_compile(lambda x: x * 2)(torch.ones(3))
        sa.tensors.Int8Weight.from_float(torch.ones(4, 4))
        assert threads() == before, (before, threads())
    """,
    "a forked child computes": f"""
        import subclass_aot as sa
        child = os.fork()
        if child == 0:
            {PRODUCT}
            compiled = sa.aot_compile(lambda x, w: torch.nn.functional.linear(x, w))
            w = sa.tensors.Int8Weight.from_float(torch.randn(64, 64))
            torch.testing.assert_close(compiled(torch.ones(2, 64), w), torch.ones(2, 64) @ w.to_plain().t())
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    """,
    "a child forked after a compilation computes": f"""
        import subclass_aot as sa
        compiled = sa.aot_compile(lambda x: (x * 2).sum())
        compiled(torch.ones(3))
        child = os.fork()
        if child == 0:
            {PRODUCT}
            assert compiled(torch.ones(3)) == 6 and compiled(torch.ones(4, 4)) == 32
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    """,
    "multiprocessing by fork": """
        import multiprocessing
        import subclass_aot as sa
        def work(n):
            return sa.aot_compile(lambda x: (x @ x).sum())(torch.ones(n, n)).item()
        with multiprocessing.get_context("fork").Pool(2) as pool:
            assert pool.map(work, [256, 512]) == [256.0**3, 512.0**3]
    """,
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_fork(program: str) -> None:
    code = (
        f"import os, torch\nthreads = lambda: len(os.listdir('/proc/self/task'))\n{textwrap.dedent(PROGRAMS[program])}"
    )
    environment = {**os.environ, "OMP_NUM_THREADS": "4", "SUBCLASS_AOT_NATIVE": "0"}
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env=environment)
    assert ran.returncode == 0, ran.stderr
