"""The outcome of one clause on one class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from subclass_aot.testing.contract.clause import Clause, is_fault

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
    def is_broken(self) -> bool:
        """Whether the class does something else than it owes."""
        return is_fault(self.clause, self.verdict)

    @property
    def is_fault(self) -> bool:
        """Whether the class, or what its author says of it, must be mended."""
        return self.is_broken or self.verdict == "kept, not expected"

    def __str__(self) -> str:
        clause = self.clause
        text = f"{self.verdict}: clause {clause.number} ({clause.severity}), {clause.name}: {clause.sentence}"
        return f"{text}\n      {self.why}" if self.why else text
