"""A thousand claims that come and go at random, with a real kubelet on every node.

``make e2e MARK=ondemand CASES=e2e/cases/test_claims_churn.py`` runs it, in about twelve minutes
on two cores. ``services/extender/tests/test_claims_allocation.py`` has the same without
kubelets in every suite.
"""

import json
import os
import random
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator

import pytest

from environments import claims
from environments.case import Case
from environments.claimoffer import prepared, share
from environments.consumption import Consumption
from environments.kind import KindEnvironment
from environments.waiting import until

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.ondemand,
    pytest.mark.since("1.36"),
    pytest.mark.usefixtures("nothing_allocated"),
    pytest.mark.timeout(3600),
]

CLAIMS = int(os.environ.get("GPUSHARE_CHURN_CLAIMS", "1000"))
LIVE = 40
"""Most claims at one time; more than fit."""
WATCH = f"/apis/{claims.API}/namespaces/{{}}/resourceclaims?watch=1&timeoutSeconds=3600"


class ClaimWatch:
    """Follows the claims of a namespace in a thread.

    Attributes:
        consumed: what they consume.
    """

    def __init__(self, case: Case) -> None:
        self.consumed = Consumption()
        self._case = case
        self._version = "0"
        self._over = threading.Event()
        self._watch: subprocess.Popen[str] | None = None
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    @property
    def complete(self) -> bool:
        """Whether no event was missed."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """End the watch."""
        self._over.set()
        while self._thread.is_alive():
            if self._watch is not None:
                self._watch.terminate()
            self._thread.join(1)

    def _follow(self) -> None:
        """Where a watch ends, the next goes on with the event after its last."""
        while not self._over.is_set():
            path = f"{WATCH.format(self._case.name)}&resourceVersion={self._version}"
            with subprocess.Popen(
                [str(self._case.kubectl.binary), "get", "--raw", path],
                env=self._case.kubectl.environment,
                stdout=subprocess.PIPE,
                text=True,
            ) as self._watch:
                for line in self._watch.stdout or ():
                    event = json.loads(line)
                    self.consumed.take(event)
                    self._version = event["object"]["metadata"]["resourceVersion"]
            self._over.wait(1)


@pytest.fixture
def watch(case: Case) -> Iterator[ClaimWatch]:
    """The claims of the case, followed until its end."""
    found = ClaimWatch(case)
    try:
        yield found
    finally:
        found.stop()


def test_no_gpu_is_over_its_capacity_while_claims_and_pods_come_and_go(
    offering: KindEnvironment, case: Case, small: str, watch: ClaimWatch
) -> None:
    """At every event the claims of a GPU consume at most what it has; in the end nothing."""
    chance, live, created = random.Random(0), list[str](), 0
    size = offering.nodes[small][0].units
    while created < CLAIMS or live:
        count = min(CLAIMS - created, LIVE - len(live))
        names = [f"churn-{created + number}" for number in range(count)]
        objects = [one for name in names for one in share(case, name, chance.randint(1, size), "")]
        if objects:
            case.kubectl.apply(*objects)
        created, live = created + count, [*live, *names]
        until("the pods that have a node run", lambda: _settled(case))
        ended = chance.sample(live, chance.randint(-(-len(live) // 3), len(live)))
        for kind in ("pods", "resourceclaims"):
            case.kubectl("delete", kind, *ended, "-n", case.name, "--wait=false")
        live = [name for name in live if name not in ended]
    until("no claim is prepared", lambda: not any(prepared(offering).values()))
    until("no claim is left", lambda: not case.kubectl.items("resourceclaims", "-n", case.name))
    consumed = watch.consumed
    until("the watch has the end of every claim", lambda: not consumed.total)
    assert watch.complete
    print(
        f"{CLAIMS} claims, {len(consumed.allocated)} of them allocated; {consumed.events} events;"
        f" the most GiB at any time: {dict(consumed.most)}"
    )
    assert consumed.most <= _sizes(offering)
    assert len(consumed.allocated) > CLAIMS // 4


def _sizes(environment: KindEnvironment) -> Counter[str]:
    """GiB of each GPU, by ``node/device``."""
    return Counter(
        {
            f"{node}/{each['name']}": int(each["capacity"]["memory"]["value"].removesuffix("Gi"))
            for node in environment.nodes
            for each in claims.devices(environment.kubectl, node)
        }
    )


def _settled(case: Case) -> bool:
    """At least one pod runs, and every pod that was given a node; those that are deleted aside."""
    pods = [each for each in case.pods() if "deletionTimestamp" not in each["metadata"]]
    placed = [each["status"]["phase"] for each in pods if each["spec"].get("nodeName")]
    return bool(placed) and set(placed) == {"Running"}
