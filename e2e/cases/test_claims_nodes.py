"""Claims while a node reboots.

``make e2e MARK=ondemand CASES=e2e/cases/test_claims_nodes.py`` runs it.
"""

from collections.abc import Iterator

import pytest

from environments import claimoffer
from environments.case import Case
from environments.claimoffer import consumed, prepared, share
from environments.kind import KindEnvironment
from environments.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.ondemand, pytest.mark.since("1.36")]


@pytest.fixture(scope="module")
def offering(environment: KindEnvironment) -> Iterator[KindEnvironment]:
    """The stack with claims enabled, on nodes that offer claims; as before afterwards."""
    with claimoffer.offered(environment):
        yield environment


@pytest.fixture(autouse=True)
def _nothing_allocated(offering: KindEnvironment) -> None:
    """The claims of earlier cases are gone."""
    claimoffer.wait_unused(offering)


def test_claims_of_a_rebooted_node_are_prepared_again(
    offering: KindEnvironment, case: Case, small: str
) -> None:
    """A reboot empties the directory of CDI files; pods start again on the GPUs of their claims."""
    for name, gib in (("first", 6), ("second", 4)):
        case.kubectl.apply(*share(case, name, gib, small))
    case.wait_running("first", "second")
    before = consumed(case), case.env("first")["NVIDIA_VISIBLE_DEVICES"]
    offering.stop_node(small)
    try:
        until("the node is missed", lambda: not _is_ready(offering, small))
    finally:
        offering.start_node(small)
    until("the node is back", lambda: _is_ready(offering, small))
    until("both containers started again", lambda: _restarts(case, "first", "second") >= 2)
    case.wait_running("first", "second")
    claimoffer.wait_offered(offering)
    assert prepared(offering)[small] == 2
    assert (consumed(case), case.env("first")["NVIDIA_VISIBLE_DEVICES"]) == before
    assert case.env("second")["GPUSHARE_MEM_LIMIT_MIB"] == str(4 * 1024)
    case.kubectl.apply(*share(case, "third", 6, small))
    case.wait_running("third")
    assert sum(consumed(case).values()) == 16


def _is_ready(environment: KindEnvironment, node: str) -> bool:
    conditions = environment.objects.node(node)["status"]["conditions"]
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _restarts(case: Case, *names: str) -> int:
    found = [case.get(name)["status"].get("containerStatuses", []) for name in names]
    return sum(each["restartCount"] for statuses in found for each in statuses)
