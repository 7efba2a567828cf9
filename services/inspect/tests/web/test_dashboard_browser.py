"""The page in a real Chromium, served by the real command from a snapshot."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from drawncluster import FakeCluster, Gpu

pytestmark = pytest.mark.slow

LINKS = {(0, 1): ["NV2", "SYS"], (0, 2): ["SYS"], (1, 2): ["PHB"]}


def drawn() -> FakeCluster:
    """Four nodes of different kinds with pods of several sizes, and pods that wait."""
    cluster = FakeCluster()
    cluster.node("gpu-t4-a", address="10.0.0.1", gpus=[Gpu(15)] * 2)
    cluster.node("gpu-t4-b", gpus=[Gpu(15), Gpu(15, healthy=False)], cordoned=True)
    cluster.node("gpu-a100", gpus=[Gpu(39, "NVIDIA A100-PCIE-40GB", mode="mps")] * 4)
    join(cluster)
    for place, units in enumerate((3, 6, 4)):
        cluster.pod(f"web-{place}", units, node="gpu-t4-a", index=place % 2)
    cluster.pod("train", 39, node="gpu-a100", index=1, namespace="research")
    cluster.pod("tune", 20, phase="Pending", namespace="research")
    return cluster.pod("large", 64, phase="Pending", namespace="research")


def join(cluster: FakeCluster) -> None:
    """Give the last node a matrix of links: an NVLink pair, and others over the host."""
    pairs = {f"{a}-{b}": LINKS.get((a, b), ["SYS"]) for b in range(4) for a in range(b)}
    annotations = cluster.items[-1]["metadata"]["annotations"]
    inventory = json.loads(annotations["gpushare/inventory"])
    annotations["gpushare/inventory"] = json.dumps({**inventory, "links": pairs})


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory, serving: Callable[..., Any]) -> Iterator[str]:
    """Where ``gpushare dashboard --snapshot`` serves; no test changes the file."""
    path = tmp_path_factory.mktemp("page") / "cluster.json"
    path.write_text(drawn().json())
    with serving("--snapshot", str(path)) as url:
        yield url


def test_the_map(window: Callable[..., Any], address: str, keep: Callable[..., None]) -> None:
    """GPUs have their figures in words, and the page shows of when its snapshot is."""
    page = window(address)
    page.get_by_role("status").get_by_text("Snapshot of").wait_for()
    assert page.get_by_text("Live", exact=True).count() == 0
    assert page.get_by_text("GPU0 7/15").count() == 1
    assert page.locator("svg a").count() == 4
    keep(page, "light")


def test_the_keyboard_reaches_pods(
    window: Callable[..., Any], address: str, keep: Callable[..., None]
) -> None:
    """Tab comes to the skip link first and to every pod; Enter opens its page."""
    page = window(address)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to content"
    for _ in range(40):
        page.keyboard.press("Tab")
        here = page.evaluate("document.activeElement.getAttribute('aria-label') || ''")
        if here.startswith("default/web-0"):
            break
    keep(page, "focus")
    page.keyboard.press("Enter")
    page.wait_for_url("**/pods/default/web-0")
    assert page.title() == "default/web-0 - gpushare"
    assert "3 GiB on GPU 0 of node gpu-t4-a" in page.content()


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/", "phone"),
        ("/nodes/gpu-a100", "phone-node"),
        ("/pods", "phone-waiting"),
        ("/pods/research/large", "phone-pod"),
        ("/whatif?mem=20&replicas=3", "phone-whatif"),
    ],
)
def test_a_phone_shows_every_page(
    window: Callable[..., Any], address: str, keep: Callable[..., None], path: str, name: str
) -> None:
    """At 360 pixels nothing but tables scrolls sideways."""
    page = window(address + path, width=360)
    page.get_by_role("heading", level=1).wait_for()
    root = "document.documentElement"
    assert page.evaluate(f"{root}.scrollWidth - {root}.clientWidth") == 0
    keep(page, name)


@pytest.mark.parametrize("path", ["/whatif", "/pods/default/picky"])
def test_long_names_do_not_widen_a_page(
    window: Callable[..., Any], serving: Callable[..., Any], tmp_path: Path, path: str
) -> None:
    """A node with the longest name of Kubernetes, and a pod with the longest label it requires."""
    name = ".".join(["n" * 63] * 3 + ["n" * 61])
    cluster = FakeCluster().node(name, gpus=[Gpu(15)])
    key, value = f"example.com/{'k' * 63}", "v" * 63
    cluster.pod("picky", 4, phase="Pending", spec={"nodeSelector": {key: value}})
    snapshot = tmp_path / "cluster.json"
    snapshot.write_text(cluster.json())
    with serving("--snapshot", str(snapshot)) as url:
        page = window(url + path, width=360)
        page.get_by_role("heading", level=1).wait_for()
        root = "document.documentElement"
        assert page.evaluate(f"{root}.scrollWidth - {root}.clientWidth") == 0
        page.context.close()


CONTRAST = """() => {
  const shine = (colour) => {
    const part = (v) => { v /= 255; return v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; };
    const [r, g, b] = colour.match(/[0-9.]+/g).map(Number).map(part);
    return .2126 * r + .7152 * g + .0722 * b;
  };
  const behind = (e) => {
    const colour = getComputedStyle(e).backgroundColor;
    return colour.startsWith("rgba(") && e.parentElement ? behind(e.parentElement) : colour;
  };
  const texts = [...document.querySelectorAll("body *")].filter((e) =>
    e.checkVisibility() && !e.closest("svg")
    && [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim()));
  return texts.map((e) => {
    const [a, b] = [shine(getComputedStyle(e).color), shine(behind(e))];
    return [e.textContent, (Math.max(a, b) + .05) / (Math.min(a, b) + .05)];
  });
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out(
    window: Callable[..., Any], address: str, keep: Callable[..., None], scheme: str
) -> None:
    """All text has the contrast of 4.5 that WCAG 2 requires at level AA, by day and by night."""
    seen = []
    for path in ("/", "/nodes/gpu-a100", "/pods/research/tune"):
        page = window(address + path, width=1000, scheme=scheme)
        page.get_by_role("status").get_by_text("Snapshot of").wait_for()
        seen += page.evaluate(CONTRAST)
        keep(page, f"{scheme}-{path.rpartition('/')[2] or 'map'}")
    assert len(seen) > 40
    assert [each for each in seen if each[1] < 4.5] == []


def test_the_form_answers(
    window: Callable[..., Any], address: str, keep: Callable[..., None]
) -> None:
    """A question typed into the form is answered on the same page."""
    page = window(f"{address}/whatif")
    page.get_by_label("Memory (GiB)").fill("15")
    page.get_by_label("Number of pods").fill("9")
    page.get_by_role("button", name="Simulate").click()
    page.get_by_role("heading", name="6 of 9 pods fit").wait_for()
    keep(page, "whatif")


def test_a_waiting_pod_is_explained(
    window: Callable[..., Any], address: str, keep: Callable[..., None]
) -> None:
    """From the cluster page over the pending pods to the reason of one."""
    page = window(address)
    page.get_by_role("link", name="Pending pods").click()
    page.get_by_role("link", name="research/large").click()
    page.get_by_text("pending: it fits no node now").wait_for()
    assert "no GPU is that large" in page.content()
    keep(page, "pod")
