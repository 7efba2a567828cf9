"""What a check is, and running all of them over one piece of evidence.

A check yields a sentence for each thing that is wrong and nothing when all is well. It never reads
the cluster itself, so it works on a snapshot too; what the snapshot lacks makes it a skipped one.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum

import msgspec

from gpuinspect.doctor.evidence import Evidence


class Level(StrEnum):
    """What it means when a check finds something."""

    FAIL = "fail"
    WARN = "warn"


class CheckStatus(StrEnum):
    """What came of a check."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    SKIP = "skip"


Run = Callable[[Evidence], Iterator[str]]


class Check(msgspec.Struct, frozen=True):
    """One thing that should hold.

    Attributes:
        name: stable, for scripts.
        title: what should hold.
        remedy: what to do when it does not.
        run: yields what is wrong.
        needs: kinds of objects that the check requires.
    """

    name: str
    level: Level
    title: str
    remedy: str
    run: Run
    needs: tuple[str, ...] = ()


class Checklist:
    """Checks of one subject, in the order of their functions."""

    def __init__(self) -> None:
        self.checks: list[Check] = []

    def __call__(
        self, name: str, level: Level, title: str, *, do: str, needs: tuple[str, ...] = ()
    ) -> Callable[[Run], Run]:
        """Put the function under this line on the list."""

        def listed(run: Run) -> Run:
            self.checks.append(Check(name, level, title, do, run, needs))
            return run

        return listed


class Result(msgspec.Struct, frozen=True):
    """A completed check; ``findings`` list what is wrong, or why it was skipped."""

    check: Check
    verdict: CheckStatus
    findings: tuple[str, ...] = ()


def examine(checks: Iterable[Check], evidence: Evidence) -> Sequence[Result]:
    """Make every check, in order."""
    return [_result(check, evidence) for check in checks]


def _result(check: Check, evidence: Evidence) -> Result:
    lacking = [kind for kind in check.needs if not evidence.snapshot.was_read(kind)]
    if lacking:
        reasons = (evidence.snapshot.missing.get(kind, "not at hand") for kind in lacking)
        named = (f"{kind}: {why}" for kind, why in zip(lacking, reasons, strict=True))
        return Result(check, CheckStatus.SKIP, tuple(named))
    findings = tuple(dict.fromkeys(check.run(evidence)))
    return Result(check, CheckStatus(check.level.value) if findings else CheckStatus.OK, findings)
