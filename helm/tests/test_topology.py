"""An operator's own sets of GPUs: from the values to the file that the extender reads."""

import json

import helm_python as helm
import pytest
from charting import Object, Rendered, render

from gpucore.topology.static import decode_static

SETS: Object = {
    "ecs.sccgn6.24xlarge": {"2": [[0, 2], [1, 3]], "4": [[0, 1, 2, 3], [4, 5, 6, 7]]},
    "ring": {"3": [[2, 0, 1]]},
}
PATH = "/etc/gpushare/topology"


def with_sets(mode: str, sets: Object, **extender: Object | str) -> Rendered:
    """The chart in this mode with these sets."""
    values = {"scheduler": {"mode": mode}, "topology": {"staticSets": sets}, "extender": extender}
    return render(values=values)


def extender(rendered: Rendered) -> tuple[Object, Object]:
    """The pod of the extender and its container there."""
    (pod,) = (pod for component, pod in rendered.pods() if component in {"scheduler", "extender"})
    (found,) = (each for each in pod["containers"] if each["name"] == "extender")
    return pod, found


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["second", "extender"])
def test_the_extender_reads_the_sets_that_the_values_say(mode: str) -> None:
    """Flag, mount, volume and ConfigMap lead to a file that means what was written."""
    rendered = with_sets(mode, SETS)
    config = rendered.one("ConfigMap", "-topology")
    pod, container = extender(rendered)
    assert f"--topology-config={PATH}/sets.json" in container["args"]
    mounts = {each["mountPath"]: each["name"] for each in container["volumeMounts"]}
    (volume,) = (each for each in pod["volumes"] if each["name"] == mounts[PATH])
    assert volume["configMap"]["name"] == config["metadata"]["name"]
    assert json.loads(config["data"]["sets.json"]) == SETS
    read = decode_static(config["data"]["sets.json"])
    assert read["ring"].choose(range(8), 3) == (2, 0, 1)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["second", "extender"])
def test_nothing_is_there_by_default(mode: str) -> None:
    """Without sets there is no ConfigMap, no flag and no mount of them."""
    rendered = with_sets(mode, {})
    _, container = extender(rendered)
    assert not [each for each in container["args"] if "topology-config" in each]
    assert not [each for each in container.get("volumeMounts", []) if each["mountPath"] == PATH]
    assert not [
        each for each in rendered.of("ConfigMap") if each["metadata"]["name"].endswith("-topology")
    ]


@pytest.mark.slow
def test_changed_sets_make_new_pods() -> None:
    """The file is read at start, so another one changes the pods' template."""

    def annotations(sets: Object) -> Object:
        deployment = with_sets("second", sets).one("Deployment", "-scheduler")
        return dict(deployment["spec"]["template"]["metadata"]["annotations"])

    assert annotations(SETS) != annotations({"ring": SETS["ring"]})
    assert annotations(SETS) == annotations(dict(reversed(SETS.items())))


@pytest.mark.slow
def test_the_certificate_stays_where_it_is() -> None:
    """Sets and TLS are mounted side by side."""
    pod, container = extender(with_sets("extender", SETS, tls={"enabled": True}))
    paths = {each["mountPath"] for each in container["volumeMounts"]}
    assert paths == {PATH, "/etc/gpushare/tls", "/etc/gpushare-metrics"}
    names = {each["name"] for each in pod["volumes"]}
    assert names == {"topology", "certificate", "metrics-certificate"}


@pytest.mark.parametrize(
    ("sets", "complaint"),
    [
        ({"t": {"two": [[0, 1]]}}, "'two' not allowed"),
        ({"t": {"2": [[0, 0]]}}, "equal"),
        ({"t": {"2": [[0, -1]]}}, "minimum"),
        ({"t": {"2": [0, 1]}}, "want array"),
    ],
)
def test_schema_refuses(sets: Object, complaint: str) -> None:
    """Sizes in words, a GPU twice, GPUs below zero, and GPUs that are no set are refused."""
    with pytest.raises(helm.HelmValuesError, match=complaint):
        with_sets("second", sets)


@pytest.mark.slow
def test_a_set_of_another_size_than_its_key_is_refused() -> None:
    """The sentence names the set, since the extender would end at start for it."""
    complaint = r"\[0 1 2\] of node type t is no set of 2 GPUs"
    with pytest.raises(helm.HelmError, match=complaint):
        with_sets("second", {"t": {"2": [[0, 1], [0, 1, 2]]}})
