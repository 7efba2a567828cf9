"""Images come from a registry that the installer names, and never from Docker Hub by accident."""

import helm_python as helm
import pytest
from charting import CHART, Object, Rendered, render

pytestmark = pytest.mark.slow

EVERYTHING: Object = {"webhook": {"enabled": True}, "dashboard": {"enabled": True}}
OWN_IMAGES = {"gpushare/extender", "gpushare/deviceplugin", "gpushare/inspect"}


def images(rendered: Rendered) -> dict[str, str]:
    """Pull policy of every image but kube-scheduler's, the test pod's included."""
    pods = [pod for _, pod in rendered.pods()]
    pods += [spec for _, spec in rendered.ending_pods()]
    containers = [item for pod in pods for item in pod["containers"]]
    return {
        item["image"]: item["imagePullPolicy"]
        for item in containers
        if item["name"] != "kube-scheduler"
    }


@pytest.mark.parametrize("mode", ["second", "extender"])
def test_a_chart_without_a_registry_is_refused_with_what_to_set(mode: str) -> None:
    """Docker Hub has no images of this project, so a name without a registry is nobody's."""
    with pytest.raises(helm.HelmError, match=r"set image\.registry .*or global\.imageRegistry"):
        render(values={"image": {}, "scheduler": {"mode": mode}})
    with pytest.raises(helm.HelmError, match="make images"):
        render(values={"image": {"registry": ""}})


@pytest.mark.parametrize(
    "values",
    [
        {"image": {"registry": "registry.example.com:5000/mirror"}},
        {"image": {"registry": "registry.example.com:5000/mirror/"}},
        {"global": {"imageRegistry": "registry.example.com:5000/mirror"}},
        {
            "image": {"registry": "registry.other.example"},
            "global": {"imageRegistry": "registry.example.com:5000/mirror"},
        },
    ],
)
def test_every_image_is_named_in_the_registry(values: Object) -> None:
    """One value moves all images; global.imageRegistry has precedence."""
    found = images(render(values={"image": {}, **EVERYTHING, **values}))
    prefix = "registry.example.com:5000/mirror/"
    assert {name.removeprefix(prefix).rpartition(":")[0] for name in found} == OWN_IMAGES
    assert set(found.values()) == {"IfNotPresent"}


def test_local_images_are_never_pulled() -> None:
    """A name without a registry means Docker Hub to kubelet, where it could be anybody's image."""
    found = images(render(values={**EVERYTHING, "image": {"registry": "local"}}))
    assert {name.rpartition(":")[0] for name in found} == OWN_IMAGES
    assert set(found.values()) == {"Never"}


@pytest.mark.parametrize("host", ["registry.example.com", "localhost:5000", "localhost"])
def test_a_repository_with_a_registry_is_used_as_it_is(host: str) -> None:
    """An image may come from another registry than the rest, and is pulled by its policy."""
    own = {"extender": {"image": {"repository": f"{host}/mine/extender", "tag": "7"}}}
    found = images(render(values={**own, "image": {"registry": "local"}}))
    assert found[f"{host}/mine/extender:7"] == "IfNotPresent"
    plugin = {"devicePlugin": {"image": {"repository": f"{host}/mine/deviceplugin"}}}
    alone = render(values={**own, **plugin, "webhook": {"enabled": False}, "image": {}})
    assert f"{host}/mine/extender:7" in images(alone)


@pytest.mark.parametrize("registry", ["gpushare", "docker", "library/x", "https://r.example.com"])
def test_a_registry_that_is_no_host_is_refused(registry: str) -> None:
    """Such a prefix would be read as an account of Docker Hub."""
    with pytest.raises(helm.HelmValuesError, match="registry"):
        render(values={"image": {"registry": registry}})


def test_lint_needs_no_registry() -> None:
    """Helm's linter renders the defaults, and reports what is to be set as a warning at most."""
    assert helm.lint(CHART, strict=True, kube_version="v1.30.0")["errors"] == []
