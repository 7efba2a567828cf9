"""The GitOps recipes of the documentation: their values render, and rendering is repeatable."""

import re
from pathlib import Path

import pytest
import yaml
from charting import Object, render

pytestmark = pytest.mark.slow

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "gitops.md").read_text()
INSTALLATION = (DOCS / "installation.md").read_text()


def recipes() -> dict[str, Object]:
    """Documents of the page by kind."""
    blocks = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    documents = [yaml.safe_load(block) for block in blocks]
    return {document["kind"]: document for document in documents}


def values_of(kind: str) -> Object:
    """Values that a recipe sets."""
    spec = recipes()[kind]["spec"]
    return dict(spec["source"]["helm"]["valuesObject"] if kind == "Application" else spec["values"])


@pytest.mark.parametrize("kind", ["Application", "HelmRelease"])
def test_the_values_of_a_recipe_render_the_same_twice(kind: str) -> None:
    """The schema of the chart accepts them, and images are those that the installation pushes."""
    first, second = (render(values=values_of(kind), anew=True) for _ in range(2))
    assert first.objects == second.objects
    images = {item["image"] for _, pod in first.pods() for item in pod["containers"]}
    (pushed,) = re.findall(r"docker push (\S+)", INSTALLATION)
    own = {pushed.replace("$name", name) for name in ("extender", "deviceplugin")}
    assert {image for image in images if "/gpushare/" in image} == own


def test_both_recipes_are_on_the_page() -> None:
    """So that the test above cannot pass by finding none."""
    assert set(recipes()) == {"Application", "HelmRelease"}
