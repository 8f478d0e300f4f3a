"""The report: the outcome of each clause, as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from subclass_aot.errors import ContractError
from subclass_aot.testing.contract.causes import Cause
from subclass_aot.testing.contract.finding import Finding
from subclass_aot.testing.contract.remedies import remedy


class Report:
    """The outcomes of all clauses on one class.

    Args:
        cls: The class.
        findings: One for each clause, in the order of the contract.
        causes: What is to blame for what is broken.
    """

    def __init__(self, cls: type, findings: Sequence[Finding], causes: Sequence[Cause] = ()) -> None:
        self.cls = cls
        self.findings = tuple(findings)
        self.causes = tuple(causes)

    @property
    def broken(self) -> list[Finding]:
        """What must be mended."""
        return [finding for finding in self.findings if finding.is_fault]

    @property
    def not_offered(self) -> list[Finding]:
        """What raises, where a class may: nothing goes wrong in silence."""
        return [finding for finding in self.findings if finding.verdict == "raises" and not finding.is_fault]

    def raise_if_broken(self) -> None:
        """Raises what the report says, if something must be mended.

        Raises:
            ContractError: A clause is broken, or raises where the class owes a result.
        """
        if self.broken:
            raise ContractError(str(self))

    def markdown(self) -> str:
        """Returns the report as a table, for the documentation of a class."""
        rows = [f"| {f.clause.number} | {f.clause.name} | {f.verdict} | {_cell(f.why)} |" for f in self.findings]
        return "\n".join(["| clause | what is tried | verdict | why |", "|---|---|---|---|", *rows])

    def _to_mend(self) -> Iterator[str]:
        """Yields each cause with what shows it, what to write, and what else is broken by it; then what has none."""
        for cause in self.causes:
            first, *others = cause.findings
            blamed = " and ".join(map(str, cause.methods)) or f"clause {first.clause.number}"
            verb = " do not agree" if len(cause.methods) > 1 else ""
            if cause.helpers:
                blamed += f", with {' and '.join(map(str, cause.helpers))}{',' * bool(verb)}"
            said = (first.why or first.clause.sentence).partition("\n")[0]
            yield f"{self.cls.__name__}: {blamed}{verb}: {said}"
            yield f"      write: {remedy(first.clause, self.cls, cause.methods, first.why)}"
            yield f"  {first}"
            if others:
                yield f"  and {len(others)} more: {'; '.join(f'{o.clause.number} {o.clause.name}' for o in others)}"
        explained = {id(finding) for cause in self.causes for finding in cause.findings}
        for finding in self.broken:
            if id(finding) not in explained:
                yield f"{self.cls.__name__}: {finding}"
                if finding.is_broken:
                    yield f"      write: {remedy(finding.clause, self.cls)}"

    def __str__(self) -> str:
        counts = {finding.verdict: 0 for finding in self.findings}
        for finding in self.findings:
            counts[finding.verdict] += 1
        lines = [*self._to_mend()]
        lines.append(f"{self.cls.__name__}: {', '.join(f'{count} {verdict}' for verdict, count in counts.items())}")
        expected = [finding for finding in self.findings if finding.verdict == "expected"]
        for title, findings in (("Not offered:", self.not_offered), ("Expected:", expected)):
            if findings:
                lines += [title, *(f"  {finding}" for finding in findings)]
        return "\n".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
