"""The chart's admission policies, judged by the API server itself."""

import json
from collections.abc import Iterator, Sequence

import pytest

from environments.case import Case
from environments.kind import NAMESPACE, RELEASE, KindEnvironment
from environments.kubectl import KubectlError, Object
from environments.podresources import plugin_pod
from environments.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.since("1.30")]

IDX = "ALIYUN_COM_GPU_MEM_IDX"
RETRY = "gpushare/retry"
TENANT = "tenant"
DRY_RUN = "?dryRun=All"
REFUSED = "only the gpushare scheduler and device plugin write annotations"
# Patches of a pod's status, and what the refusal states; empty: allowed.
SCHEDULER_PATCHES: tuple[tuple[Object, str], ...] = (
    ({"metadata": {"annotations": {RETRY: "1"}}}, ""),
    ({"metadata": {"annotations": {"team": "theirs"}}}, "no annotation but"),
    ({"metadata": {"labels": {"app": "other"}}}, "changes no labels"),
    ({"metadata": {"finalizers": ["evil/stay"]}}, "no finalizers"),
    ({"status": {"phase": "Failed"}}, "the scheduler changes only"),
    ({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}, "the scheduler changes"),
    ({"status": {"nominatedNodeName": "n1"}}, ""),
)
# What someone with the plugin's token of a node could try; prints the API server's answers.
ABUSE = """
import json, pathlib, ssl, sys, urllib.error, urllib.request
folder = pathlib.Path("/var/run/secrets/kubernetes.io/serviceaccount")
tls = ssl.create_default_context(cafile=str(folder / "ca.crt"))
for path, patch in json.loads(sys.argv[1]):
    request = urllib.request.Request(
        "https://kubernetes.default.svc" + path,
        method="PATCH",
        data=json.dumps(patch).encode(),
        headers={
            "Authorization": "Bearer " + (folder / "token").read_text(),
            "Content-Type": "application/merge-patch+json",
        },
    )
    try:
        with urllib.request.urlopen(request, context=tls, timeout=10) as answer:
            print(answer.status)
    except urllib.error.HTTPError as refusal:
        print(refusal.code, json.load(refusal)["message"])
"""


@pytest.fixture
def policies(environment: KindEnvironment, case: Case) -> Iterator[None]:
    """The stack with its policies on, in force when this returns; without them afterwards."""
    before = environment.values
    environment.install({**before, "admissionPolicy": {"enabled": True}})
    try:
        environment.wait_ready()
        until("the policy is in force", lambda: REFUSED in refusal(case, born(case)))
        yield
    finally:
        environment.install(before)
        environment.wait_ready()


@pytest.fixture(autouse=True)
def tenant(case: Case) -> None:
    """A user who may do anything with pods of the case's namespace, and nothing else."""
    where = ("-n", case.name)
    case.kubectl("create", "role", TENANT, "--verb=*", "--resource=pods", *where)
    case.kubectl("create", "rolebinding", TENANT, f"--role={TENANT}", f"--user={TENANT}", *where)


def as_tenant(case: Case, *args: str, stdin: str | None = None) -> str:
    """What kubectl reports to the tenant."""
    return case.kubectl(*args, "-n", case.name, f"--as={TENANT}", stdin=stdin)


def born(case: Case) -> Object:
    """A pod that comes with an allocation of its author's making."""
    pod = case.pod("born", 2)
    pod["metadata"]["annotations"] = {IDX: "0"}
    return pod


def refusal(case: Case, pod: Object) -> str:
    """Why the tenant may not create a pod; empty if he may, and then it is not created either."""
    try:
        as_tenant(case, "create", "--dry-run=server", "-f", "-", stdin=json.dumps(pod))
    except KubectlError as error:
        return str(error)
    return ""


@pytest.mark.usefixtures("policies")
def test_tenants_and_stolen_tokens_change_no_allocation(
    environment: KindEnvironment, case: Case, small: str, large: str
) -> None:
    """Only the stack writes who holds which GPU, and each plugin only for its own node."""
    assert REFUSED in refusal(case, born(case))
    case.create_running(case.pod("share", 2, node=small))
    gpu = case.gpu("share")
    with pytest.raises(KubectlError, match=REFUSED):
        as_tenant(case, "annotate", "pod", "share", f"{IDX}={gpu + 1}", "--overwrite")
    as_tenant(case, "annotate", "pod", "share", "team=ours")
    assert case.gpu("share") == gpu
    devices = "cdi.k8s.io/own=nvidia.com/gpu=all"
    with pytest.raises(KubectlError, match=r"under cdi\.k8s\.io names a GPU"):
        as_tenant(case, "annotate", "pod", "share", devices)
    as_tenant(case, "annotate", "pod", "share", "cdi.k8s.io/other=vendor.com/nic=0")

    other = {"metadata": {"annotations": {"x": "y"}}}
    until(
        "the policy of the plugin is in force",
        lambda: "403" in abuse(environment, small, (f"/api/v1/nodes/{large}{DRY_RUN}", other))[0],
    )
    answers = abuse(
        environment,
        small,
        (f"/api/v1/nodes/{large}", other),
        (f"/api/v1/nodes/{small}", {"metadata": {"labels": {"trusted": "yes"}}}),
        (f"/api/v1/namespaces/{case.name}/pods/share", {"metadata": {"labels": {"app": "other"}}}),
    )
    assert [answer.split()[0] for answer in answers] == ["403", "403", "403"]
    assert "changes only its own node" in answers[0]


@pytest.mark.usefixtures("policies")
def test_a_stolen_scheduler_token_writes_no_more_than_the_scheduler(
    environment: KindEnvironment, case: Case
) -> None:
    """Of a pod: the annotation gpushare/retry and the status that kube-scheduler writes."""
    waiting = case.pod("waiting", 2)
    waiting["spec"]["schedulerName"] = "nobody"
    case.kubectl.apply(waiting)
    path = f"/api/v1/namespaces/{case.name}/pods/waiting/status"
    chosen = ("-l", "app.kubernetes.io/component=scheduler")
    pod = environment.kubectl("get", "pods", "-n", NAMESPACE, *chosen, "-o", "name").split()[0]
    patches = [(path, patch) for patch, _ in SCHEDULER_PATCHES]
    labels = (f"{path}{DRY_RUN}", {"metadata": {"labels": {"app": "other"}}})
    until(
        "the policy of the scheduler is in force",
        lambda: "403" in answered(environment, (pod, "-c", "extender"), [labels])[0],
    )
    answers = answered(environment, (pod, "-c", "extender"), patches)
    for (patch, sentence), answer in zip(SCHEDULER_PATCHES, answers, strict=True):
        assert answer.startswith("403" if sentence else "200"), (patch, answer)
        assert sentence in answer


def abuse(environment: KindEnvironment, node: str, *patches: tuple[str, Object]) -> list[str]:
    """What the API server answers to patches with the token of a node's plugin."""
    pod = plugin_pod(environment, node)
    assert RELEASE in pod
    return answered(environment, (pod,), patches)


def answered(
    environment: KindEnvironment, container: tuple[str, ...], patches: Sequence[tuple[str, Object]]
) -> list[str]:
    """What the API server answers to patches with the token of a container."""
    command = ("python3", "-c", ABUSE, json.dumps(patches))
    return environment.kubectl("exec", "-n", NAMESPACE, *container, "--", *command).splitlines()
