"""The page ``docs/isolation.md``: what is measured, and the figures once there are any.

Every table follows from the figures alone, which lie beside the page as JSON: a page can be
written again from them, and nothing on it is written by hand.
"""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Final

from gpuprobe.checks.compute import HALF_OF_THREADS, TENTH_OF_THREADS
from hardware import reports
from hardware.reports import VerifiedItem

Figures = Mapping[str, Any]

MODES: Final = {"slicing": "time slicing", "mps": "MPS"}
_CRASHES: Final = {"fault": "illegal memory access", "killed": "killed (SIGKILL) at work"}

_HEAD: Final = """\
# Isolation on real GPUs

The isolation of shares on a GPU depends on hardware and driver, so this page contains measurements
only. `make bench-gpu` writes it on a machine with an NVIDIA driver and no Kubernetes: the real
device plugin on the real NVML, a stand-in for kubelet, and CUDA processes with exactly the
environment that the plugin granted. `pytest -m gpu` runs the same checks with wide tolerances.
"""

_REPORTS: Final = """\
`gpushare verify` proves the rows of this table on the GPUs of a cluster, in minutes and beside pods
that run. Each column is a report: one that an operator has sent ([add yours](add-your-report.md)),
or one of `make bench-gpu`, which runs the same command on a machine without Kubernetes: there the
containers are processes, and a stand-in for kubelet starts them. Where a cell states that a row was
not measured, no report has it: the row was skipped, or left out because its check was at fault,
which the runs in `e2e/hardware/README.md` name.
"""

_NOT_YET: Final = """\
## No figures yet

The suite has not run on hardware yet. The table below lists what it measures; no figure on this
page is estimated or copied from another source.
"""

_QUESTIONS: Final = (
    (
        "Is the inventory right?",
        "the plugin's annotation against `nvidia-smi`",
        "equal index, uuid, model and memory",
    ),
    (
        "Do memory limits hold?",
        "a quarter and a half of a GPU, each filled in turn up to 1.5 times its grant",
        "with MPS: out of memory at the limit, the neighbour's memory intact, its calls answered",
    ),
    (
        "Does the thread percentage limit compute?",
        "one client alone at several percentages: chains of multiply-adds, and copies in the GPU",
        (
            f"50 % gives {HALF_OF_THREADS[0]} to {HALF_OF_THREADS[1]} of the arithmetic of 100 %,"
            f" and 10 % less than {TENTH_OF_THREADS}"
        ),
    ),
    (
        "What does MPS gain?",
        "1, 3, 5 and 7 clients with requests of 20 small kernels and equal compute, both ways",
        "seven clients get at least 1.2 times as much done",
    ),
    (
        "What does MPS cost?",
        "one client with all of the compute, with and without it",
        "at least 0.8 of the speed",
    ),
    (
        "Whose memory is it?",
        "`nvidia-smi` and the plugin's metrics while a client holds 1 GiB",
        "the pod is named with at least that",
    ),
    (
        "What does a crash take along?",
        "an illegal access, and SIGKILL at work, beside a neighbour that works",
        "without MPS nothing; with MPS the GPU serves again once the old clients have gone",
    ),
)

_RULES: Final = """\
The size of a request is set once, with a single client, so that it is the same work in every mode.
Clients measure rates by the host's clock, including waiting time. Limits of MPS hold for each
client process: a container that starts two processes has each of them limited.

The suite changes no setting of a GPU. It skips GPUs in MIG mode, in an exclusive compute mode, or
in use by other processes; its MPS daemons have their own pipe directories and end with the suite.
The table of processes needs the host's process ids, so run it outside of containers.

On a cluster with the stack and real GPUs, `GPU_KUBECONFIG=<file> pytest -m gpu e2e` runs two
suites:

- the scheduling cases that `make e2e` runs on kind (`test_sharing.py`, `test_agreement.py`,
  `test_queueing.py`, `test_topology.py` in `e2e/cases`). `GPU_NAMESPACE` is the namespace of the
  stack (`gpushare`), `GPU_IMAGE` an image with Python and a shell (`python:3.11-slim`). Cases that
  need other GPUs than the cluster has are skipped with the reason.
- `e2e/hardware/cases/test_cluster.py`, which runs `gpushare verify` and has a case for each row of
  the table above.

The scheduling cases passed this way on a kind cluster with mock GPUs. Neither of these two suites
has run on a cluster with real GPUs. Isolation modes `driver` and `driver+mps`, memory limits above
the share, and model servers that start one after the other have run against the mock library only:
no figure of a real driver exists for them.
"""


def page(figures: Figures | None, items: Sequence[VerifiedItem] = ()) -> str:
    """The whole page; without figures it reports that there are none.

    Args:
        figures: of the bench.
        items: GPUs of the reports of ``gpushare verify``.
    """
    proofs = _proofs(items)
    if figures is None:
        return f"{_HEAD}\n{proofs}\n{_NOT_YET}\n{_questions()}"
    parts = [_HEAD, proofs, _machine(figures["machine"]), _memory(figures), _threads(figures)]
    parts += [_crowds(figures), _alone(figures), _attribution(figures), _crash(figures)]
    return "\n".join([*filter(None, parts), _questions()])


def _proofs(items: Sequence[VerifiedItem]) -> str:
    return f"## What holds on which GPU\n\n{_REPORTS}\n{reports.table(items)}"


def _questions() -> str:
    head = ["Question", "How", "What the tests demand"]
    return f"## What is measured\n\n{table(head, _QUESTIONS)}\n{_RULES}"


def _machine(machine: Mapping[str, Any]) -> str:
    rows = [[key, str(value)] for key, value in machine.items()]
    return "## The machine\n\n" + table(["", ""], rows)


def _memory(figures: Figures) -> str:
    rows = [
        [
            MODES[mode],
            _gib(found["allocated_mib"]),
            _gib(found["reached_mib"]),
            found["refusal"] or "never refused",
            "intact" if found["neighbour_intact"] else "**disturbed**",
        ]
        for mode, shares in figures["memory"].items()
        for found in (shares["small"], shares["large"])
    ]
    head = ["Mode", "Allocated GiB", "Reached GiB", "Then", "Neighbour"]
    words = (
        "What a process cannot reach of its own grant is its CUDA context, which counts towards "
        "the limit. A process that was never refused stopped at 1.5 times its grant by itself."
    )
    return f"## Memory limits\n\n{table(head, rows)}\n{words}\n"


def _threads(figures: Figures) -> str:
    if "threads" not in figures:
        return ""
    rows = [
        [f"{percent} %", spread(found["tflops"]), spread(found["gb_per_s"])]
        for percent, found in figures["threads"].items()
    ]
    head = ["Threads", "TFLOP/s (f32)", "GB/s copied"]
    picture = "![Arithmetic by thread percentage](isolation/threads.svg)"
    return f"## Thread percentage\n\n{table(head, rows)}\n{picture}\n"


def _crowds(figures: Figures) -> str:
    rows = [
        [
            count,
            MODES[mode],
            spread(found["requests_per_s"]),
            spread(found["slowest_client_per_s"]),
            spread(found["p50_ms"]),
            spread(found["p99_ms"]),
        ]
        for mode, crowds in figures["crowds"].items()
        for count, found in crowds.items()
    ]
    rows.sort(key=lambda row: int(row[0]))
    head = ["Clients", "Mode", "Requests/s", "Slowest client's", "p50 ms", "p99 ms"]
    picture = "![Requests per second by number of clients](isolation/crowds.svg)"
    return f"## Several clients\n\n{table(head, rows)}\n{picture}\n"


def _alone(figures: Figures) -> str:
    units = {"tflops": "TFLOP/s", "gb_per_s": "GB/s", "requests_per_s": "requests/s"}
    found = figures["alone"]
    plain = found["slicing"]
    rows = []
    for key, unit in units.items():
        behind = found.get("mps", {}).get(key)
        share = (
            f"{statistics.median(behind) / statistics.median(plain[key]):.0%}" if behind else "-"
        )
        rows.append([unit, spread(plain[key]), spread(behind) if behind else "-", share])
    head = ["Figure", "Without MPS", "With MPS", "Kept"]
    return f"## One client alone\n\n{table(head, rows)}"


def _attribution(figures: Figures) -> str:
    if "attribution" not in figures:
        return ""
    rows = [
        [
            MODES[mode],
            str(found["held_mib"]),
            "not listed" if found["listed_mib"] is None else str(found["listed_mib"]),
            str(found["others_listed"]),
            "not reported" if found["metric_mib"] is None else str(found["metric_mib"]),
        ]
        for mode, found in figures["attribution"].items()
    ]
    head = [
        "Mode",
        "Held MiB",
        "Reported by nvidia-smi",
        "Other processes",
        "Reported by the metrics",
    ]
    return f"## Whose memory it is\n\n{table(head, rows)}"


def _crash(figures: Figures) -> str:
    keys = ["offender", "neighbour", "neighbour_afterwards", "newcomer", "after_all_left"]
    rows = [
        [MODES[mode], _CRASHES[kind], *(f"`{found[key]}`" for key in keys)]
        for mode, kinds in figures["crash"].items()
        for kind, found in kinds.items()
    ]
    head = ["Mode", "Crash", "Who crashed", "Neighbour's work", "Neighbour's next call"]
    head += ["Newcomer beside it", "Newcomer after all left"]
    return f"## What a crash takes along\n\n{table(head, rows)}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table, with a line end."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def spread(values: Sequence[float]) -> str:
    """Median, and the least and greatest run."""
    return f"{_short(statistics.median(values))} ({_short(min(values))} to {_short(max(values))})"


def _short(value: float) -> str:
    """Three digits that count, and no powers of ten."""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _gib(mib: int) -> str:
    return f"{mib / 1024:.2f}"
