"""Which stages `make test` has, in which order, and which run beside each other.

What is compared with a bound of time runs alone: beside other work it measures that work. The cases
on kind mostly wait, so everything else that needs no quiet machine runs beside them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

APART = ("e2e/cases/test_demo.py", "e2e/cases/test_images.py")
"""Cases with clusters or images of their own, which run beside those of the shared cluster."""
IPV6 = tuple(
    f"e2e/cases/test_{name}.py"
    for name in ("sharing", "dashboard", "monitoring", "admission", "inspect", "privileges", "node")
)
"""Cases in which every program of the stack answers another by its address."""
ROOT = Path(__file__).parents[2]
NODES = 9
"""Nodes of the clusters that run at once at most: of the cases, the demo's, one of a case's own."""


@dataclass(frozen=True)
class Stage:
    """A command with a name for people.

    Attributes:
        target: a target of the Makefile with its variables.
        nice: give way to the stages beside it.
    """

    name: str
    target: tuple[str, ...]
    nice: bool = False

    def command(self) -> list[str]:
        """Of a process in the root of the checkout."""
        return [*(["nice"] if self.nice else []), "make", "--no-print-directory", *self.target]


Lane = Sequence[Stage]
"""Stages one after the other."""
Phase = Sequence[Lane]
"""Lanes beside each other."""


def cases_in(*folders: str, root: Path = ROOT) -> list[str]:
    """The files in which tests are marked as cases: others need not be imported.

    The folders keep their order: kills have a bound of time, and come last, once the cluster of the
    lane beside has started.
    """
    found = [path for folder in folders for path in sorted((root / folder).rglob("test_*.py"))]
    return [str(path.relative_to(root)) for path in found if "mark.e2e" in path.read_text()]


def plan(*, cluster: str, ondemand: bool, arguments: str = "") -> list[Phase]:
    """The phases, one after the other.

    Args:
        cluster: name of the kind cluster of the cases.
        ondemand: run the cases that take long, too.
        arguments: more arguments for pytest in the cases on the newest Kubernetes.
    """
    unit = "UNIT=not gpu and not e2e and not budget"
    ignored = " ".join(f"--ignore={path}" for path in ("e2e/chaos", *APART))
    newest = f"ARGS={ignored} {arguments}".strip()
    first = [
        Stage("preflight", ("preflight-fix", f"NODES={NODES}")),
        Stage("lint, types, contracts", ("lint",)),
        Stage("budgets of time", ("budgets",)),
        Stage("prepare the newest Kubernetes", ("prepare",)),
        Stage("prepare Kubernetes 1.20", ("prepare", "KUBERNETES=1.20")),
    ]
    kind = [Stage("cases on the newest", ("e2e", "CASES=e2e", newest, f"CLUSTER={cluster}"))]
    units = [Stage("unit, property, chart tests", ("unit", "WORKERS=0", unit), nice=True)]
    others = [
        Stage(
            "cases on a control plane",
            ("e2e", f"CASES={' '.join(cases_in('services', 'e2e/chaos'))}"),
        ),
        Stage("demo and images", ("e2e", f"CASES={' '.join(APART)}")),
        Stage("cases on 1.20", ("e2e-oldest", f"CLUSTER={cluster}-oldest")),
    ]
    on_ipv6 = ("GPUSHARE_IP_FAMILY=ipv6", f"CLUSTER={cluster}-ipv6")
    elsewhere = ("ARGS=--ignore=e2e/machine", f"CLUSTER={cluster}")
    last = [
        Stage("cases on demand", ("e2e", "MARK=e2e and ondemand", *elsewhere)),
        Stage("cases with IPv6 alone", ("e2e", f"CASES={' '.join(IPV6)}", *on_ipv6)),
        Stage("a machine in QEMU", ("machine", "ARGS=")),
        Stage("unit tests on arm64", ("test-arm64",), nice=True),
    ]
    return [[first], [kind, others, units], *([[last]] if ondemand else [])]
