"""The benchmarks run, and their report has the shape it promises. How fast anything is, is not tested here."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import benchmarks.quantized.__main__ as quantized
import subclass_aot as sa
from benchmarks import (
    by_hand,
    call,
    dispatch,
    dynamo,
    files,
    flatness,
    growth,
    int8,
    kernels,
    leaves,
    limit,
    loops,
    machine,
    meta,
    models,
    new_process,
    null,
    quantized_kernels,
    report,
    signature,
    sizes,
    steps,
    torch_side,
    trace,
    values,
    wide,
)
from benchmarks.leaves import tree
from benchmarks.quantized import weights
from benchmarks.quantized.models import MODELS
from benchmarks.row import Result, Row, Target
from subclass_aot.testing.benchmark import Budget, Ratio
from tests.torches import TORCH

TINY = Budget(seconds=0.0, block_us=1.0, fewest_rounds=2, most_rounds=2)

SUBJECTS: dict[str, Callable[[], Iterator[Result]]] = {
    "dispatch": lambda: dispatch.run(TINY),
    "leaves": lambda: leaves.run(TINY, counts=(2,), depths=(2,)),
    "flatness": lambda: flatness.run(TINY, numbers=(2, 4)),
    "planning": lambda: flatness.run_planning(TINY, numbers=(2, 4)),
    "trace": lambda: trace.run(TINY, layers=1, wrappers=1),
    "meta": lambda: meta.run(TINY, layers=1),
    "call": lambda: call.run(TINY, counts=(1,), with_dynamo=False),
    "signature": lambda: signature.run(TINY, counts=(1, 2)),
    "growth": lambda: growth.run(TINY, modules=(1, 2), signatures=3),
    "loops": lambda: loops.run(TINY, steps=(2,), hidden=3),
    "values": lambda: values.run(TINY, sizes=(2,), with_dynamo=False),
    "models": lambda: models.run(TINY, names=["LlamaForCausalLM"], with_dynamo=False),
    "dynamo": lambda: dynamo.run(TINY, layers=1, counts=(1,)),
    "files": lambda: files.run(TINY, layers=1),
    "new process": lambda: new_process.run(TINY, layers=1),
    "int8": lambda: int8.run(TINY, names=["ViT"], with_inductor=False),
    "kernels": lambda: kernels.run(TINY, names=["silu", "prelu"]),
    "limit": lambda: limit.run(TINY, 2, layers=1, modules=(1, 2), signatures=3, with_dynamo=False),
}


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # torch's own, of attention under vmap
@pytest.mark.parametrize(
    "subject", [pytest.param(name, marks=pytest.mark.long if name == "new process" else ()) for name in SUBJECTS]
)
def test_subject_gives_rows(subject: str, tmp_path: Path) -> None:
    results = list(SUBJECTS[subject]())
    rows = [row for result in results for row in result.rows()]
    assert rows
    for row in rows:
        measured = [row.ours_us] if "all overhead" in row.against else [row.ours_us, row.other_us]
        assert all(us > 0 for us in measured)
        assert math.isfinite(row.other_us)  # all overhead of a call is a difference, of either sign in so few rounds
        assert row.ratio.low <= row.ratio.median <= row.ratio.high
        assert (row.reached is None) == (row.target is None)
    report.write(results, machine.describe(), tmp_path)
    written = json.loads((tmp_path / "results.json").read_text())
    assert len(written["rows"]) == len(rows)
    for line in written["rows"]:
        assert line["ours"] in written["comparisons"][line["comparison"]]
    table = (tmp_path / "table.md").read_text()
    assert all(f"| {row.subject} | {row.case} | {row.against} |" in table for row in rows)
    assert report.on_screen(results).count("\n") > len(rows)


def test_the_table_of_quantized_weights() -> None:
    def fails(model: Any) -> None:
        raise RuntimeError("not here\nand more")

    llama, olmoe, t5 = MODELS
    same = {"num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 16}
    small = (
        llama.smaller(hidden_size=64, intermediate_size=64, **same),
        olmoe.smaller(hidden_size=64, intermediate_size=64, **same),
        t5.smaller(d_model=64, d_kv=16, d_ff=64, num_layers=1, num_heads=4, vocab_size=16),
    )
    compilers = {name: quantized.COMPILERS[name] for name in ("eager mode", '"eager"')}
    ours = {name: weights.OF_EXPERTS[name] for name in ("dense", "`Int8Weight`", "`Int4Weight`")}
    others = {"eager mode": compilers["eager mode"]}
    for kind, elements in zip(small, (64 * 64 * 7, 64 * 64 * (4 + 16 * 3), 64 * 64 * (6 + 10)), strict=True):
        of_kind = compilers if kind is small[0] else others
        measured = quantized.run(TINY, kind, {**ours, "another": fails}, of_kind)
        assert [row.name for row in measured.rows] == list(ours)
        dense, eight, four = measured.rows
        assert 2 * elements <= dense.bytes < 2.1 * elements and dense.off == 0
        assert elements < eight.bytes < 1.1 * elements and 0.5 * elements < four.bytes < 0.7 * elements
        assert 0 < eight.off < four.off < 1
        assert len(measured.times.microseconds) == len(ours) * len(of_kind) * 3
        lines = "\n".join(quantized.markdown(kind, measured, of_kind)).splitlines()
        assert len([line for line in lines if line.startswith("|")]) == len(of_kind) * (2 + len(ours))
        assert "- another: `RuntimeError: not here`" in lines
    with pytest.raises(RuntimeError, match="not here"):
        quantized.run(TINY, small[0], {"dense": fails}, compilers)  # what is ours must run


def test_the_table_of_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep = tmp_path / "steps.json"
    names = ["UNet, 1 small picture", "one linear layer"]
    arguments = ["--seconds", "0", "--keep", str(keep), *(f"--only={name}" for name in names)]
    steps.main(arguments)
    first = capsys.readouterr().out
    assert len([line for line in first.splitlines() if line.startswith("| ")]) == 1 + len(names)
    measured = json.loads(keep.read_text())
    assert list(measured) == names and all(found["ratio"] > 0 for row in measured.values() for found in row.values())
    steps.main(arguments)
    assert capsys.readouterr().out == first  # what was measured is kept


def test_the_table_of_second_calls(capsys: pytest.CaptureFixture[str]) -> None:
    sizes.main(["--rounds", "1", "--only", "LlamaForCausalLM"])
    summary, *lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith(("- ", "| "))]
    assert "in the median of 1 models" in summary and len(lines) == 2


@pytest.mark.long
@pytest.mark.parametrize("model", [*steps.OWN.values(), *wide.MODELS.values()], ids=[*steps.OWN, *wide.MODELS])
def test_a_model_of_the_table_of_steps(model: steps.Model) -> None:
    found = steps.measure(model, TINY)
    assert set(found) == set(steps.KINDS)


def test_the_table_of_products(capsys: pytest.CaptureFixture[str]) -> None:
    assert quantized_kernels.main(["--small"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len([line for line in lines if line.startswith("| ")]) >= 1 + 2 * 3


@pytest.mark.parametrize("cls", [sa.TwoTensor, torch_side.TwoTensor])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_every_way_gives_the_same_leaves_and_wrappers(cls: Any, depth: int) -> None:
    ways = leaves._Class("class", cls, count=2, depth=depth)
    read = [unwrap(ways.values) for unwrap, _ in ways.ways.values()] + [ways.unwrap_checked(ways.values)]
    for found in read:
        assert list(map(id, found)) == list(map(id, ways.leaves)), "the leaves themselves, in order"
    for _, wrap in ways.ways.values():
        made = wrap(ways.leaves)
        assert [type(value) for value in made] == [cls, cls]
        assert list(map(id, ways.plan.unwrap(made))) == list(map(id, ways.leaves))
        assert (made[0].shape, made[0].stride(), made[0].dtype) == (by_hand.SIZE, by_hand.STRIDE, torch.float32)
    if ways.round_trip is None:
        assert TORCH < (2, 12), "torch generates no code here"
    else:
        assert list(map(id, ways.plan.unwrap(ways.round_trip(list(ways.values))))) == list(map(id, ways.leaves))


@pytest.mark.parametrize("name", limit.OPERATORS)
def test_operators_do_the_same_on_a_pair_and_on_two(name: str) -> None:
    on_pair, on_two, _ = limit.OPERATORS[name]
    pair: Any = tree(sa.TwoTensor, 1)
    made: Any = on_pair(pair)
    torch.testing.assert_close((made.a, made.b), on_two(pair.a, pair.b), rtol=0, atol=0)


@pytest.mark.parametrize("cls", [sa.TwoTensor, torch_side.TwoTensor])
def test_null_graphs_give_back_leaves(cls: Any) -> None:
    """Every way hands over the very leaves, forward and backward, and nothing is computed."""
    xs, tangents = [tree(cls, 1).requires_grad_() for _ in range(2)], [tree(cls, 1) for _ in range(2)]
    for function in null.ways(with_dynamo=True).values():
        made = function(*xs)
        assert [type(value) for value in made] == [cls, cls]
        for got, given in ((made, xs), (torch.autograd.grad(made, xs, tangents), tangents)):
            for one, other in zip(got, given, strict=True):
                assert (one.a.data_ptr(), one.b.data_ptr()) == (other.a.data_ptr(), other.b.data_ptr())


def test_null_graphs_want_as_many_results_as_inputs() -> None:
    with pytest.raises(ValueError, match="2 inputs cannot stand for 1 results"):
        sa.aot_compile(torch.add, fw_compiler=null.compiler)(torch.ones(2), torch.ones(2))


@pytest.mark.parametrize("accelerated", [False, True])
def test_the_limit_asks_for_more_with_the_accelerator(accelerated: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "is_accelerated", lambda: accelerated)
    rows = [row for result in limit.wrap(TINY, 2) for row in result.rows() if row.target is not None]
    wanted = [] if TORCH < (2, 12) else [12, 12] if accelerated else [4, 3]
    assert [row.target.at_least for row in rows if row.target] == wanted


@pytest.mark.parametrize("how", ["{}: what: in {}", "{} (what): {}"])
@pytest.mark.parametrize(
    ("tables", "shown", "all_run"), [("C++", "recipes, tables", True), ("Python", "recipes", False)]
)
def test_the_parts_of_the_accelerator_are_read(
    how: str, tables: str, shown: str, all_run: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [how.format("exact", "C"), how.format("recipes", "C++"), how.format("tables", tables), "torch 2, Python 3"]
    monkeypatch.setattr(machine._native, "show_config", lambda: "\n".join(lines))
    assert machine.describe()["accelerator"] == shown and machine.is_accelerated() is all_run


def test_the_machine_is_described_without_its_folders() -> None:
    assert "making wrappers of inner tensors" in machine.config()
    assert str(Path.home()) not in machine.config() + str(machine.describe())


@pytest.mark.parametrize("operator", [torch.add, torch.mul])
@pytest.mark.parametrize("other", ["itself", 2.0])
def test_rules_by_hand_equal_the_library(operator: Any, other: Any) -> None:
    pair = tree(sa.TwoTensor, 1)
    by_rule = by_hand.HandTwoTensor(pair.a, pair.b)
    ours = operator(pair, pair if other == "itself" else other)
    hand = operator(by_rule, by_rule if other == "itself" else other)
    assert torch.equal(ours.a, hand.a) and torch.equal(ours.b, hand.b)
    assert torch.equal(by_rule.detach().a, pair.a)


def test_summary_gives_the_worst_row_of_a_target() -> None:
    target = Target.faster(3, "wrap")
    rows = [Row("wrap", str(r), "x", 1.0, r, Ratio(r, r, r), target) for r in (4.0, 2.0, 5.0)]
    assert report.summary(rows) == [("wrap", "3x faster (>= 3.00)", "3", "2.00", "4.00", "5.00", "2 of 3")]
