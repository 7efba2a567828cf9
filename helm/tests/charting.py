"""The chart as the Helm engine renders it, without a cluster, for any version of one.

A chart is rendered and parsed once for the same values; each caller gets objects of its own. So
certificates that the chart generates are the same for equal values within a run of tests.
"""

import functools
import json
import pickle
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import helm_python as helm
import yaml
from helm_python import _native

CHART = Path(__file__).resolve().parents[1] / "gpushare"
SERVING = Path(__file__).resolve().parents[1] / "gpu-serving"
RELEASE = "gpushare"
REGISTRY = "registry.example.com"
"""Where the images come from unless a test specifies otherwise; the chart has no default."""
NAMESPACE = "gpu-system"

Object = dict[str, Any]


@dataclass(frozen=True)
class Rendered:
    """What an install would create, and the notes it would print."""

    objects: tuple[Object, ...]
    notes: str

    def of(self, kind: str) -> list[Object]:
        """All objects of a kind."""
        return [item for item in self.objects if item["kind"] == kind]

    def one(self, kind: str, name: str) -> Object:
        """The object of this kind whose name ends so."""
        (found,) = (item for item in self.of(kind) if item["metadata"]["name"].endswith(name))
        return found

    def pods(self) -> Iterator[tuple[str, Object]]:
        """Component and pod specification of everything that goes on running."""
        for item in self.objects:
            if item["kind"] in {"Deployment", "DaemonSet"}:
                labels = item["spec"]["template"]["metadata"]["labels"]
                yield labels["app.kubernetes.io/component"], item["spec"]["template"]["spec"]

    def ending_pods(self) -> Iterator[tuple[str, Object]]:
        """Name and pod specification of everything that ends: jobs, and the tests of the chart."""
        for item in self.objects:
            if item["kind"] == "Pod":
                yield item["metadata"]["name"], item["spec"]
            elif item["kind"] == "Job":
                yield item["metadata"]["name"], item["spec"]["template"]["spec"]
            elif item["kind"] == "CronJob":
                job = item["spec"]["jobTemplate"]["spec"]
                yield item["metadata"]["name"], job["template"]["spec"]

    def scheduler_config(self) -> Object:
        """The configuration that kube-scheduler reads."""
        text = self.one("ConfigMap", "-scheduler")["data"]["config.yaml"]
        (config,) = parsed(text)
        return dict(config)


def render(
    version: str = "1.34.0",
    values: Mapping[str, Any] | None = None,
    *,
    chart: Path = CHART,
    release: str = RELEASE,
    namespace: str = NAMESPACE,
    revision: int = 1,
    apis: tuple[str, ...] = (),
    anew: bool = False,
) -> Rendered:
    """Render a chart for a cluster of this version; ``anew`` even where it was before.

    The revision is 1 for an installation, and one more for each upgrade; ``apis`` are the versions
    that the cluster serves, Helm's own list where there are none.

    Raises:
        helm.HelmError: the values or a template are refused.
    """
    chosen = {"image": {"registry": REGISTRY}, **(values or {})} if chart == CHART else values
    engine = _pickled.__wrapped__ if anew else _pickled
    objects, notes = pickle.loads(
        engine(version, json.dumps(chosen or {}), chart, release, namespace, revision, apis)
    )
    return Rendered(objects, notes)


def parsed(text: str) -> Iterator[Any]:
    """The documents of a YAML text, by the loader that is many times as quick where it is built."""
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    found: Iterator[Any] = yaml.load_all(text, loader)
    return found


@functools.cache
def _pickled(version: str, values: str, chart: Path, *about: str | int | tuple[str, ...]) -> bytes:
    """Objects and notes, as bytes: unpickling is much quicker than parsing YAML."""
    files = _rendered(version, values, chart, *about)
    notes = files.pop(f"{chart.name}/templates/NOTES.txt")
    documents = (item for file in files.values() for item in parsed(file))
    return pickle.dumps((tuple(item for item in documents if item), notes))


def _rendered(
    version: str, values: str, chart: Path, *about: str | int | tuple[str, ...]
) -> dict[str, str]:
    """Files by name; ``about`` is the release, its namespace, its revision and API versions."""
    # The library's render() cannot be given the cluster's version; the call below it can.
    options = dict(zip(("name", "namespace", "revision", "api_versions"), about, strict=True))
    options["kube_version"] = f"v{version}"
    with helm.Chart.load(chart) as loaded:
        loaded.validate_schema(json.loads(values))
        text: str = _native.call_string("helm_render", loaded._raw(), values, json.dumps(options))
    files: dict[str, str] = json.loads(text)
    return files
