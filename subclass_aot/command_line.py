"""What the command line takes. It needs nothing of torch, which is slow to import."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

_EXAMPLES = """
while a class is written:
  python -m subclass_aot check my_package.tensors:make --quick
  python -m subclass_aot inspect my_package.tensors:MyTensor
  python -m subclass_aot bench my_package.tensors:MyTensor --quick

for a model that is to be trained or served:
  python -m subclass_aot profile transformers:GPT2LMHeadModel -c n_layer=12 --optimizer AdamW --device H100
  python -m subclass_aot measure cuda --out mine.toml

after an installation, or for a file of compiled functions:
  python -m subclass_aot build-native
  python -m subclass_aot inspect compiled.sa

The exit status is 0 for yes, 1 for no (a clause is broken, a model does not fit, nothing is built), and 2 where
nothing is answered: a word is misspelt, or what it names is not there.
"""


def answer_at_once() -> None:
    """Answers who asks `python -m subclass_aot` for help or misspells it, and ends the process.

    It is called when this module is imported, which the package does before it imports torch. While Python looks for a
    module that runs as a program, `sys.argv` begins with "-m".
    """
    words = getattr(sys, "argv", [])  # an embedded Python may have none
    if words[:1] == ["-m"] and sys.orig_argv[-len(words)] in ("subclass_aot", "-msubclass_aot"):
        make_parser().parse_args(words[1:])


def make_parser() -> argparse.ArgumentParser:
    """Returns what reads the words after the program's name."""
    found = argparse.ArgumentParser(
        prog="python -m subclass_aot", description="Tools of subclass_aot. COMMAND -h has the options of each.",
        epilog=_EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    commands = found.add_subparsers(dest="command", required=True, metavar="COMMAND")

    shown = commands.add_parser(
        "inspect", help="show the fields, rules and source of a class, and what works with it; or what is in a file"
    )
    shown.add_argument(
        "target",
        metavar="MODULE:CLASS",
        help="for example subclass_aot.tensors:TwoTensor; or MODULE:FUNCTION, which gives a tensor to try it on;"
        " or a file of compiled functions, of which nothing is run",
    )

    check = commands.add_parser("check", help="try on a tensor subclass what it owes, and say what it does not keep")
    check.add_argument("target", metavar="MODULE:FUNCTION", help="a function that gives a new tensor of the class")
    check.add_argument("--only", type=int, nargs="+", metavar="N", help="the numbers of the clauses to try")
    check.add_argument("--quick", action="store_true", help="leave out what compiles and what starts processes")

    bench = commands.add_parser("bench", help="measure a tensor subclass beside dense tensors, and say what is slow")
    bench.add_argument("target", metavar="MODULE:FUNCTION", help="gives a new tensor of the class; or MODULE:CLASS")
    bench.add_argument("--quick", action="store_true", help="few rounds, a first impression")
    bench.add_argument("--json", type=Path, metavar="FILE", help="where to write all numbers")
    bench.add_argument("--plot", type=Path, metavar="FILE", help="where to draw a call over the number of wrappers")

    _add_profile(
        commands.add_parser("profile", help="say what a model costs before it runs: memory, products, time at best")
    )

    measured = commands.add_parser("measure", help="measure a device of this machine, for `profile --device FILE`")
    measured.add_argument("device", nargs="?", default="cpu", help="cpu (the default), cuda or cuda:1")
    measured.add_argument("--out", type=Path, metavar="FILE", help="the TOML file to write; without one it is printed")

    commands.add_parser("build-native", help="build what makes calls faster, for the torch that is installed")
    return found


def _add_profile(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "target",
        metavar="MODULE:NAME",
        help="a model with a configuration, as transformers:GPT2LMHeadModel;"
        " or a function that returns a program and its arguments",
    )
    parser.add_argument("-c", "--config", nargs="+", default=[], metavar="NAME=VALUE", help="of the configuration")
    parser.add_argument("--batch", type=int, default=1, help="how many examples there are")
    parser.add_argument("--tokens", type=int, default=128, help="how many words an example has")
    parser.add_argument("--dtype", default="float32", help="of parameters and images")
    parser.add_argument("--optimizer", metavar="NAME", help="of torch.optim, as AdamW; without one, no step is made")
    parser.add_argument("--inference", action="store_true", help="forward only, without gradients")
    parser.add_argument("--checkpoint", action="store_true", help="compute activations again in backward")
    parser.add_argument("--weights", metavar="CLASS", help="quantize the layers, as Int8Weight")
    parser.add_argument(
        "--device", metavar="NAME", help="H100, A100, 'RTX 4090', cpu, a TOML file, or a claim as cuda:0"
    )
    parser.add_argument("--memory", metavar="AMOUNT", help="as 80GiB; the exit status is 1 if the peak is over it")
    parser.add_argument("--assume", action="store_true", help="assume values that nobody knows")
    parser.add_argument("--largest", action="store_true", help="say the largest batch that fits, and the formula")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write all figures")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="where to draw memory over the run, and products")
    parser.add_argument(
        "--over", choices=("bytes", "time"), default="bytes", help="bytes allocated, or time at best, for --plot"
    )
    parser.add_argument(
        "--memory-viz", type=Path, metavar="FILE", help="where to write what torch's memory viewer reads"
    )


answer_at_once()
