"""The dashboard as its Deployment serves it: from its image, in the cluster, to token holders."""

import json
import re
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from base64 import b64decode
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from environments.case import Case
from environments.environment import Environment
from environments.forwarding import forwarded
from environments.waiting import until

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).resolve().parents[2]
BROWSER = ROOT / "services" / "inspect" / "tests" / "web" / "chromium.py"
PAGE = "gpushare-dashboard"
DEADLINE_MS = 300_000
IN_USE = r", \d+\.\d in use"


@dataclass(frozen=True)
class DashboardClient:
    """A client of the dashboard that trusts the authority of its secret and no other.

    Attributes:
        url: of the dashboard on this machine.
        trusted: TLS context with the authority that must have signed its certificate.
    """

    url: str
    trusted: ssl.SSLContext

    def get(self, path: str = "/", token: str = "") -> tuple[int, str]:
        """Status and text of a page, redirects followed."""
        head = {"Authorization": f"Bearer {token}"} if token else {}
        request = urllib.request.Request(f"{self.url}{path}", headers=head)
        try:
            with urllib.request.urlopen(request, timeout=60, context=self.trusted) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as refused:
            return refused.code, refused.read().decode()


@pytest.fixture
def site(environment: Environment) -> Iterator[DashboardClient]:
    """The dashboard of the stack, by a forwarded port."""
    secret = environment.kubectl.json("get", "secret", PAGE, "-n", environment.namespace)
    authority = b64decode(secret["data"]["ca.crt"]).decode()
    with forwarded(environment.kubectl, environment.namespace, PAGE, 443) as place:
        yield DashboardClient(f"https://{place}", ssl.create_default_context(cadata=authority))


@pytest.fixture
def token(case: Case) -> Iterator[str]:
    """Of an account of the case that may see everything and change nothing."""
    account = {"kind": "ServiceAccount", "name": "viewer", "namespace": case.name}
    role = {"kind": "ClusterRole", "name": "view", "apiGroup": "rbac.authorization.k8s.io"}
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": case.name},
        "roleRef": role,
        "subjects": [account],
    }
    case.kubectl("create", "serviceaccount", "viewer", "-n", case.name)
    case.kubectl.apply(binding)
    try:
        until("it may look", lambda: may_look(case, "viewer"))
        yield requested(case, "viewer")
    finally:
        case.kubectl("delete", "clusterrolebinding", case.name)


def may_look(case: Case, account: str) -> bool:
    """The API server has taken in that an account of the case may see pods."""
    who = f"--as=system:serviceaccount:{case.name}:{account}"
    return case.kubectl.attempt("auth", "can-i", "list", "pods", "-A", who).stdout.strip() == "yes"


def requested(case: Case, account: str) -> str:
    """A token of an account of the case, from the API server."""
    path = f"/api/v1/namespaces/{case.name}/serviceaccounts/{account}/token"
    question = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    answer = case.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(question))
    return str(json.loads(answer)["status"]["token"])


def test_the_map_shows_the_real_nodes_and_pods(
    environment: Environment, case: Case, small: str, site: DashboardClient, token: str
) -> None:
    """Every node with its GPUs; a pod on the GPU that it was given, with its units.

    Memory in use comes from the device plugins, with the rights of the dashboard.
    """
    case.create_running(case.pod("three", 3, node=small))
    title = f"{case.name}/three: 3"

    def shown() -> str | None:
        with suppress(urllib.error.URLError, ConnectionError):
            _, page = site.get(token=token)
            return page if title in page and re.search(IN_USE, page) else None
        return None

    text = until("the pod on the map, and memory in use", shown)
    for node, gpus in environment.nodes.items():
        assert f'href="/nodes/{node}"' in text
        totals = [rf"/{gpu.units}{IN_USE} on {node}" for gpu in gpus]
        assert all(re.search(total, text) for total in totals)
    home = case.gpu("three")
    units = environment.nodes[small][home].units
    assert re.search(rf"GPU{home} 3/{units}{IN_USE} on {small}", text)
    status, pod = site.get(f"/pods/{case.name}/three", token)
    assert status == 200
    assert f"GPU {home} of node {small}" in pod


def test_who_may_not_list_pods_may_not_look(case: Case, site: DashboardClient) -> None:
    """Without a token there is the form; a token of an account without rights is refused."""
    assert "Log in" in site.get()[1]
    assert site.get("/events")[0] == 401
    assert site.get(token=requested(case, "default"))[0] == 403


def test_its_account_can_read_and_nothing_else(environment: Environment) -> None:
    """The API server lists what the dashboard's account may do, and what it may not."""
    account = f"--as=system:serviceaccount:{environment.namespace}:{PAGE}"

    def may(verb: str, what: str) -> bool:
        answer = environment.kubectl.attempt("auth", "can-i", verb, what, "-A", account)
        return answer.stdout.strip() == "yes"

    assert all(may("list", what) for what in ("nodes", "pods", "events"))
    changing = ("create", "update", "patch", "delete")
    kinds = ("nodes", "pods", "pods/binding", "events", "configmaps", "deployments")
    assert [(verb, kind) for verb in changing for kind in kinds if may(verb, kind)] == []
    assert [kind for kind in ("secrets", "configmaps") if may("list", kind)] == []


@pytest.fixture
def page(site: DashboardClient) -> Iterator[Any]:
    """A window of a real Chromium, whose complaints fail the test."""
    found = subprocess.run(
        [sys.executable, BROWSER], capture_output=True, text=True, check=True, timeout=600
    )
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - slow, and only needed here

    complaints: list[str] = []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=found.stdout.strip(), args=["--no-sandbox"]
        )
        # Chromium cannot be given an authority; who answers is checked by the other cases.
        window = browser.new_page(viewport={"width": 1200, "height": 800}, ignore_https_errors=True)
        window.set_default_timeout(DEADLINE_MS)
        window.on("pageerror", lambda error: complaints.append(str(error)))
        window.goto(site.url)
        yield window
        browser.close()
    assert complaints == []


def test_a_browser_sees_a_pod_come_without_a_reload(
    case: Case, small: str, page: Any, token: str
) -> None:
    """After the log-in the event stream brings the new pod onto the map; a picture is kept."""
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Log in").click()
    page.get_by_text("Live", exact=True).wait_for()
    page.evaluate("window.loadedOnce = true")
    case.create_running(case.pod("fresh", 5, node=small))
    page.get_by_label(f"{case.name}/fresh: 5").wait_for()
    assert page.evaluate("window.loadedOnce") is True
    folder = ROOT / "artifacts"
    folder.mkdir(exist_ok=True)
    page.screenshot(path=folder / "dashboard-cluster.png", full_page=True)
    assert (folder / "dashboard-cluster.png").stat().st_size > 5_000
