"""Workloads as users of the original stack wrote them, for cases that run them unchanged."""

from copy import deepcopy
from pathlib import Path

import yaml

from environments.workloads import Object

FOLDER = Path(__file__).parents[1] / "originals"
NAMES = tuple(sorted(path.stem for path in FOLDER.glob("*.yaml")))
WAITING = ("amount-in-mib", "fits-the-node-only")
"""Workloads that are meant to wait: for a larger GPU, and for units of one that is in use."""


def objects(name: str, *, image: str, namespace: str = "default") -> list[Object]:
    """The objects of one file; only the image of its containers is replaced."""
    found = list(yaml.safe_load_all((FOLDER / f"{name}.yaml").read_text()))
    for item in found:
        item["metadata"]["namespace"] = namespace
        for container in _pod_spec(item).get("containers", ()):
            container |= {"image": image, "imagePullPolicy": "IfNotPresent"}
    return found


def pods(name: str, *, image: str, namespace: str = "default") -> list[Object]:
    """The pods that controllers make of one file, for a control plane that has no controllers."""
    found = []
    for item in objects(name, image=image, namespace=namespace):
        if item["kind"] == "Pod":
            found.append(item)
        elif "template" in item["spec"]:
            found += [_made(item, number) for number in range(item["spec"].get("replicas", 1))]
    return found


def _made(owner: Object, number: int) -> Object:
    template = deepcopy(owner["spec"]["template"])
    made = {
        "name": f"{owner['metadata']['name']}-{number}",
        "namespace": owner["metadata"]["namespace"],
    }
    metadata = {**template.get("metadata", {}), **made}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


def _pod_spec(item: Object) -> Object:
    """Where an object describes containers; empty for a Service."""
    if item["kind"] == "Pod":
        return dict(item["spec"])
    template: Object = item["spec"].get("template", {})
    return dict(template.get("spec", {}))
