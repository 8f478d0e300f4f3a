"""A report in words."""

from __future__ import annotations

from subclass_aot.cost.profiling.figures import Figures
from subclass_aot.cost.profiling.words import amount
from subclass_aot.meta import Operation


def table(report: Figures) -> str:
    """Returns a report as text.

    Args:
        report: The report.
    """
    lines = _head(report)
    lines += ["", "held at the peak    " + _shares(report.owners("kind"), report.peak)]
    modules = {name or "(outside of modules)": n for name, n in report.owners("module", depth=2).items()}
    lines += ["  by module         " + _shares(modules, report.peak)]
    lines += ["  by line           " + _shares(report.owners("line"), report.peak)]
    lines += ["", f"parameters          {amount(report.parameters)}"]
    if report.gradients:
        lines.append(f"gradients           {amount(report.gradients)}")
    if report.optimizer_state:
        lines.append(f"optimizer state     {amount(report.optimizer_state)}")
    if report.timeline.end_of("forward") is not None:
        lines.append(f"saved for backward  {amount(report.saved)}")
    lines += ["", *_work(report)]
    for each in report.wrappers[:8]:
        ratio = f"{each.logical / each.held:.1f}x" if each.held else ""
        lines.append(
            f"{each.name} {each.cls}: {amount(each.logical)} as a dense tensor, {amount(each.held)} held {ratio}"
        )
    if len(report.wrappers) > 8:
        lines.append(f"... and {len(report.wrappers) - 8} more wrappers")
    lines += _reservations(report)
    return "\n".join(lines).rstrip()


def _head(report: Figures) -> list[str]:
    where = f" on {report.device.name}" if report.device is not None else ""
    lines = [f"peak                {amount(report.peak)}{where}: {report.peak_at}"]
    if report.memory is not None:
        verdict = "it fits" if report.fits else f"it does not fit: {amount(report.peak - report.memory)} too much"
        lines.append(f"memory              {amount(report.memory)}: {verdict}")
    return lines


def _shares(owners: dict[str, int], whole: int, most: int = 5) -> str:
    shown = [f"{name} {amount(n)}" for name, n in list(owners.items())[:most] if n * 1000 >= whole]
    rest = whole - sum(list(owners.values())[: len(shown)])
    return ", ".join(shown + ([f"the rest {amount(rest)}"] if rest else []))


def _work(report: Figures) -> list[str]:
    phases = [phase for phase in Operation.PHASES if report.timeline.end_of(phase) is not None]
    lines = [" " * 20 + "".join(f"{phase:>14}" for phase in (*phases, "all"))]
    rows = [("products", "FLOP", report.flops), ("moved", "B", report.bytes_moved)]
    if report.communication():
        rows.append(("sent to others", "B", report.communication))
    for name, unit, sums in rows:
        numbers = [*(sums(phase) for phase in phases), sums()]
        lines.append(f"{name:20}" + "".join(f"{amount(n, unit):>14}" for n in numbers))
    if report.device is not None:
        times = report.seconds()
        numbers = [*(times.by_phase.get(phase, 0.0) for phase in phases), times.seconds]
        lines.append(f"{'time, at best':20}" + "".join(f"{amount(n, 's'):>14}" for n in numbers))
        bounds = ", ".join(f"{name} {amount(n, 's')}" for name, n in times.by_bound.items())
        lines.append(f"  bound by          {bounds}; products reach {times.mfu:.0%} of the device at most")
    return lines


def _reservations(report: Figures) -> list[str]:
    lines = [f"assumed             {each}" for each in report.assumed]
    lines += [f"as eager mode       what torch.compile made: {each}" for each in report.compiled]
    if report.uncounted:
        found = ", ".join(f"{name} ({times}x)" for name, times in report.uncounted.items())
        lines.append(f"not counted         products of {found}: there is no formula")
    where = report.timeline.device
    if where is not None and where.type == "cpu" and report.flops():
        lines.append("not counted         what MKL and oneDNN keep beside torch's allocator from their first run on")
    lines += [f"not known           {each}" for each in report.unknown]
    return ["", *lines] if lines else []


def difference(report: Figures, before: Figures) -> str:
    """Returns what changes from one report to another as text.

    Args:
        report: The later one.
        before: The earlier one.
    """
    rows = [("peak", "B", before.peak, report.peak)]
    owners, others = report.owners("kind"), before.owners("kind")
    rows += [(f"  {kind}", "B", others.get(kind, 0), owners.get(kind, 0)) for kind in {**others, **owners}]
    rows.append(("saved for backward", "B", before.saved, report.saved))
    for phase in Operation.PHASES:
        rows.append((f"products, {phase}", "FLOP", before.flops(phase), report.flops(phase)))
    rows.append(("moved", "B", before.bytes_moved(), report.bytes_moved()))
    lines = [f"{'':24}{'before':>14}{'after':>14}{'change':>14}"]
    for name, unit, old, new in rows:
        if old or new:
            change = f"{new / old - 1:+.1%}" if old else "new"
            lines.append(f"{name:24}{amount(old, unit):>14}{amount(new, unit):>14}{change:>14}")
    return "\n".join(lines)
