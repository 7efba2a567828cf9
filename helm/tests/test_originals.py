"""Manifests of the original stack run unchanged on a default install: every pod is steered."""

import json

import msgspec
import pytest
from admission import Conditions
from charting import Object, render

from environments import fakenodes, originals
from gpucore.accounting.ledger import Ledger
from gpucore.scheduling.cluster_policy import SchedulerProfiles
from gpucore.wire.names import Names
from gpucore.wire.node.spec import decode_node
from gpucore.wire.pod.spec import decode_pod
from gpuextender.state import State
from gpuextender.webhook import AdmissionAnswer, SchedulerChoice, review_pod

pytestmark = pytest.mark.slow

IMAGE = "registry.example.com/sample:1"


@pytest.mark.parametrize("name", originals.NAMES)
def test_no_manifest_names_a_scheduler_or_knows_this_project(name: str) -> None:
    """They are what users of the originals have; a name of ours in them would prove nothing."""
    text = json.dumps(originals.objects(name, image="sample"))
    assert "schedulerName" not in text
    assert "gpushare" not in text
    assert originals.pods(name, image="sample")


@pytest.mark.parametrize("name", originals.NAMES)
def test_every_pod_is_sent_to_the_webhook_and_gets_our_scheduler(name: str) -> None:
    """By the chart's defaults the API server sends it, and the answer names the scheduler."""
    rendered = render()
    sent = Conditions(rendered)
    (container,) = dict(rendered.pods())["webhook"]["containers"]
    (flag,) = [each for each in container["args"] if each.startswith("--webhook-scheduler=")]
    for pod in originals.pods(name, image=IMAGE):
        as_the_api_server_sends_it(pod)
        assert sent(pod)
        for units in (15, 40):
            verdict = judged(pod, units=units, scheduler=flag.partition("=")[2])
            assert (verdict.refusal, verdict.scheduler) == ("", "gpushare-scheduler")


def as_the_api_server_sends_it(pod: Object) -> None:
    """With the default scheduler's name filled in, and amounts as text."""
    pod["spec"]["schedulerName"] = "default-scheduler"
    for container in pod["spec"]["containers"]:
        for amounts in container["resources"].values():
            amounts |= {name: str(amount) for name, amount in amounts.items()}


def judged(pod: Object, *, units: int, scheduler: str) -> AdmissionAnswer:
    """What the webhook answers in a cluster of one node with two GPUs of so many GiB."""
    ledger = Ledger(Names())
    for node in fakenodes.nodes(1, gpus=2, units=units):
        ledger.node_changed(decode_node(msgspec.json.encode(node)))
    return review_pod(
        decode_pod(msgspec.json.encode(pod)),
        namespace="default",
        node_infos=ledger.nodes().values(),
        names=Names(),
        choice=SchedulerChoice(State(Names()), SchedulerProfiles(scheduler), lambda: True),
    )
