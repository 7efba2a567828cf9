"""What a person reads when the API server cannot be read: what, where, and the next step."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from drawncluster import FakeCluster
from invoking import Run

from gpuinspect.cluster.current_context import CurrentContext
from gpuinspect.diagnosis import diagnosed
from gpukube.errors import UnreachableError
from gpukube.testing.certificates import make_certificate

pytestmark = pytest.mark.slow

NODES = 'nodes is forbidden: User "anna" cannot list resource "nodes" in API group "" at the'
PODS = 'pods is forbidden: User "anna" cannot list resource "pods" in API group "" in the namespace'


class Case(NamedTuple):
    """A reply on the wire, and words of the three lines."""

    reply: bytes
    what: str
    step: str


def http(status: str, body: str) -> bytes:
    """A whole reply."""
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode()


def failure(status: str, message: str) -> bytes:
    """A reply with a ``v1.Status``."""
    text = message.replace('"', '\\"')
    return http(status, f'{{"kind": "Status", "message": "{text}"}}')


REPLIES = {
    "401": Case(
        failure("401 Unauthorized", "Unauthorized"),
        "the API server does not accept the credentials",
        "log in again: the credentials of user me",
    ),
    "403 of nodes": Case(
        failure("403 Forbidden", f"{NODES} cluster scope"),
        "a right is missing: GET /api/v1/nodes: 403 nodes is forbidden",
        "kubectl create clusterrolebinding NAME --clusterrole=gpushare-viewer --user=anna",
    ),
    "403 of a namespace": Case(
        failure("403 Forbidden", f'{PODS} "team"'),
        "a right is missing",
        "kubectl create rolebinding NAME --clusterrole=gpushare-viewer --user=anna -n team",
    ),
    "403 by a webhook": Case(
        failure("403 Forbidden", "no"),
        "a right is missing: GET /api/v1/nodes: 403 no",
        "ask an administrator",
    ),
    "503": Case(
        failure("503 Service Unavailable", "boom"),
        "the API server failed: GET /api/v1/nodes: 503 boom",
        "try again in a minute",
    ),
    "a web page": Case(
        http("200 OK", "<html>Sign in</html>"),
        "not the API server; it is a web page",
        "except it from the proxy with NO_PROXY",
    ),
    "a web page with 502": Case(
        http("502 Bad Gateway", "<!DOCTYPE html><h1>502</h1>"),
        "not the API server; it is a web page",
        "except it from the proxy with NO_PROXY",
    ),
    "a redirection": Case(
        http("302 Found", ""), "what answers is not the API server", "the server's address"
    ),
    "TLS wanted": Case(
        http("400 Bad Request", "Client sent an HTTP request to an HTTPS server.\n"),
        "the port speaks TLS, but the kubeconfig uses http: GET /api/v1/nodes: 400 Client sent",
        "write https://",
    ),
    "no HTTP": Case(b"SSH-2.0-x\r\n", "the port does not speak HTTP", "address and port"),
    "429": Case(
        failure("429 Too Many Requests", "wait"),
        "the API server is overloaded: GET /api/v1/nodes: 429 wait",
        "try again in a minute",
    ),
    "cut": Case(
        http("200 OK", "{}").replace(b"Length: 2", b"Length: 9"),
        "the connection was closed before the reply was complete: GET /api/v1/nodes: incomplete",
        "try again",
    ),
    "a cut chunk": Case(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\n{",
        "the connection was closed before the reply was complete: GET /api/v1/nodes: incomplete",
        "try again",
    ),
    "closed": Case(b"", "the connection was closed before a reply came", "https"),
}


@contextmanager
def answering(reply: bytes) -> Iterator[int]:
    """The port of a server that answers everything with these bytes."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=_answer, args=(server, reply))
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            with socket.create_connection(server.getsockname()) as last:
                last.sendall(b"END\r\n\r\n")
            thread.join(60)


def _answer(server: socket.socket, reply: bytes) -> None:
    while True:
        connection, _ = server.accept()
        with connection:
            connection.settimeout(60)
            request = connection.recv(4096)
            if request.startswith(b"END"):
                return
            connection.sendall(reply)


@contextmanager
def refusing() -> Iterator[int]:
    """A port that is taken, so that no other program is given it, and on which nothing listens."""
    with socket.socket() as idle:
        idle.bind(("127.0.0.1", 0))
        yield int(idle.getsockname()[1])


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Path]:
    """Writes a kubeconfig for a server."""

    def write(server: str, **cluster: Any) -> Path:
        path = tmp_path / "kubeconfig"
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "lab",
            "contexts": [{"name": "lab", "context": {"cluster": "it", "user": "me"}}],
            "clusters": [{"name": "it", "cluster": {"server": server, **cluster}}],
            "users": [{"name": "me", "user": {"token": "secret-token"}}],
        }
        path.write_text(yaml.safe_dump(config), encoding="utf-8")
        return path

    return write


def check(run: Run, config: Path, *, what: str, step: str, server: str, words: str) -> None:
    """The command fails with the three lines, and reports no secret."""
    outcome = run(*words.split(), f"--kubeconfig={config}", "--request-timeout=60")
    assert (outcome.code, outcome.out) == (1, "")
    first, place, last = outcome.err.splitlines()
    assert first.startswith("error: ")
    assert what in first
    assert place == f"  where: server {server}, context lab, user me, kubeconfig {config}"
    assert last.startswith("  next: ")
    assert step in last
    assert "secret-token" not in outcome.err


@pytest.mark.parametrize("words", ["inspect", "watch --count=1"])
@pytest.mark.parametrize("name", ["401", "403 of nodes"])
def test_missing_rights(run: Run, written: Callable[..., Path], name: str, words: str) -> None:
    """Every reading command ends with exit code 1, ``watch`` too."""
    case = REPLIES[name]
    with answering(case.reply) as port:
        server = f"http://127.0.0.1:{port}"
        config = written(server)
        check(run, config, what=case.what, step=case.step, server=server, words=words)


@pytest.mark.parametrize("name", REPLIES)
def test_replies(run: Run, written: Callable[..., Path], name: str) -> None:
    """Each reply that is no list is distinguished, with where it came from and what to do."""
    case = REPLIES[name]
    with answering(case.reply) as port:
        server = f"http://127.0.0.1:{port}"
        config = written(server)
        check(run, config, what=case.what, step=case.step, server=server, words="inspect")


def test_a_refused_port(run: Run, written: Callable[..., Path]) -> None:
    """Nothing listens: reported in plain words."""
    what, step = "nothing listens at the address", "check that the cluster runs"
    with refusing() as port:
        server = f"https://127.0.0.1:{port}"
        check(run, written(server), what=what, step=step, server=server, words="inspect")


def test_an_unknown_name(run: Run, written: Callable[..., Path]) -> None:
    """A server whose name DNS cannot resolve."""
    server, what = "https://nosuch.invalid:6443", "the name of the API server is unknown to DNS"
    check(run, written(server), what=what, step="VPN", server=server, words="inspect")


def test_tls_to_a_port_without(run: Run, written: Callable[..., Path]) -> None:
    """The kubeconfig specifies https, the port speaks http."""
    with answering(http("400 Bad Request", "")) as port:
        server = f"https://127.0.0.1:{port}"
        what, step = "the port does not speak TLS", "write http://"
        check(run, written(server), what=what, step=step, server=server, words="inspect")


def test_a_reply_that_does_not_come(run: Run, written: Callable[..., Path]) -> None:
    """A silent server: the option for more time is named."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        server = f"http://127.0.0.1:{silent.getsockname()[1]}"
        config = written(server)
        outcome = run("inspect", f"--kubeconfig={config}", "--request-timeout=0.2")
    assert outcome.code == 1
    assert "did not reply in time" in outcome.err
    assert "--request-timeout" in outcome.err


def test_no_kubeconfig(run: Run, tmp_path: Path) -> None:
    """The files that were tried are named."""
    outcome = run("inspect", f"--kubeconfig={tmp_path / 'none'}")
    assert outcome.code == 1
    assert f"no kubeconfig: tried {tmp_path / 'none'}" in outcome.err
    assert "set KUBECONFIG" in outcome.err


def test_several_files_of_the_environment(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each file of KUBECONFIG is named."""
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'a'}:{tmp_path / 'b'}")
    assert f"tried {tmp_path / 'a'}, {tmp_path / 'b'}" in run("inspect").err


def test_an_unknown_context(run: Run, written: Callable[..., Path]) -> None:
    """The contexts that exist are listed."""
    outcome = run("inspect", f"--kubeconfig={written('http://x')}", "--context=nope")
    assert outcome.code == 1
    assert 'the kubeconfig has no context "nope"; its contexts are: lab' in outcome.err


def test_a_kubeconfig_without_contexts(run: Run, tmp_path: Path) -> None:
    """As kind leaves it when its only cluster is deleted: no context can be chosen."""
    path = tmp_path / "config"
    path.write_text("apiVersion: v1\nkind: Config\ncontexts: null\n")
    outcome = run("inspect", f"--kubeconfig={path}")
    assert outcome.code == 1
    assert "the kubeconfig has no contexts, as after its cluster was deleted" in outcome.err
    assert "give another file with --kubeconfig or KUBECONFIG" in outcome.err


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"\xd0\xcf\x11", "is not a text file"),
        (b"a: [", "is not YAML"),
        (b"just words", "it is not a kubeconfig"),
        (b"contexts: 5", "contexts is not a list"),
        (b"clusters: {a: b}", "clusters is not a list"),
        (b"users: x", "users is not a list"),
    ],
)
def test_a_file_that_is_none(run: Run, tmp_path: Path, content: bytes, what: str) -> None:
    """The file is named, and what is wrong with it."""
    path = tmp_path / "odd"
    path.write_bytes(content)
    outcome = run("inspect", f"--kubeconfig={path}")
    assert outcome.code == 1
    assert f"the kubeconfig cannot be read: {path}" in outcome.err
    assert what in outcome.err


def test_an_untrusted_certificate(run: Run, written: Callable[..., Path], tls_port: int) -> None:
    """A server with a certificate of another authority."""
    server = f"https://127.0.0.1:{tls_port}"
    what, step = "the certificate of the API server is not trusted", "certificate-authority-data"
    check(run, written(server), what=what, step=step, server=server, words="inspect")


@pytest.mark.parametrize(
    ("reason", "what", "step"),
    [
        ("certificate has expired (_ssl.c:1006)", "is not valid now", "kubeadm certs"),
        (
            "certificate is not yet valid (_ssl.c:1006)",
            "is not valid now",
            "compare the clocks",
        ),
        (
            "IP address mismatch, certificate is not valid for '10.0.0.1'. (_ssl.c:1006)",
            "is for other addresses",
            "tls-server-name",
        ),
        ("Hostname mismatch, certificate is not valid for 'x'.", "is for other", "tls-server-name"),
        ("unable to get local issuer certificate", "is not trusted", "authority-data"),
    ],
)
def test_each_fault_of_a_certificate_has_its_own_step(reason: str, what: str, step: str) -> None:
    """Another authority in the kubeconfig helps against no expired certificate."""
    text = f"GET /: [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: {reason}"
    found = diagnosed(UnreachableError(text), CurrentContext(files=(), context=""))
    assert what in found.what
    assert step in found.step


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("explain pod wbe-0", 'pods "wbe-0" not found in namespace "default"; near: web-0'),
        ("explain pod lone", 'not found in namespace "default"; it is in namespace team'),
        ("explain pod xyz", 'pods "xyz" not found in namespace "default"'),
        ("inspect gpu-node2", 'nodes "gpu-node2" not found; near: gpu-node-2'),
        ("top node gpu-node2", 'nodes "gpu-node2" not found; near: gpu-node-2'),
    ],
)
def test_unknown_names(run: Run, cluster: FakeCluster, words: str, answer: str) -> None:
    """Near names are offered, and the namespaces that have a pod of the name."""
    cluster.node("gpu-node-2", total=15).pod("web-0", 3).pod("lone", 3, namespace="team")
    outcome = run(*words.split(), on=cluster)
    assert outcome.code == 1
    assert outcome.err.endswith(f"{answer}\n")


@pytest.fixture
def tls_port(tmp_path: Path) -> Iterator[int]:
    """The port of a server with a self-signed certificate."""
    import ssl  # noqa: PLC0415 - one test needs it

    make_certificate(tmp_path / "pair", "stranger")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "pair" / "tls.crt", tmp_path / "pair" / "tls.key")
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=_shake, args=(server, context))
        thread.start()
        yield server.getsockname()[1]
        socket.create_connection(server.getsockname()).close()
        thread.join(60)


def _shake(server: socket.socket, context: Any) -> None:
    while True:
        connection, _ = server.accept()
        with connection:
            connection.settimeout(60)
            if not connection.recv(1, socket.MSG_PEEK):
                return
            try:
                context.wrap_socket(connection, server_side=True).close()
            except OSError:
                continue
