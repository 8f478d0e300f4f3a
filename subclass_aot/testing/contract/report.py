"""The report: the outcome of each clause, as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from subclass_aot.errors import ContractError
from subclass_aot.testing.contract.clause import Clause, is_fault
from subclass_aot.testing.contract.remedies import remedy

Verdict = Literal["kept", "broken", "raises", "does not apply", "expected", "kept, not expected"]


@dataclass(frozen=True)
class Finding:
    """The outcome of one clause.

    Attributes:
        clause: The clause.
        verdict: "kept"; "broken": wrong in silence; "raises"; "does not apply"; "expected": not kept, and the author
            says why; "kept, not expected": the author says that it is not.
        why: What differed, and by how much, what was raised, or why it does not apply.
    """

    clause: Clause
    verdict: Verdict
    why: str = ""

    @property
    def is_fault(self) -> bool:
        """Whether the class must be mended."""
        return is_fault(self.clause, self.verdict) or self.verdict == "kept, not expected"

    def __str__(self) -> str:
        clause = self.clause
        text = f"{self.verdict}: clause {clause.number} ({clause.severity}), {clause.name}: {clause.sentence}"
        return f"{text}\n      {self.why}" if self.why else text


class Report:
    """The outcomes of all clauses on one class.

    Args:
        cls: The class.
        findings: One for each clause, in the order of the contract.
    """

    def __init__(self, cls: type, findings: Sequence[Finding]) -> None:
        self.cls = cls
        self.findings = tuple(findings)

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

    def _with_lines_to_write(self) -> Iterator[str]:
        """Yields what must be mended, and below it the line that mends it, where one line does."""
        remedies = [
            "" if finding.verdict == "kept, not expected" else f"      write: {remedy(finding.clause, self.cls)}"
            for finding in self.broken
        ]
        for finding, line, following in zip(self.broken, remedies, [*remedies, ""][1:], strict=True):
            yield f"  {finding}"
            if line and line != following:
                yield line

    def __str__(self) -> str:
        counts = {finding.verdict: 0 for finding in self.findings}
        for finding in self.findings:
            counts[finding.verdict] += 1
        lines = [f"{self.cls.__name__}: {', '.join(f'{count} {verdict}' for verdict, count in counts.items())}"]
        expected = [finding for finding in self.findings if finding.verdict == "expected"]
        if self.broken:
            lines.append("To mend:")
        lines += self._with_lines_to_write()
        for title, findings in (("Not offered:", self.not_offered), ("Expected:", expected)):
            if findings:
                lines += [title, *(f"  {finding}" for finding in findings)]
        return "\n".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
