"""``gpushare convert``: the dry run of the webhook's conversion."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from invoking import Run

DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: team}
spec:
  replicas: 2
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
        - name: main
          resources: {limits: {aliyun.com/gpu-mem: 7, cpu: 1}}
---
apiVersion: v1
kind: Service
metadata: {name: web}
"""


def written(folder: Path, text: str) -> str:
    """A file with this text."""
    path = folder / "manifest.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def documents(text: str) -> list[Any]:
    """What was printed."""
    return list(yaml.safe_load_all(text))


def test_a_workload_names_the_template_that_is_printed_before_it(run: Run, tmp_path: Path) -> None:
    """Both can be applied as they are; other objects are passed through."""
    found = run("convert", "-f", written(tmp_path, DEPLOYMENT))
    assert (found.code, found.err) == (0, "")
    template, deployment, service = documents(found.out)
    assert (template["kind"], template["metadata"]["namespace"]) == (
        "ResourceClaimTemplate",
        "team",
    )
    exactly = template["spec"]["spec"]["devices"]["requests"][0]["exactly"]
    assert exactly["capacity"]["requests"] == {"memory": "7168Mi"}
    spec = deployment["spec"]["template"]["spec"]
    assert spec["containers"][0]["resources"]["limits"] == {"cpu": "1"}
    assert spec["resourceClaims"][0]["resourceClaimTemplateName"] == template["metadata"]["name"]
    assert service["kind"] == "Service"


@pytest.mark.parametrize("beside", ["env: [{name: A, value: }]", "envFrom: [{prefix: }]"])
def test_a_key_without_a_value_is_passed_through(run: Run, tmp_path: Path, beside: str) -> None:
    """The API server takes it for no key; the manifest keeps it."""
    manifest = DEPLOYMENT.replace("cpu: 1}}", f"cpu: }}}}\n          {beside}")
    found = run("convert", "-f", written(tmp_path, manifest))
    assert (found.code, found.err) == (0, "")
    (container,) = documents(found.out)[1]["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"] == {"cpu": None}
    assert container.items() >= yaml.safe_load(beside).items()


def test_equal_pods_share_one_template(run: Run, tmp_path: Path) -> None:
    """Of each namespace."""
    found = run("convert", "-f", written(tmp_path, f"{DEPLOYMENT}---\n{DEPLOYMENT}"))
    kinds = [each["kind"] for each in documents(found.out)]
    assert kinds.count("ResourceClaimTemplate") == 1


def test_the_unit_is_that_of_the_manifest(run: Run, tmp_path: Path) -> None:
    """A cluster that counted in MiB."""
    text = DEPLOYMENT.replace("gpu-mem: 7", "gpu-mem: 700")
    found = run("convert", "-f", written(tmp_path, text), "--unit", "MiB")
    assert "memory: 700Mi" in found.out


def test_what_is_not_converted_is_printed_unchanged_with_the_reason(
    run: Run, tmp_path: Path
) -> None:
    """And the exit code states that nothing was."""
    text = DEPLOYMENT.replace("gpu-mem: 7", "gpu-core.percentage: 7")
    found = run("convert", "-f", written(tmp_path, text))
    assert found.code == 1
    assert "not converted: Deployment web: a share of compute alone" in " ".join(found.err.split())
    assert "aliyun.com/gpu-core.percentage: '7'" in found.out


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "- 1",
        "kind: Pod\nspec: 7",
        "kind: Pod\nspec: x",
        "kind: Pod\nspec: {containers: 3}",
        "kind: Pod\nspec: {containers: [3]}",
        "kind: Pod\nmetadata: x",
        "kind: CronJob\nspec: x",
        "kind: List\nitems: 5",
        "kind: List\nitems: x",
    ],
)
def test_a_file_that_is_no_manifest_is_named(run: Run, tmp_path: Path, text: str) -> None:
    """With its path, and without a traceback."""
    found = run("convert", "-f", written(tmp_path, text))
    assert found.code == 1
    assert "manifest.yaml" in "".join(found.err.split())
    assert "object" not in found.err.replace("Kubernetes object", "")


def test_a_cron_job_is_converted_in_place(run: Run, tmp_path: Path) -> None:
    """Its pods are two templates deep."""
    job = yaml.safe_load(DEPLOYMENT.split("---", maxsplit=1)[0])["spec"]
    cron = {
        "kind": "CronJob",
        "metadata": {"name": "nightly"},
        "spec": {"jobTemplate": {"spec": {"template": job["template"]}}},
    }
    found = run("convert", "-f", written(tmp_path, yaml.safe_dump(cron)))
    _, changed = documents(found.out)
    spec = changed["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    assert spec["resourceClaims"][0]["name"] == "gpushare"


def test_a_job_whose_template_has_no_metadata_is_converted(run: Run, tmp_path: Path) -> None:
    """The API server needs none there, and the Job of the Kubernetes documentation has none."""
    box = {"name": "main", "resources": {"limits": {"aliyun.com/gpu-mem": 7}}}
    for metadata in ({}, {"metadata": None}):
        template = {**metadata, "spec": {"containers": [box], "restartPolicy": "Never"}}
        job = {"kind": "Job", "metadata": {"name": "pi"}, "spec": {"template": template}}
        found = run("convert", "-f", written(tmp_path, yaml.safe_dump(job)))
        assert (found.code, found.err) == (0, "")
        changed = documents(found.out)[1]["spec"]["template"]
        assert changed["spec"]["resourceClaims"][0]["name"] == "gpushare"
        assert changed["metadata"]["annotations"]


def test_templates_of_every_kind_are_converted(run: Run, tmp_path: Path) -> None:
    """Those of each role of a training job, and of kinds that are known nowhere."""
    template = yaml.safe_load(DEPLOYMENT.split("---", maxsplit=1)[0])["spec"]["template"]
    roles = {role: {"replicas": 2, "template": template} for role in ("Launcher", "Worker")}
    items = [
        {"kind": "MPIJob", "metadata": {"name": "a"}, "spec": {"mpiReplicaSpecs": roles}},
        {"kind": "Own", "metadata": {"name": "b"}, "spec": {"sets": [{"template": template}]}},
    ]
    found = run("convert", "-f", written(tmp_path, yaml.safe_dump_all(items)))
    assert (found.code, found.err) == (0, "")
    _, job, own = documents(found.out)
    changed = [each["template"] for each in job["spec"]["mpiReplicaSpecs"].values()]
    changed.append(own["spec"]["sets"][0]["template"])
    assert all("resourceClaims" in each["spec"] for each in changed)
    assert "aliyun.com/gpu-mem" not in found.out
