"""The table of ``gpushare verify`` for people: a line a row, and more below what does not hold."""

from collections import Counter
from collections.abc import Callable, Iterator

from gpuinspect.terminal.tables import align
from gpuinspect.terminal.wrapping import wrapped
from gpuinspect.verify.rows import RowOutcome
from gpuinspect.verify.run import VerifyRun
from gpuinspect.verify.targets import ProofTarget
from gpuprobe.checks.verdicts import ROWS, Proof, ProofVerdict

Paint = Callable[[str, ProofVerdict], str]


def progress(target: ProofTarget, proof: Proof) -> str:
    """The line that appears when a row is known."""
    where = f"{target.node} GPU {target.index}"
    return f"{where}: {proof.row}: {proof.verdict.value}\n"


def table(run: VerifyRun, *, headers: bool = True) -> str:
    """One line a row: node, GPU, model, mode, row, verdict, what was seen."""
    head = "NODE\tGPU\tMODEL\tMODE\tROW\tRESULT\tSEEN\n" if headers else ""
    return align(head + "".join(_line(each) for each in run.outcomes))


def _line(outcome: RowOutcome) -> str:
    target, proof = outcome.target, outcome.proof
    cells = (target.node, str(target.index), target.model, target.mode, proof.row)
    return "\t".join((*cells, proof.verdict.value, proof.seen)) + "\n"


def failures(run: VerifyRun, *, width: int | None) -> str:
    """What was expected, seen, and is to be done, for each row that does not hold."""
    return "".join(line for each in run.outcomes for line in _details(each, width))


def _details(outcome: RowOutcome, width: int | None) -> Iterator[str]:
    target, proof = outcome.target, outcome.proof
    if proof.verdict in {ProofVerdict.PASS, ProofVerdict.SKIP}:
        return
    word = "FAIL" if proof.verdict is ProofVerdict.FAIL else "known"
    yield f"{word}  {proof.row} on {target.node} GPU {target.index}: {ROWS[proof.row]}\n"
    yield wrapped(f"      expected: {proof.expected}", width, indent=8)
    yield wrapped(f"      seen: {proof.seen}", width, indent=8)
    yield wrapped(f"      do: {proof.next_step}", width, indent=8)


def count(run: VerifyRun) -> str:
    """The last line."""
    counts = Counter(each.proof.verdict for each in run.outcomes)
    parts = [f"{counts[verdict]} {verdict.value}" for verdict in ProofVerdict if counts[verdict]]
    return f"{len(run.outcomes)} rows: {', '.join(parts)}\n"
