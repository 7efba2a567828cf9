"""Claims while a node, the plugin or a GPU goes: cases that take a minute each.

``make e2e MARK=ondemand CASES=e2e/cases/test_claims_nodes.py`` runs them.
"""

import pytest

from environments import claimoffer, claims, rollouts
from environments.case import Case
from environments.claimoffer import consumed, prepared, share
from environments.kind import KindEnvironment
from environments.waiting import until

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.ondemand,
    pytest.mark.since("1.36"),
    pytest.mark.usefixtures("nothing_allocated"),
]

BURST = 20
PLUGIN = "app.kubernetes.io/component=device-plugin"
IDLE_SECONDS = 30
TICKS = 100
"""Of a second, in the files of /proc."""
IDLE_SCRIPT = f"""
pids=$(pgrep -f '[/]bin/gpushare-device-plugin')
sum() {{ awk '{{n += $1 + $2}} END {{print n}}'; }}
ticks() {{ for pid in $pids; do cut -d' ' -f14,15 /proc/$pid/stat; done | sum; }}
from=$(ticks); sleep {IDLE_SECONDS}; to=$(ticks)
for pid in $pids; do grep ^Pss: /proc/$pid/smaps_rollup; done | sum
echo $((to - from))
"""
"""KiB of memory, and ticks of processor time, of the plugin's processes.

The brackets keep this script's own shell from being one of them.
"""


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


def test_two_plugins_serve_a_node_at_once(
    offering: KindEnvironment, case: Case, large: str
) -> None:
    """As during an upgrade: one of them ends in the middle of a burst."""
    (daemon,) = offering.kubectl.items("daemonsets", "-n", offering.namespace, "-l", PLUGIN)
    spec = {**daemon["spec"]["template"]["spec"], "nodeName": large}
    second = {"name": "second-plugin", "namespace": offering.namespace}
    source = {"resourceClaimTemplateName": "two"}
    names = [f"burst-{number}" for number in range(BURST)]
    pods = [
        claims.pod(each, case.name, image=offering.image, node=large, source=source)
        for each in names
    ]
    where = ("-n", offering.namespace)
    try:
        case.kubectl.apply({"apiVersion": "v1", "kind": "Pod", "metadata": second, "spec": spec})
        until("two plugins serve the node", lambda: _plugins(offering, large) == 2)
        case.kubectl.apply(claims.template("two", case.name, 2), *pods)
        until("a claim is prepared", lambda: prepared(offering)[large] > 0)
        on_node = f"--field-selector=spec.nodeName={large}"
        offering.kubectl("delete", "pod", *where, "-l", PLUGIN, on_node, "--wait=false")
        case.wait_running(*names)
    finally:
        offering.kubectl("delete", "pod", "second-plugin", *where, "--ignore-not-found")
    until("one plugin serves the node", lambda: _plugins(offering, large) == 1)
    assert sum(consumed(case).values()) == 2 * BURST
    assert prepared(offering)[large] == BURST
    case.kubectl("delete", "pods", "--all", "-n", case.name, "--wait=false")
    until("no claim is left on the node", lambda: prepared(offering)[large] == 0)
    claimoffer.wait_offered(offering)


def _plugins(environment: KindEnvironment, node: str) -> int:
    """Sockets of plugins that kubelet of the node has registered."""
    found = environment.on_node(node, "ls /var/lib/kubelet/plugins_registry")
    return sum(claims.DRIVER in line for line in found.splitlines())


def test_pods_are_evicted_from_an_unhealthy_gpu_where_configured(
    offering: KindEnvironment, case: Case, small: str
) -> None:
    """claims.unhealthyPods=evict: a pod whose claim does not tolerate the taint is deleted."""
    before = offering.values
    offering.install({**before, "claims": {"enabled": True, "unhealthyPods": "evict"}})
    try:
        rollouts.wait(offering.kubectl, offering.namespace, labels=PLUGIN)
        claimoffer.wait_offered(offering)
        leaves, stays = share(case, "leaves", 2, small), share(case, "stays", 2, small)
        exactly = stays[0]["spec"]["devices"]["requests"][0]["exactly"]
        taint = f"{claims.DRIVER}/unhealthy"
        exactly["tolerations"] = [{"key": taint, "operator": "Exists", "effect": "NoExecute"}]
        case.kubectl.apply(*leaves, *stays)
        case.wait_running("leaves", "stays")
        (struck,) = consumed(case)
        index = next(g.index for g in offering.nodes[small] if g.uuid.lower() == struck)
        try:
            offering.break_gpus(small, f"gpu {index} lost")
            until("the pod is evicted", lambda: "leaves" not in _names(case))
            assert case.ready("stays")
        finally:
            offering.break_gpus(small, f"gpu {index} lost", f"gpu {index} recovered")
            until("no device is tainted", lambda: not _tainted(offering, small))
    finally:
        offering.install(before)
        rollouts.wait(offering.kubectl, offering.namespace, labels=PLUGIN)


def _names(case: Case) -> set[str]:
    return {pod["metadata"]["name"] for pod in case.pods()}


def _tainted(environment: KindEnvironment, node: str) -> bool:
    found = claims.devices(environment.kubectl, node)
    return not found or any("taints" in each for each in found)


def test_an_idle_plugin_that_offers_claims_stays_small(
    offering: KindEnvironment, large: str
) -> None:
    """Eight GPUs and nothing to do for half a minute: at most 80 MiB and 2 % of a core."""
    found = offering.on_node(large, IDLE_SCRIPT).split()
    mebibytes, percent = int(found[0]) / 1024, 100 * int(found[1]) / (IDLE_SECONDS * TICKS)
    print(f"idle device plugin with claims: {mebibytes:.1f} MiB, {percent:.2f} % of a core")
    assert mebibytes <= 80
    assert percent <= 2
