"""What is tried in one environment: `python program.py [--short] [--strict] [--demo] [FOLDER]`.

It needs torch and the library alone, and no numpy. FOLDER has programs from the documentation; each runs in a fork.
Each thing that went well is a line of the output; what does not go well ends it. No `assert`: it runs with `-O`, too.
"""

from __future__ import annotations

import contextlib
import os
import runpy
import shutil
import subprocess
import sys
import tempfile
import traceback
import warnings
from pathlib import Path
from typing import Any


def main(words: list[str]) -> None:
    """Tries all that was asked for."""
    if "--strict" in words:
        warnings.filterwarnings("error", module=r"subclass_aot(\.|$)")
    import torch

    import subclass_aot as sa

    torch.set_num_threads(1)
    done("import")
    check(sa.show_config().startswith(f"subclass_aot {sa.__version__}, torch"), "show_config says what runs")
    done("show_config")
    train(torch, sa)
    if "--short" in words:
        return
    use(torch, sa)
    declare(torch, sa)
    with tempfile.TemporaryDirectory() as folder:
        save(torch, sa, Path(folder))
    programs = [path for word in words if not word.startswith("--") for path in sorted(Path(word).glob("*.py"))]
    for path in programs:
        run_alone(path)
    done(f"{len(programs)} blocks of README and docs")
    command("inspect", "subclass_aot:Int8Weight", shows="Operators")
    command("bench", "--help", shows="usage")
    build_native()
    if "--demo" in words:
        demo()


def check(holds: bool, what: str) -> None:
    """Ends the run if something does not hold."""
    if not holds:
        raise SystemExit(f"not so: {what}")


def done(what: str) -> None:
    """Says that something went well."""
    print(f"ok {what}", flush=True)


def train(torch: Any, sa: Any) -> None:
    """Trains a layer with a wrapper and dropout, compiled and in eager mode."""
    from torch import nn

    def model() -> Any:
        torch.manual_seed(0)
        layers = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.ReLU(), nn.Linear(8, 2))
        layers[3].weight = nn.Parameter(sa.Int8Weight.from_float(layers[3].weight), requires_grad=False)
        return layers

    def steps(layers: Any, run: Any) -> Any:
        trained = [p for p in layers.parameters() if p.requires_grad]
        optimizer = torch.optim.AdamW(trained)
        torch.manual_seed(1)
        for size in (4, 4, 6):
            optimizer.zero_grad()
            run(torch.ones(size, 8)).square().mean().backward()
            optimizer.step()
        return trained

    eager, compiled = model(), model()
    expected, found = steps(eager, eager), steps(compiled, sa.aot_compile(compiled))
    check(all(map(torch.equal, expected, found)), "what is trained is equal to eager mode")
    check(not any(map(torch.equal, found, model().parameters())), "it was trained")
    done("training with dropout")


def use(torch: Any, sa: Any) -> None:
    """Goes through the other door, and runs without data."""
    layers = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.5))
    through = torch.compile(layers, backend="subclass_aot")
    torch.manual_seed(0)
    expected = layers(torch.ones(4, 8))
    torch.manual_seed(0)
    check(torch.equal(expected, through(torch.ones(4, 8))), "torch.compile gives what eager mode gives")
    done("torch.compile")
    with sa.meta():
        check(torch.nn.Linear(8, 4)(torch.ones(2, 8)).shape == (2, 4), "a module runs without data")
    done("MetaTensor")
    # a build with CUDA libraries on a machine without a device must not try to start one
    model = torch.nn.Sequential(torch.nn.Embedding(10, 8), torch.nn.Linear(8, 4))
    words = torch.zeros(2, 3, dtype=torch.long)
    report = sa.profile(model, words, device="H100", optimizer=torch.optim.AdamW)
    check(report.peak > 0 and report.seconds().seconds > 0, "a step on a device that is not there has a price")
    done("sa.profile")


def declare(torch: Any, sa: Any) -> None:
    """Declares a wrapper class, uses it, and checks what it owes."""
    from subclass_aot.testing import check_compiled

    class Scaled(sa.WrapperTensor, views="broadcast"):
        codes: torch.Tensor
        scale: torch.Tensor

        def outer_metadata(self) -> Any:
            return sa.Outer.like(self.codes, dtype=self.scale.dtype)

        def to_plain(self) -> Any:
            return self.codes.to(self.scale.dtype) * self.scale

    weight = Scaled(torch.ones(4, 3, dtype=torch.int8), torch.rand(4, 1))
    check_compiled(lambda w, x: (x @ w).relu(), [weight, torch.ones(2, 4)])
    done("a wrapper class")


def save(torch: Any, sa: Any, folder: Path) -> None:
    """Writes a compiled function and a state dict, and reads them."""

    def fn(weight: Any, x: Any) -> Any:
        return (x @ weight).sin()

    given = sa.TwoTensor(torch.ones(4, 3), torch.ones(4, 3)), torch.rand(2, 4)
    compiled = sa.aot_compile(fn)
    expected = compiled(*given)
    compiled.save(folder / "fn.aot")
    found = sa.load_compiled(folder / "fn.aot", trust=True)(*given)
    check(torch.equal(expected.a, found.a) and torch.equal(expected.b, found.b), "a file gives the same")
    torch.save(given[0], folder / "weight.pt")
    check(torch.equal(torch.load(folder / "weight.pt").a, given[0].a), "a wrapper goes through torch.save")
    done("files")


def run_alone(path: Path) -> None:
    """Runs a program in a fork of this process."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        check(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, f"{path.name} runs")
        return
    status = 1
    try:
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
            kept = runpy.run_path(str(path), run_name="__main__")  # noqa: F841 - what it made is not torn down
        status = 0
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    os._exit(status)


def command(*words: str, shows: str) -> None:
    """Runs a command line of the library."""
    ran = subprocess.run([sys.executable, "-m", "subclass_aot", *words], capture_output=True, text=True)
    check(ran.returncode == 0 and shows in ran.stdout, f"{words[0]} runs:\n{ran.stdout[-1000:]}{ran.stderr[-2000:]}")
    done(words[0])


def demo() -> None:
    """Runs the demo in two processes, from a copy: beside its folder stands the library as it is not installed."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(Path(__file__).parents[2] / "benchmarks" / "demo", Path(folder) / "benchmarks" / "demo")
        line = [sys.executable, "-m", "benchmarks.demo", "--processes", "2"]
        ran = subprocess.run(line, capture_output=True, text=True, cwd=folder)
    check(ran.returncode == 0 and "equal: no difference" in ran.stdout, f"demo runs:\n{ran.stdout[-1000:]}{ran.stderr}")
    done("demo")


def build_native() -> None:
    """Builds the extension in C where there is a compiler; elsewhere says in one line what to do."""
    from subclass_aot.native import build, build_exact

    try:
        build_exact()
        done("build of the extension in C")
    except RuntimeError as error:
        said = str(error)
        check(build.compiler() is None or "XDG_CACHE_HOME=/a/folder" in said, said)
        check("\n" not in said, "why nothing is built is said in one line")
        done("why nothing is built")


if __name__ == "__main__":
    main(sys.argv[1:])
