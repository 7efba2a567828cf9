"""The CronJob of defragmentation: off by default, reads by default, evicts only where requested."""

from typing import Any

import pytest
from charting import NAMESPACE, Object, Rendered, render
from test_security import granted

READS = {
    ("", "nodes"): {"list"},
    ("", "pods"): {"list"},
    ("resource.k8s.io", "resourceslices"): {"list"},
    ("resource.k8s.io", "resourceclaims"): {"list"},
}


def chart(**values: Any) -> Rendered:
    """The chart with its CronJob."""
    return render(values={"defragmentation": {"enabled": True, **values}})


def arguments(rendered: Rendered) -> list[str]:
    """The flags of the job."""
    pod = dict(rendered.ending_pods())["gpushare-defragmentation"]
    return list(pod["containers"][0]["args"])


def test_it_is_off_by_default() -> None:
    """Nobody's pods are evicted by an upgrade of the chart."""
    names = [item["metadata"]["name"] for item in render().objects]
    assert not [name for name in names if "defragmentation" in name]


def test_it_reads_only_by_default() -> None:
    """Without ``apply`` it has neither the flag nor a right to change anything."""
    rendered = chart()
    assert granted(rendered.one("ClusterRole", "-defragmentation")) == READS
    lease = {("coordination.k8s.io", "leases"): {"get"}}
    assert granted(rendered.one("Role", "-defragmentation")) == lease
    assert "--apply" not in arguments(rendered)


def test_with_apply_it_may_evict_and_record_events_and_nothing_else() -> None:
    """Pods are neither deleted nor changed; of Leases, its own one."""
    rendered = chart(apply=True)
    changes = {("", "pods/eviction"): {"create"}, ("", "events"): {"create"}}
    assert granted(rendered.one("ClusterRole", "-defragmentation")) == READS | changes
    (rule,) = rendered.one("Role", "-defragmentation")["rules"]
    assert rule["resourceNames"] == ["gpushare-defragmentation"]
    assert rule["verbs"] == ["get", "patch"]
    assert rendered.one("Lease", "-defragmentation")["metadata"]["namespace"] == NAMESPACE


@pytest.mark.slow
def test_values_become_flags() -> None:
    """Every one, in their order."""
    assert arguments(chart()) == [
        "defrag",
        "--max-evictions=6",
        "--max-per-node=4",
        "--max-per-namespace=4",
        "--waited=120",
        "--scheduler=gpushare-scheduler",
        f"--lease={NAMESPACE}/gpushare-defragmentation",
        "--resource-domain=aliyun.com",
        "--annotation-prefix=ALIYUN_COM",
    ]
    values: Object = {
        "apply": True,
        "maxEvictions": 1,
        "maxPerNode": 2,
        "maxPerNamespace": 3,
        "acrossNamespaces": True,
        "waitedSeconds": 5,
    }
    assert arguments(chart(**values))[:7] == [
        "defrag",
        "--apply",
        "--max-evictions=1",
        "--max-per-node=2",
        "--max-per-namespace=3",
        "--across-namespaces",
        "--waited=5",
    ]


@pytest.mark.slow
def test_in_mode_extender_the_job_takes_part_for_the_clusters_own_scheduler() -> None:
    """It may not read which schedulers call the extender; pods of any other one stay."""
    values = {"defragmentation": {"enabled": True}, "scheduler": {"mode": "extender"}}
    assert "--scheduler=default-scheduler" in arguments(render(values=values))


@pytest.mark.slow
def test_runs_do_not_overlap_and_are_not_repeated() -> None:
    """The next run reads the cluster anew."""
    spec = chart(apply=True).one("CronJob", "-defragmentation")["spec"]
    assert spec["concurrencyPolicy"] == "Forbid"
    assert spec["jobTemplate"]["spec"]["backoffLimit"] == 0


@pytest.mark.slow
def test_an_old_cluster_is_refused() -> None:
    """Kubernetes before 1.22 has no Eviction of policy/v1."""
    values = {"defragmentation": {"enabled": True, "apply": True}}
    with pytest.raises(Exception, match=r"older than Kubernetes 1\.22"):
        render("1.21.0", values)
