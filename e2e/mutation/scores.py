"""What became of the mutants, module by module."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

_NOTICED: Final = {"killed", "timeout", "segfault"}
_IGNORED: Final = {"skipped", "not checked"}


@dataclass(frozen=True)
class Score:
    """The mutants of one module.

    Attributes:
        module: below the package, with dots.
        noticed: mutants that made a test fail.
        survivors: mutmut's names of the others, those that no test reaches included.
    """

    module: str
    noticed: int
    survivors: tuple[str, ...]

    @property
    def total(self) -> int:
        """Mutants that were tried."""
        return self.noticed + len(self.survivors)

    @property
    def percent(self) -> float:
        """Share of mutants that a test noticed."""
        return 100 * self.noticed / self.total


def read(results: str, package: str) -> list[Score]:
    """Scores out of ``mutmut results --all true``, sorted by module."""
    noticed: dict[str, int] = defaultdict(int)
    survivors: dict[str, list[str]] = defaultdict(list)
    for line in results.splitlines():
        name, found, status = line.strip().rpartition(": ")
        if not found or status in _IGNORED:
            continue
        module = name.removeprefix(f"{package}.").rpartition(".")[0]
        survivors[module] += [] if status in _NOTICED else [f"{name} ({status})"]
        noticed[module] += status in _NOTICED
    return [
        Score(module, noticed[module], tuple(survivors[module])) for module in sorted(survivors)
    ]


def table(scores: Iterable[Score], *, survivors: bool) -> str:
    """The scores as a Markdown table, and below it the surviving mutants if wanted."""
    rows = [
        f"| {score.module} | {score.total} | {score.noticed} | {score.percent:.0f} % |"
        for score in scores
    ]
    head = ["| Module | Mutants | Noticed | Score |", "|---|---|---|---|"]
    names = [name for score in scores for name in score.survivors] if survivors else []
    return "\n".join([*head, *rows, *names])
