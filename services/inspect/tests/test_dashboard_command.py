"""What ``gpushare dashboard`` serves for its flags: where, for whom, and how often it reads."""

import asyncio
import os
import socket
from pathlib import Path
from typing import Any

import pytest
from drawncluster import FakeCluster
from fakeapiserver import FakeApiServer
from invoking import Run
from starlette.testclient import TestClient

from gpuinspect.cluster.claims import DEVICE_CLASSES, claim_templates
from gpuinspect.cluster.collect import CLAIM_LISTS, CONFIG_MAPS, FAILED_SCHEDULING, ListRequest
from gpuinspect.commands.admin import dashboard as command
from gpuinspect.queries.gpuhealth import GPU_HEALTH
from gpuinspect.web.feed import Feed


class Served:
    """Keeps what would be served."""

    app: Any
    config: Any
    interval: float
    wanted: Any
    made: Feed

    def listen(
        self, app: Any, configure: Any, on_listening: Any, failed: Any, _certificates: Any
    ) -> None:
        self.app, self.config = app, configure(app)
        on_listening(4321)

    def feed(
        self, read: Any, names: Any, *, interval_seconds: float, measure: Any, **more: Any
    ) -> Feed:
        self.interval, self.wanted = interval_seconds, getattr(read, "_wanted", None)
        self.names, self.measure, self.more = names, measure, more
        self.made = Feed(read, names, interval_seconds=interval_seconds, measure=measure, **more)
        return self.made


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Served:
    """Nothing listens."""
    found = Served()
    monkeypatch.setattr(command, "listen", found.listen)
    monkeypatch.setattr(command, "Feed", found.feed)
    return found


def status(served: Served, host: str) -> int:
    """The answer to a probe that names this host."""
    return TestClient(served.app).get("/healthz", headers={"Host": host}).status_code


def test_by_default_only_this_machine_is_served(
    run: Run, cluster: FakeCluster, served: Served
) -> None:
    """On the loopback address, to requests that name it; the address is printed."""
    outcome = run("dashboard", on=cluster)
    assert (outcome.code, outcome.err) == (0, "http://127.0.0.1:4321/ - stop with Ctrl-C\n")
    assert (served.config.host, served.config.port) == ("127.0.0.1", 8080)
    assert (status(served, "localhost"), status(served, "evil.example")) == (200, 421)
    assert served.interval == 5.0


def test_no_connection_and_no_stream_outlives_its_viewer(
    run: Run, cluster: FakeCluster, served: Served
) -> None:
    """A WebSocket would leave the limits of connections, whichever packages are installed.

    So would a stream whose viewer sent another request and left, with httptools.
    """
    run("dashboard", on=cluster)
    served.config.load()
    assert served.config.ws_protocol_class is None
    assert served.config.http_protocol_class.__name__ == "H11Protocol"


def test_a_snapshot_is_as_of_the_time_of_its_file(
    run: Run, cluster: FakeCluster, served: Served, tmp_path: Path
) -> None:
    """Also after the file has gone; one from standard input is as of the start."""
    path = tmp_path / "cluster.json"
    path.write_text(cluster.json())
    os.utime(path, (1000.0, 1000.0))
    run("dashboard", "--snapshot", str(path))
    assert (served.more["of_file"], served.more["clock"]()) == (True, 1000.0)
    path.unlink()
    assert served.more["clock"]() == pytest.approx(served.more["began"], abs=60)
    run("dashboard", on=cluster)
    assert served.more["clock"]() == pytest.approx(served.more["began"], abs=60)


def test_a_snapshot_on_standard_input_stays(
    run: Run,
    cluster: FakeCluster,
    served: Served,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It can be read once only; later rounds show what that read had."""

    async def refresh_twice() -> None:
        await served.made.refresh()
        await served.made.refresh()

    monkeypatch.setattr(command, "listen", lambda *_: asyncio.run(refresh_twice()))
    run("dashboard", on=cluster.node("gpu-a"))
    assert served.made.frame is not None
    assert (served.made.error, list(served.made.frame.ledger.nodes())) == ("", ["gpu-a"])


@pytest.mark.parametrize("host", ["0.0.0.0", "::", ""])
def test_another_address_is_served_to_everybody_with_a_warning(
    run: Run, cluster: FakeCluster, served: Served, host: str
) -> None:
    """Without a token check, any client and any host name is accepted."""
    flags = (f"--host={host}", "--port", "9", "--interval", "2")
    outcome = run("dashboard", *flags, on=cluster)
    assert "every client of this address can read the pods of all namespaces" in outcome.err
    assert (served.config.host, served.config.port, served.interval) == (host, 9, 2.0)
    assert status(served, "any.example") == 200
    assert TestClient(served.app).get("/", follow_redirects=False).status_code == 503


def test_with_tokens_strangers_are_sent_to_the_login(
    run: Run, served: Served, tmp_path: Path
) -> None:
    """No warning is printed."""
    with FakeApiServer({}).serving() as server:
        flags = ("--require-token", "--host", "0.0.0.0")
        outcome = run("dashboard", *flags, "--kubeconfig", str(server.kubeconfig(tmp_path)))
    assert "whoever" not in outcome.err
    answer = TestClient(served.app).get("/", follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, "/login")


def test_a_port_in_use_is_named(run: Run, cluster: FakeCluster) -> None:
    """The address is named, and the option for another port; nothing else is printed."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        outcome = run("dashboard", "--port", str(port), on=cluster)
    assert outcome.code == 1
    where = f"cannot listen on 127.0.0.1:{port}: Address already in use"
    assert outcome.err == f"error: {where}; choose another --port or --host\n"


def test_a_file_knows_no_tokens(run: Run, cluster: FakeCluster, served: Served) -> None:
    """Nothing is served then."""
    outcome = run("dashboard", "--require-token", on=cluster)
    assert outcome.code == 2
    assert "--require-token needs a cluster" in outcome.err
    assert not hasattr(served, "app")


MIX = ListRequest(
    "ConfigMap", "/api/v1/namespaces/own/configmaps", {"fieldSelector": "metadata.name=mix"}
)
CLAIMS = (*CLAIM_LISTS, DEVICE_CLASSES, claim_templates(""))


@pytest.mark.parametrize(
    ("flags", "wanted"),
    [
        ((), (FAILED_SCHEDULING, GPU_HEALTH, *CLAIMS)),
        (("--unhealthy-configmaps",), (CONFIG_MAPS, FAILED_SCHEDULING, GPU_HEALTH, *CLAIMS)),
        (("--mix-history=own/mix",), (MIX, FAILED_SCHEDULING, GPU_HEALTH, *CLAIMS)),
    ],
)
def test_config_maps_are_read_only_where_requested(
    run: Run, served: Served, tmp_path: Path, flags: tuple[str, ...], wanted: Any
) -> None:
    """The account of the dashboard may not have the right."""
    with FakeApiServer({}).serving() as server:
        run("dashboard", *flags, "--kubeconfig", str(server.kubeconfig(tmp_path)))
    assert served.wanted == wanted


@pytest.mark.parametrize("where", ["mix", "own/", "own/mix/x", "../own/mix"])
def test_the_config_map_of_the_mix_has_a_namespace_and_a_name(
    run: Run, cluster: FakeCluster, served: Served, where: str
) -> None:
    """Nothing else becomes part of a path; nothing is served then."""
    outcome = run("dashboard", f"--mix-history={where}", on=cluster)
    assert (outcome.code, hasattr(served, "app")) == (2, False)
    assert "--mix-history is NAMESPACE/NAME" in outcome.err


def test_names_of_the_cluster_are_those_of_the_flags(
    run: Run, cluster: FakeCluster, served: Served
) -> None:
    """Another resource domain and annotation prefix."""
    run("dashboard", "--resource-domain=example.com", "--annotation-prefix=X", on=cluster)
    assert (served.names.gpu_mem, served.names.mem_idx) == ("example.com/gpu-mem", "X_GPU_MEM_IDX")
