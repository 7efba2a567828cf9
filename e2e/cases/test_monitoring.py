"""A real Prometheus scrapes the stack, with the chart's rules: figures are right, alerts end."""

import http.client
from collections.abc import Iterator
from functools import partial
from urllib.parse import urlsplit

import pytest

from environments.case import Case
from environments.kind import KindEnvironment
from environments.prometheus import Prometheus
from environments.waiting import until

pytestmark = pytest.mark.e2e

ASK_SECONDS = 10
SHARE = 3


@pytest.fixture(scope="module")
def prometheus(environment: KindEnvironment) -> Iterator[Prometheus]:
    """Scrapes every pod of the stack, and has scraped each of them once."""
    environment.wait_ready()  # a pod on its way out would be a target that never answers
    server = Prometheus(environment.kubectl, environment.namespace)
    try:
        server.start()
        until("every target was scraped", lambda: not server.troubles())
        yield server
    finally:
        server.stop()


@pytest.fixture
def breaking(environment: KindEnvironment, small: str) -> Iterator[int]:
    """A GPU of the small node to lose; all its GPUs are back when the case ends."""
    gpu = environment.nodes[small][-1].index
    yield gpu
    whole = str(sum(gpu.units for gpu in environment.nodes[small]))
    mend(environment, small, gpu)

    def offered() -> bool:
        status = environment.objects.node(small)["status"]
        return bool(status["allocatable"]["aliyun.com/gpu-mem"] == whole)

    until("all GPUs are offered", offered)


def mend(environment: KindEnvironment, node: str, gpu: int) -> None:
    """Let a lost GPU answer again."""
    environment.break_gpus(node, f"gpu {gpu} lost", f"gpu {gpu} recovered")


def test_every_pod_of_the_stack_is_scraped_and_every_rule_is_well(
    environment: KindEnvironment, prometheus: Prometheus
) -> None:
    """Extenders, schedulers and plugins answer; one leads; no rule ends in an error."""
    until("every target answers", lambda: not prometheus.troubles())
    for job, least in (("extender", 1), ("scheduler", 1), ("device-plugin", 2)):
        until(f"{least} and more of {job} answer", partial(answering, prometheus, job, least=least))
    until(
        "one scheduler leads",
        lambda: (
            prometheus.value('sum(leader_election_master_status{job="gpushare-scheduler"})') == 1
        ),
    )
    until(
        "every node's plugin is scraped",
        lambda: telling(prometheus, "gpushare_plugin_disagreements") == set(environment.nodes),
    )
    until(
        "every rule was tried",
        lambda: all(rule["health"] != "unknown" for rule in prometheus.rules()),
    )
    assert len(prometheus.rules()) >= 12
    until("no rule ends in an error", lambda: not faulty(prometheus))


def faulty(prometheus: Prometheus) -> list[str]:
    """Rules whose last evaluation failed, each with its error."""
    bad = [rule for rule in prometheus.rules() if rule["health"] != "ok"]
    return [f"{rule['name']}: {rule.get('lastError')}" for rule in bad]


def answering(prometheus: Prometheus, job: str, *, least: int) -> bool:
    """So many pods of a job answered the last scrape."""
    return (prometheus.value(f'sum(up{{job="gpushare-{job}"}})') or 0) >= least


def telling(prometheus: Prometheus, metric: str) -> set[str]:
    """Nodes of which there is such a figure."""
    return {sample.labels["node"] for sample in prometheus.query(metric)}


def test_the_figures_of_a_share_are_those_of_its_pod(
    prometheus: Prometheus, case: Case, small: str
) -> None:
    """Extender, plugin and annotation agree on a pod: its GPU, and its units on it."""
    case.create_running(case.pod("holder", SHARE, node=small))
    gpu = case.gpu("holder")
    pod = f'exported_namespace="{case.name}",exported_pod="holder"'
    allocated = f'gpushare_pod_allocated_units{{node="{small}",gpu="{gpu}",{pod}}}'
    until("the plugin reports the share", lambda: prometheus.value(allocated) == SHARE)
    used = f'max(gpushare_extender_gpu_units{{node="{small}",gpu="{gpu}",kind="used"}})'
    until("the extender reports it", lambda: prometheus.value(used) == SHARE)
    of_gpu = f'gpushare_gpu_allocated_units{{node="{small}",gpu="{gpu}"}}'
    until("nothing else is on the GPU", lambda: prometheus.value(of_gpu) == SHARE)
    assert prometheus.value("count(gpushare_extender_overfull_gpus) or vector(0)") == 0


def test_a_lost_gpu_raises_its_alert_and_the_alert_ends_when_it_is_back(
    environment: KindEnvironment, prometheus: Prometheus, small: str, breaking: int
) -> None:
    """The rule fires for the very GPU, has a message, and is silent again afterwards."""
    where = {"node": small, "gpu": str(breaking)}
    until("no GPU is unhealthy", lambda: prometheus.firing("GpushareGpuUnhealthy") is None)
    environment.break_gpus(small, f"gpu {breaking} lost")
    alert = until("the alert fires", lambda: prometheus.firing("GpushareGpuUnhealthy", **where))
    assert alert["labels"]["uuid"] == environment.nodes[small][breaking].uuid
    assert alert["annotations"]["summary"] == f"GPU {breaking} of {small} is unhealthy"
    assert alert["annotations"]["runbook_url"].endswith("GpushareGpuUnhealthy.md")
    mend(environment, small, breaking)
    until("the alert ends", lambda: prometheus.firing("GpushareGpuUnhealthy") is None)


def test_metrics_are_answered_over_tls_alone(prometheus: Prometheus) -> None:
    """All that Prometheus reads is encrypted up to the pod, and no pod serves it in plain text."""
    addresses = [urlsplit(address) for address in prometheus.addresses()]
    assert {address.scheme for address in addresses} == {"https"}
    assert [address.netloc for address in addresses if answers_plainly(address.netloc)] == []


def answers_plainly(place: str) -> bool:
    """Whether somebody without TLS is given metrics."""
    connection = http.client.HTTPConnection(place, timeout=ASK_SECONDS)
    try:
        connection.request("GET", "/metrics")
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
