"""Certificates: the chart renders the same each time, and a Job or cert-manager issues them."""

import json
import re
import shutil
from datetime import timedelta
from pathlib import Path

import helm_python as helm
import pytest
import yaml
from charting import CHART, NAMESPACE, REGISTRY, RELEASE, Object, Rendered, render
from chartrights import Authorizer, rights_of
from handshake import issue

from gpuinspect.doctor import registry as doctor
from gpukube.issuing.authority import RENEW_SHARE

pytestmark = pytest.mark.slow

CHECKS = {each.name: each for each in doctor.CHECKS}
DOCS = Path(__file__).parents[2] / "docs"

EVERYTHING: Object = {"dashboard": {"enabled": True}, "scheduler": {"mode": "extender"}}
OWN: Object = {
    "webhook": {"certificate": {"secretName": "mine", "caBundle": "YQ=="}},
    "monitoring": {"tls": {"secretName": "mine"}},
}


@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["defaults", "everything"])
def test_rendering_twice_gives_the_same_manifest(values: Object) -> None:
    """No key, no random name, no time: a GitOps tool finds no difference."""
    first, second = (render(values=values, anew=True) for _ in range(2))
    assert json.dumps(first.objects) == json.dumps(second.objects)
    assert all("data" not in item for item in first.of("Secret"))
    assert "PRIVATE KEY" not in json.dumps(first.objects)


@pytest.mark.parametrize(
    "values",
    [{}, EVERYTHING, {**EVERYTHING, **OWN}, {"webhook": {"enabled": False}}],
    ids=["defaults", "everything", "own secrets", "no webhook"],
)
def test_the_job_may_write_what_it_fills_and_nothing_else(values: Object) -> None:
    """By name; it can neither read another Secret of the namespace nor create one."""
    rendered = render(values=values, anew=True)
    authorizer = Authorizer(rights_of(rendered, "gpushare-certificates"))
    done = issue(rendered)
    assert all(authorizer.permits("GET", path) for path in done.read)
    assert all(authorizer.permits("PATCH", path) for path in done.written)
    assert authorizer.unused == set()


def test_every_secret_is_filled_by_one_run() -> None:
    """Whatever is enabled: no pod would wait for ever."""
    rendered = render(values=EVERYTHING)
    issue(rendered)
    for item in rendered.of("Secret"):
        assert item["data"], item["metadata"]["name"]


def job_name(rendered: Rendered) -> str:
    """Name of the one Job."""
    (job,) = rendered.of("Job")
    return str(job["metadata"]["name"])


def test_a_changed_job_has_another_name() -> None:
    """A Job cannot be changed, so an upgrade makes another and removes the old one."""
    assert job_name(render()) == job_name(render())
    assert job_name(render()) != job_name(render(values=EVERYTHING))


def test_every_upgrade_with_helm_runs_the_job_again() -> None:
    """Equal values too, so that an upgrade fills a Secret that was deleted."""
    installed, upgraded = (render(revision=each) for each in (1, 2))
    assert job_name(installed) != job_name(upgraded)
    (first,), (second,) = installed.of("Job"), upgraded.of("Job")
    assert first["spec"] == second["spec"]


def test_the_job_of_an_installation_waits_for_its_node_without_end() -> None:
    """A deadline counts from the creation, also where no node or no image is there yet."""
    (job,), (cron,) = render().of("Job"), render().of("CronJob")
    assert "activeDeadlineSeconds" not in job["spec"]
    assert cron["spec"]["jobTemplate"]["spec"]["activeDeadlineSeconds"] == 600


@pytest.mark.parametrize("name", ["system-cluster-critical", ""])
def test_the_job_has_the_priority_of_the_pods_that_wait_for_it(name: str) -> None:
    """On a full cluster these preempt others, and could not start without their Secrets."""
    rendered = render(values={"scheduler": {"priorityClassName": name}})
    pods = dict(rendered.ending_pods())
    issuing = [pod for each, pod in pods.items() if "certificates" in each]
    assert [pod.get("priorityClassName", "") for pod in issuing] == [name, name]


@pytest.mark.parametrize("api", ["v1alpha2", "v1beta1"])
def test_the_job_has_no_priority_that_kubernetes_allows_no_pod_group(api: str) -> None:
    """With WorkloadWithJob the Job's PodGroup would be refused, and no pod created."""
    for name, expected in (("system-cluster-critical", ""), ("mine", "mine")):
        values = {"scheduler": {"priorityClassName": name}}
        pods = dict(
            render("1.37.0", values, apis=(f"scheduling.k8s.io/{api}/PodGroup",)).ending_pods()
        )
        issuing = [pod for each, pod in pods.items() if "certificates" in each]
        assert [pod.get("priorityClassName", "") for pod in issuing] == [expected] * 2


def test_certificates_are_renewed_before_the_alert_by_the_smallest_validity() -> None:
    """A daily run may be a day late; an alert before it would fire though all is well."""
    days = json.loads((CHART / "values.schema.json").read_text())["properties"]["certificates"]
    shortest = timedelta(days=days["properties"]["validDays"]["minimum"])
    alerts = yaml.safe_load((CHART / "alerts" / "gpushare.yaml").read_text())["groups"]
    rules = [rule for group in alerts for rule in group["rules"]]
    (rule,) = (each for each in rules if each["alert"] == "GpushareCertificateExpires")
    alerted = timedelta(seconds=int(rule["expr"].split("<")[1].split("*")[0]) * 86400)
    assert render().one("CronJob", "-certificates")["spec"]["schedule"] == "17 3 * * *"
    assert shortest * RENEW_SHARE >= alerted + timedelta(days=1)


def test_a_new_chart_version_leaves_a_job_of_the_same_image_as_it_is(tmp_path: Path) -> None:
    """With a pinned image tag the Job keeps its name, so its immutable pod template is equal."""
    pinned = {"extender": {"image": {"tag": "1.0.0-mirror"}}, "image": {"registry": REGISTRY}}
    newer = tmp_path / CHART.name
    shutil.copytree(CHART, newer)
    about = (newer / "Chart.yaml").read_text()
    (newer / "Chart.yaml").write_text(about.replace("ersion: 0.1.0", "ersion: 0.2.0"))
    (old,), (new,) = (render(values=pinned, chart=each).of("Job") for each in (CHART, newer))
    assert old["metadata"]["labels"] != new["metadata"]["labels"], "another version of the chart"
    assert old["metadata"]["name"] == new["metadata"]["name"]
    assert old["spec"]["template"] == new["spec"]["template"]


def test_another_name_of_the_chart_makes_another_job() -> None:
    """The labels of the pod template count for the name as its containers do."""
    (job,) = render(values={"nameOverride": "shares", "fullnameOverride": RELEASE}).of("Job")
    assert job["metadata"]["name"] != job_name(render())


def test_a_webhook_that_is_switched_on_gets_its_bundle_by_a_job_of_the_upgrade() -> None:
    """The CronJob would set it at night; until then its pods would be refused."""
    claims = {"claims": {"enabled": True}}
    converting = render("1.37.0", {**claims, "webhook": {"claims": "namespaces"}})
    assert job_name(converting) != job_name(render("1.37.0", claims))
    issue(converting)
    (found,) = converting.of("MutatingWebhookConfiguration")
    assert len(found["webhooks"]) == 2
    assert all(each["clientConfig"]["caBundle"] for each in found["webhooks"])


def test_the_commands_of_the_pages_name_what_the_chart_installs() -> None:
    """The label of all Secrets that the Job fills, and the CronJob that a Job is made from."""
    rendered = render(values=EVERYTHING)
    runbook, page = (
        (DOCS / each).read_text()
        for each in ("runbooks/GpushareCertificateExpires.md", "certificates.md")
    )
    (cron,) = rendered.of("CronJob")
    for text in (runbook, page, CHECKS["webhook-trusted"].remedy):
        assert f"--from=cronjob/{cron['metadata']['name']} " in text
    key, value = re.findall(r"get secrets -l (\S+)=(\S+)", runbook)[0]
    assert {each["metadata"]["labels"][key] for each in rendered.of("Secret")} == {value}


@pytest.mark.parametrize("tls", [True, False])
def test_the_notes_name_when_to_install_into_the_scheduler_again(*, tls: bool) -> None:
    """After each kubeadm upgrade, and with TLS before the copied certificate ends."""
    extender = {"tls": {"enabled": tls}}
    notes = render(values={**EVERYTHING, "extender": extender}).notes
    assert "after each kubeadm upgrade, on each new control-plane node" in notes
    assert ("within certificates.validDays\n   (365)." in notes) is tls


def test_own_secrets_leave_nothing_to_issue() -> None:
    """Neither a Job nor its rights."""
    rendered = render(values=OWN)
    kinds = {item["kind"] for item in rendered.objects}
    assert not kinds & {"Job", "CronJob", "Secret"}
    assert all("certificates" not in item["metadata"]["name"] for item in rendered.objects)


def test_cert_manager_issues_the_same_certificates() -> None:
    """With the names of the Services, each for one use, and the webhook trusts them."""
    source = {"source": "cert-manager", "issuerRef": {"name": "ca"}}
    rendered = render(values={**EVERYTHING, "certificates": source})
    assert not rendered.of("Job") + rendered.of("Secret")
    found = {item["metadata"]["name"]: item["spec"] for item in rendered.of("Certificate")}
    assert {name: spec["usages"][1] for name, spec in found.items()} == {
        "gpushare-extender": "server auth",
        "gpushare-extender-client": "client auth",
        "gpushare-metrics": "server auth",
        "gpushare-dashboard": "server auth",
        "gpushare-webhook": "server auth",
    }
    for name, spec in found.items():
        assert spec["secretName"] == name
        assert spec["issuerRef"] == {"name": "ca", "kind": "Issuer", "group": "cert-manager.io"}
    assert found["gpushare-webhook"]["dnsNames"] == [f"gpushare-webhook.{NAMESPACE}.svc"]
    (hook,) = rendered.of("MutatingWebhookConfiguration")
    injected = hook["metadata"]["annotations"]["cert-manager.io/inject-ca-from"]
    assert injected == f"{NAMESPACE}/gpushare-webhook"


def test_cert_manager_injects_nothing_for_a_certificate_of_ones_own() -> None:
    """It would replace the CA bundle of the values, for want of its Certificate."""
    rendered = render(
        values={
            "certificates": {"source": "cert-manager", "issuerRef": {"name": "ca"}},
            "webhook": {"certificate": {"secretName": "own", "caBundle": "QQ=="}},
        }
    )
    (hook,) = rendered.of("MutatingWebhookConfiguration")
    assert "cert-manager.io/inject-ca-from" not in hook["metadata"].get("annotations", {})
    assert hook["webhooks"][0]["clientConfig"]["caBundle"] == "QQ=="


def test_the_secrets_of_cert_manager_can_be_found_before_the_source_changes() -> None:
    """They have the names of the chart's and are not Helm's: the page deletes them first."""
    source = {"source": "cert-manager", "issuerRef": {"name": "ca"}}
    made = render(values={**EVERYTHING, "certificates": source}).of("Certificate")
    assert {each["metadata"]["labels"]["app.kubernetes.io/instance"] for each in made} == {RELEASE}
    own = {each["metadata"]["name"] for each in render(values=EVERYTHING).of("Secret")}
    assert own == {each["spec"]["secretName"] for each in made} | {"gpushare-authorities"}


def test_cert_manager_without_an_issuer_is_refused() -> None:
    """With the value to set."""
    with pytest.raises(helm.HelmError, match=r"set certificates\.issuerRef\.name"):
        render(values={"certificates": {"source": "cert-manager"}})
