"""``gpushare recommend -o patch`` for workloads whose GPU memory is claimed."""

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from drawncluster import FakeCluster, Gpu
from fakeapiserver import FakeApiServer
from invoking import Run
from measuredworkloads import history, written

from gpucore.sizing.history_documents import encode_histories
from gpukube.testing.plugin_pods import plugin_pod

pytestmark = pytest.mark.slow

HISTORY = "/api/v1/namespaces/gpushare/pods/p-a%3A9445/proxy/usage-history"
WEB = "/apis/apps/v1/namespaces/team/deployments/web"
TEMPLATE = "/apis/resource.k8s.io/v1/namespaces/team/resourceclaimtemplates/share"


def template(
    memory: str | None = "16Gi",
    *,
    key: str = "memory",
    count: int = 1,
    requests: int = 1,
    mode: str = "",
) -> dict[str, Any]:
    """A ResourceClaimTemplate."""
    exactly: dict[str, Any] = {"deviceClassName": "gpushare", "count": count}
    if memory is not None:
        exactly["capacity"] = {"requests": {key: memory, "compute": "10"}}
    if mode:
        exactly["allocationMode"] = mode
    names = [f"gpu-{number}" for number in range(requests)]
    devices = {"requests": [{"name": name, "exactly": exactly} for name in names]}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {
            "name": "share",
            "namespace": "team",
            "uid": "u",
            "labels": {"app.kubernetes.io/instance": "argo"},
        },
        "spec": {"metadata": {"labels": {"team": "a"}}, "spec": {"devices": devices}},
    }


def deployment(*claims: Mapping[str, str]) -> dict[str, Any]:
    """A Deployment whose pods have these claims; one of the template where none are given."""
    found = claims or ({"name": "gpu", "resourceClaimTemplateName": "share"},)
    return {"spec": {"template": {"spec": {"resourceClaims": list(found)}}}}


def patched(
    run: Run,
    tmp_path: Path,
    objects: Mapping[str, Any],
    *,
    nodes: FakeCluster | None = None,
    **more: Any,
) -> str:
    """What is printed for a Deployment that uses 6 of its 16 GiB."""
    web = history("web", 2, 3, 6, namespace="team", claims=True, **more)
    items = (nodes or FakeCluster().node("a", gpus=[Gpu(80)])).items
    pods = [plugin_pod("p-a", "a", namespace="gpushare", port=9445)]
    server = FakeApiServer({"/api/v1/nodes": items, "/api/v1/pods": pods})
    server.objects = {HISTORY: json.loads(encode_histories("a", [web])), **objects}
    with server.serving():
        config = ("--kubeconfig", str(server.kubeconfig(tmp_path)))
        outcome = run("recommend", *config, "-n", "team", "-o", "patch")
    assert outcome.code == 0, outcome.err
    return outcome.out


def commands(line: str) -> tuple[dict[str, Any], list[str], dict[str, Any], list[str]]:
    """The manifest, the words that apply it, the patch, and the words that send it."""
    first, _, second = line.strip().partition(" && ")
    printing, _, applying = first.partition(" | ")
    words = shlex.split(second)
    patch = json.loads(words.pop().removeprefix("--patch="))
    return json.loads(shlex.split(printing)[2]), shlex.split(applying), patch, words


def test_a_new_template_is_created_and_the_workload_refers_to_it(run: Run, tmp_path: Path) -> None:
    """The spec of a ResourceClaimTemplate is immutable; the second command needs the first."""
    out = patched(run, tmp_path, {WEB: deployment(), TEMPLATE: template()})
    manifest, applying, patch, words = commands(out)
    assert applying == ["kubectl", "apply", "--namespace=team", "--filename=-"]
    assert (manifest["apiVersion"], manifest["kind"]) == (
        "resource.k8s.io/v1",
        "ResourceClaimTemplate",
    )
    assert manifest["metadata"] == {"name": "share-7gi", "namespace": "team"}
    assert manifest["spec"] == template("7Gi")["spec"]
    assert words[:4] == ["kubectl", "patch", "deployment/web", "--namespace=team"]
    assert words[4:] == ["--type=strategic"]
    assert patch["spec"]["template"]["spec"] == {
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "share-7gi"}]
    }


def test_a_share_of_several_gpus_is_divided(run: Run, tmp_path: Path) -> None:
    """The template has the memory of each; 6 GiB and 15 % are 8 GiB of two."""
    objects = {WEB: deployment(), TEMPLATE: template("8Gi", count=2)}
    manifest, *_ = commands(patched(run, tmp_path, objects, gpus=2))
    assert manifest["metadata"]["name"] == "share-4gi"


def test_a_size_in_the_name_is_replaced(run: Run, tmp_path: Path) -> None:
    """Names would grow with each recommendation."""
    named = template()
    named["metadata"]["name"] = "share-16gi"
    claim = {"name": "gpu", "resourceClaimTemplateName": "share-16gi"}
    objects = {WEB: deployment(claim), f"{TEMPLATE}-16gi": named}
    assert commands(patched(run, tmp_path, objects))[0]["metadata"]["name"] == "share-7gi"


@pytest.mark.parametrize(
    ("name", "new"),
    [("share-7gi", "share-7gi-new"), ("x" * 253, f"{'x' * 240}-7gi"), ("a.-16384mi", "a-7gi")],
)
def test_the_new_name_is_another_one_and_valid(
    run: Run, tmp_path: Path, name: str, new: str
) -> None:
    """Whatever size the old one names."""
    named = template()
    named["metadata"]["name"] = name
    claim = {"name": "gpu", "resourceClaimTemplateName": name}
    path = f"{TEMPLATE.removesuffix('share')}{name}"
    found = commands(patched(run, tmp_path, {WEB: deployment(claim), path: named}))
    assert found[0]["metadata"]["name"] == new


def test_a_size_that_is_not_of_whole_gib_is_in_mib(run: Run, tmp_path: Path) -> None:
    """6 GiB and 15 percent, where the nodes count in MiB."""
    objects = {WEB: deployment(), TEMPLATE: template()}
    node = FakeCluster().node("a", gpus=[Gpu(80 << 10)], unit="MiB")
    manifest, *_ = commands(patched(run, tmp_path, objects, nodes=node))
    (request,) = manifest["spec"]["spec"]["devices"]["requests"]
    assert request["exactly"]["capacity"]["requests"]["memory"] == "7066Mi"
    assert manifest["metadata"]["name"] == "share-7066mi"


@pytest.mark.parametrize(
    ("objects", "why"),
    [
        ({}, "its claims cannot be read"),
        ({WEB: deployment()}, "its claims cannot be read"),
        ({WEB: deployment(), TEMPLATE: template(None)}, "have 0 requests of memory"),
        ({WEB: deployment(), TEMPLATE: template(requests=2)}, "have 2 requests of memory"),
        ({WEB: deployment(), TEMPLATE: template(key="x/memory")}, "have 0 requests of memory"),
        ({WEB: deployment(), TEMPLATE: template(mode="All")}, "have 0 requests of memory"),
        ({WEB: deployment(), TEMPLATE: template("9Gi")}, "has 9Gi of each GPU"),
        ({WEB: deployment(), TEMPLATE: template("much")}, "its claims have an unknown form"),
        ({WEB: deployment(), TEMPLATE: {"spec": 7}}, "its claims have an unknown form"),
        ({WEB: deployment({"name": "a", "resourceClaimName": "b"})}, "have 0 requests of memory"),
        (
            {WEB: deployment({"name": "a", "resourceClaimTemplateName": "../../x"})},
            "have 0 requests of memory",
        ),
    ],
)
def test_where_it_is_not_certain_what_to_change_a_comment_has_the_reason(
    run: Run, tmp_path: Path, objects: Mapping[str, Any], why: str
) -> None:
    """With the size to claim."""
    out = patched(run, tmp_path, objects)
    assert out.startswith("# deployment team/web is not patched: ")
    assert why in out
    assert out.endswith("; claim 7 GiB of GPU memory in all\n")


def test_a_template_of_pods_that_cannot_change_is_a_comment(run: Run, tmp_path: Path) -> None:
    """That of a Job is final."""
    out = patched(run, tmp_path, {}, kind="Job")
    assert "job team/web is not patched: its template of pods cannot change" in out


def test_a_claim_of_a_whole_gpu_is_left_to_a_person(run: Run, tmp_path: Path) -> None:
    """It may be exclusive."""
    objects = {WEB: deployment(), TEMPLATE: template("80Gi")}
    out = patched(run, tmp_path, objects, requested=80)
    assert "is not patched: it may have a GPU of its own" in out


def test_without_a_cluster_claims_are_not_patched(run: Run, tmp_path: Path) -> None:
    """And never with a limit of a container, which these pods have not."""
    path = written(tmp_path / "h", [history("web", 2, claims=True)])
    out = run("recommend", "--history", str(path), "-o", "patch").out
    assert out == (
        "# deployment default/web is not patched: its claims are not read from a file or a"
        " snapshot; claim 3 GiB of GPU memory in all\n"
    )
