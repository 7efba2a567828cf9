"""Names of objects: the API server accepts them for every name that Helm accepts for a release."""

import re
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import helm_python as helm
import pytest
from charting import CHART, REGISTRY, SERVING, Object, Rendered, render
from servingchart import MODEL

pytestmark = pytest.mark.slow

MOST = {"CronJob": 52, "Job": 63, "Service": 63}
"""Characters of a name that the API server accepts; of other kinds it is 253."""
LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
EVERYTHING: Object = {
    "dashboard": {"enabled": True},
    "monitoring": {"enabled": True},
    "verify": {"schedule": "0 3 * * *"},
    "idle": {"schedule": "30 * * * *", "evict": True},
    "defragmentation": {"enabled": True, "apply": True},
    "claims": {"enabled": True},
    "webhook": {"sizing": {"enabled": True}},
}
LONGEST = ("production-eu-west-1-model-serving-gpu-infrastructure", "gpushare-" + "a" * 44)
LONGEST_RELEASE = 53
KEPT = "production-eu-west-1-gpushare-of-team-a"
"""The longest name for which the CronJob of the certificates could be installed before."""


def named(rendered: Rendered) -> list[tuple[str, str]]:
    """Kind and name of every object."""
    return [(item["kind"], item["metadata"]["name"]) for item in rendered.objects]


@pytest.mark.parametrize("mode", ["second", "extender"])
@pytest.mark.parametrize("release", [LONGEST[0], LONGEST[1], LONGEST[0][:35]])
def test_a_long_release_name_makes_names_that_the_api_server_accepts(
    mode: str, release: str
) -> None:
    """Of every object; half of an installation would be left behind otherwise."""
    assert len(release) <= LONGEST_RELEASE
    values = {**EVERYTHING, "scheduler": {"mode": mode}}
    found = named(render("1.37.0", values, release=release, revision=12_345))
    for kind, name in found:
        assert len(name) <= MOST.get(kind, 253), f"{kind} {name}"
        assert LABEL.fullmatch(name), f"{kind} {name}"
    assert set(MOST) <= {kind for kind, _ in found}


@pytest.mark.parametrize("namespace", ["default", "kube-system"])
@pytest.mark.parametrize("mode", ["second", "extender"])
def test_no_two_objects_have_one_name(mode: str, namespace: str) -> None:
    """In namespaces in which the chart has objects of its own as well: Helm would install none."""
    values = {
        **EVERYTHING,
        "scheduler": {"mode": mode},
        "unhealthyConfigMaps": True,
        "devicePlugin": {"unhealthyConfigMap": True},
        "openshift": {"enabled": True},
    }
    objects = render("1.37.0", values, namespace=namespace).objects
    found = Counter(
        (item["kind"], item["metadata"].get("namespace"), item["metadata"]["name"])
        for item in objects
    )
    assert [each for each, number in found.items() if number > 1] == []


@pytest.mark.parametrize("chart", [CHART, SERVING], ids=lambda chart: chart.name)
def test_a_version_with_a_build_is_a_label_that_the_api_server_accepts(
    chart: Path, tmp_path: Path
) -> None:
    """A label has no ``+``; Helm's own charts write ``_``."""
    copy = shutil.copytree(chart, tmp_path / chart.name)
    about = copy / "Chart.yaml"
    text = about.read_text(encoding="utf-8")
    about.write_text(re.sub(r"(?m)^version: .*", "version: 1.2.3+build.4", text), encoding="utf-8")
    values = MODEL if chart == SERVING else {"image": {"registry": REGISTRY}}
    rendered = render("1.37.0", values, chart=copy)
    labels = [item["metadata"].get("labels", {}) for item in rendered.objects]
    assert {found.get("helm.sh/chart") for found in labels} - {None} == {
        f"{chart.name}-1.2.3_build.4"
    }
    assert not [text for found in labels for text in found.values() if "+" in text]


@pytest.mark.parametrize("release", ["on", "yes", "null"])
def test_labels_stay_texts_for_every_release_name(release: str) -> None:
    """YAML reads each of these unquoted as a boolean or as nothing."""
    rendered = render("1.37.0", EVERYTHING | {"nameOverride": "off"}, release=release)
    for item in rendered.objects:
        labels = item["metadata"].get("labels", {})
        assert labels.get("app.kubernetes.io/instance", release) == release
        assert labels.get("app.kubernetes.io/name", "off") == "off"
    for item in rendered.of("Deployment"):
        assert item["spec"]["selector"]["matchLabels"]["app.kubernetes.io/instance"] == release


@pytest.mark.parametrize(("chart", "values"), [(CHART, EVERYTHING), (SERVING, MODEL)])
def test_a_namespace_whose_name_is_a_number_stays_a_text(chart: Path, values: Object) -> None:
    """YAML reads it unquoted as a number, which no object may have there."""
    rendered = render("1.37.0", values, chart=chart, namespace="2024")
    found = [*_namespaces(list(rendered.objects))]
    assert "2024" in found
    assert {type(each) for each in found} == {str}
    if chart == CHART:
        assert rendered.scheduler_config()["leaderElection"]["resourceNamespace"] == "2024"


def _namespaces(part: object) -> Iterator[object]:
    """Every value of a field ``namespace``, at any depth."""
    if isinstance(part, list):
        for each in part:
            yield from _namespaces(each)
    elif isinstance(part, dict):
        for key, each in part.items():
            if key == "namespace" and not isinstance(each, (list, dict)):
                yield each
            yield from _namespaces(each)


def test_a_name_that_fits_is_not_shortened() -> None:
    """An upgrade of a release renames none of its objects."""
    found = named(render("1.37.0", release=KEPT))
    assert ("CronJob", f"{KEPT}-certificates") in found
    (job,) = (name for kind, name in found if kind == "Job")
    assert job.startswith(f"{KEPT}-certificates-")


def test_a_name_with_a_dot_is_refused_with_a_sentence() -> None:
    """Helm accepts it for a release, and a Service could not have it."""
    with pytest.raises(helm.HelmError, match=r"the name team\.gpushare has a dot"):
        render("1.37.0", release="team.gpushare")


@pytest.mark.parametrize(
    ("name", "words"), [("a.b", "a.b has a dot"), ("1gpu", "1gpu does not begin with a letter")]
)
@pytest.mark.parametrize("webhook", [False, True])
def test_a_name_that_no_service_can_have_is_refused(
    name: str, words: str, *, webhook: bool
) -> None:
    """Whichever of the Services is installed, and by its rules, which are stricter than others."""
    values = {"fullnameOverride": name, "webhook": {"enabled": webhook}}
    with pytest.raises(helm.HelmError, match=words):
        render("1.37.0", values)


@pytest.mark.parametrize("namespace", ["default", "kube-system"])
@pytest.mark.parametrize("mode", ["second", "extender"])
def test_no_two_objects_have_one_name_where_a_release_shares_a_namespace(
    namespace: str, mode: str
) -> None:
    """Helm ends with an error otherwise: the chart has Roles in both of these namespaces."""
    more: Object = {"unhealthyConfigMaps": True, "devicePlugin": {"unhealthyConfigMap": True}}
    values = {**EVERYTHING, **more, "scheduler": {"mode": mode}}
    rendered = render("1.37.0", values, namespace=namespace)
    found = Counter(
        (item["kind"], item["metadata"].get("namespace"), item["metadata"]["name"])
        for item in rendered.objects
    )
    assert [each for each, count in found.items() if count > 1] == []
