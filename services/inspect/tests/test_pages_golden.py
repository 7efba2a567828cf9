"""Every page of the dashboard, element by element.

``UPDATE_GOLDEN=1 pytest services/inspect/tests/test_pages_golden.py`` writes the files anew; read
the difference before you keep it.
"""

import asyncio
import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import quote

import measuredworkloads
import pytest
from drawncluster import FakeCluster, Gpu
from measuredworkloads import history
from starlette.testclient import TestClient

from gpucore.sizing.usage_history import UsageHistory
from gpucore.wire.names import DEFAULT_NAMES
from gpuinspect.cluster.snapshots import decode
from gpuinspect.cluster.usage_histories import ReadHistories, by_workload
from gpuinspect.queries.sizes import sizes_of
from gpuinspect.web.app import make_app
from gpuinspect.web.feed import Feed
from gpuinspect.web.sizing import CachedSizes

pytestmark = pytest.mark.slow

GOLDEN = Path(__file__).parent / "golden" / "pages"
LAYOUT = frozenset(
    [
        *("html", "head", "body", "header", "main", "div", "dl", "table", "thead", "tbody", "tr"),
        *("section", "ul", "svg", "select", "form"),
    ]
)
"""Elements in which white space between children is not shown."""
VOID = frozenset({"meta", "link", "input", "rect"})
HOSTILE = '"><script>alert(1)<b>'
PAGES = {
    "cluster": "/?sort=used&q=a",
    "cluster-second": "/?rows=all&page=2",
    "cluster-map": "/?by=pool&show=waste&gib=10&at=gpu-a/1",
    "cluster-group": "/?q=gpu&show=namespace&group=Tesla%20T4",
    "cluster-none": "/?q=none",
    "node": "/nodes/gpu-a",
    "node-links": "/nodes/gpu-b",
    "node-old": "/nodes/old",
    "node-unknown": "/nodes/unknown",
    "pods": "/pods",
    "health": "/health",
    "usage": "/usage?by=model",
    "sizes": "/sizes",
    "pod-placed": "/pods/default/web-0",
    "pod-waiting": "/pods/research/large",
    "pod-faulty": "/pods/research/odd",
    "whatif": "/whatif",
    "whatif-answer": "/whatif?mem=12&replicas=8",
    "whatif-refused": "/whatif?mem=12&add=1&like=none",
    "whatif-limited": "/whatif?mem=1&replicas=100&add=100&like=old",
}


class FakeReviewer:
    """A reviewer that accepts one token."""

    def may_look(self, token: str) -> bool:
        """The token is the right one."""
        return token == "right"


class Elements(HTMLParser):
    """The elements, attributes and texts of a document, one a line."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        words = [name if value is None else f"{name}={value!r}" for name, value in attrs]
        self._line(" ".join([f"<{tag}>", *words]))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        inside = self._open[-1] if self._open else "html"
        if data.strip() or inside not in LAYOUT:
            self._line(repr(data))

    def _line(self, text: str) -> None:
        self.lines.append("  " * len(self._open) + text)


def elements(text: str) -> list[str]:
    """What a browser makes of a document."""
    parser = Elements()
    parser.feed(text)
    parser.close()
    return parser.lines


def everything(*, many: bool = True) -> FakeCluster:
    """Nodes and pods of every kind there is, and with ``many`` more than a page of them."""
    cluster = FakeCluster()
    for name in ("gpu-a", "gpu-b"):
        cluster.node(name, address="10.0.0.1", gpus=[Gpu(15), Gpu(15)])
    cluster.items[-1]["metadata"]["annotations"]["GPU_TOPOLOGY"] = json.dumps(
        {"GPU_PHB_0_1": "Host PCI bridge"}
    )
    sick = [Gpu(39, "NVIDIA A100-PCIE-40GB", mode="mps"), Gpu(39, healthy=False)]
    cluster.node("gpu-c", gpus=sick, cordoned=True, ready=False)
    cluster.node("old", address="10.0.0.4", total=31, count=2)
    for number in range(50 if many else 0):
        cluster.node(f"z-{number:02}", gpus=[Gpu(15)])
    cluster.pod("web-0", 3, node="gpu-a", index=0).pod("web-1", 9, node="gpu-a", index=1)
    cluster.pod("web-2", (2, 4), node="gpu-b", index=1).pod("stray", 2, node="old")
    cluster.pod("full", 16, node="gpu-a", index=1)
    cluster.pod("odd", 2, node="old", index="x", namespace="research")
    condition = {"type": "PodScheduled", "status": "False", "message": f"0/5 nodes {HOSTILE}"}
    cluster.pod(
        "large", 40, phase="Pending", namespace="research", status={"conditions": [condition]}
    )
    return cluster


def served(cluster: FakeCluster, *histories: UsageHistory) -> Iterator[TestClient]:
    """A browser in front of the dashboard, at a fixed time."""
    raw = cluster.json().encode()
    sizes = CachedSizes(sizes_of(lambda _: ReadHistories(by_workload(histories))))
    feed = Feed(lambda: decode(raw), DEFAULT_NAMES, interval_seconds=3600, sizes=sizes)
    asyncio.run(feed.refresh())
    assert feed.frame is not None
    feed.frame.taken = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    client = TestClient(make_app(feed))
    yield client
    client.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[TestClient]:
    """In front of a cluster of everything."""
    yield from served(everything(), *measuredworkloads.of_everything())


@pytest.mark.parametrize("name", PAGES)
def test_page(browser: TestClient, name: str) -> None:
    """Elements, attributes and texts are those of the golden file."""
    compare(name, browser.get(PAGES[name]).text)


def compare(name: str, text: str) -> None:
    """With the golden file, which is written first where that is wanted."""
    found = "\n".join(elements(text)) + "\n"
    path = GOLDEN / f"{name}.txt"
    if "UPDATE_GOLDEN" in os.environ:
        path.parent.mkdir(exist_ok=True)
        path.write_text(found, encoding="utf-8")
    assert found == path.read_text(encoding="utf-8")


def test_empty_pages() -> None:
    """Sentences stand where there is nothing; links between pages only where there are more."""
    client = next(browsing := served(FakeCluster()))
    found = [line for path in ("/", "/pods") for line in elements(client.get(path).text)]
    texts = {line.strip().strip("'") for line in found}
    assert "No pod with a GPU request is pending." in texts
    assert "No node offers GPUs." in texts
    assert not [line for line in found if "Pages of nodes" in line]
    assert list(browsing) == []


def test_pages_before_the_first_read() -> None:
    """The login form, again with the reason; a page that has nothing to show yet."""
    raw = FakeCluster().json().encode()
    feed = Feed(lambda: decode(raw), DEFAULT_NAMES, interval_seconds=3600)
    client = TestClient(make_app(feed, FakeReviewer()))
    for name, reply in (
        ("login", client.get("/login")),
        ("login-refused", client.post("/login", data={"token": "wrong"})),
        ("not-read-yet", client.get("/", headers={"Authorization": "Bearer right"})),
    ):
        compare(name, reply.text)
    client.close()


@pytest.fixture(scope="module")
def attacked() -> Iterator[TestClient]:
    """In front of a snapshot whose every name and text is markup; an API server has no such."""
    cluster = FakeCluster()
    gpu = Gpu(15, HOSTILE)
    cluster.node(HOSTILE, address=HOSTILE, gpus=[gpu, gpu])
    cluster.pod(HOSTILE, 3, node=HOSTILE, index=0, namespace=HOSTILE)
    cluster.pod("known", 3, node=HOSTILE, index=HOSTILE)
    condition = {"type": "PodScheduled", "status": "False", "message": HOSTILE}
    cluster.pod(
        "waiting", 40, phase="Pending", namespace=HOSTILE, status={"conditions": [condition]}
    )
    gates = {"schedulingGates": [{"name": HOSTILE}], "schedulerName": HOSTILE}
    cluster.pod("gated", 4, phase="Pending", spec=gates)
    yield from served(cluster, history(HOSTILE, 2, namespace=HOSTILE, container=HOSTILE))


QUOTED = quote(HOSTILE)
ATTACKED = {
    "/": 4,
    f"/?q={QUOTED}&sort={QUOTED}": 1,
    f"/nodes/{QUOTED}": 9,
    "/nodes/unknown-%3Cscript%3E": 1,
    "/pods": 2,
    f"/pods/{QUOTED}/{QUOTED}": 3,
    f"/pods/{QUOTED}/waiting": 3,
    "/pods/default/known": 1,
    "/pods/default/gated": 2,
    f"/sizes?q={QUOTED}": 3,
    f"/whatif?mem={QUOTED}&like={QUOTED}": 2,
    f"/whatif?mem=4&replicas=2&add=1&like={QUOTED}": 3,
    f"/whatif?mem=4&add=1&like=x{QUOTED}": 3,
}
"""Pages, and how many texts or attributes of each have the script at least."""


@pytest.mark.parametrize("path", ATTACKED)
def test_hostile_names_are_text_on_every_page(attacked: TestClient, path: str) -> None:
    """Whatever a pod, a node or an address is called, a page has its own scripts and no other."""
    text = attacked.get(path).text
    lines = [line.strip() for line in elements(text)]
    scripts = [line for line in lines if line.startswith("<script>")]
    own = ("/static/live.js", "/static/map.js")
    assert scripts == [f"<script> src='{path}' defer" for path in own]
    hostile = [line for line in lines if "<script>" in line and not line.startswith("<script>")]
    assert len(hostile) >= ATTACKED[path]
