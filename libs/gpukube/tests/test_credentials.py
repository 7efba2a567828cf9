"""The user of a kubeconfig: whom it is and whom it impersonates, as kubectl sends it."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from recordingserver import recording

from gpukube.blocking import BlockingClient
from gpukube.client import HttpKubeClient
from gpukube.errors import ConfigError, UnreachableError
from gpukube.kubeconfig import official
from gpukube.kubeconfig.finding import configuration

pytestmark = pytest.mark.slow

VERSION = "client.authentication.k8s.io/v1"


def kubeconfig(
    folder: Path, user: dict[str, Any], port: int = 1, context: dict[str, str] | None = None
) -> Path:
    """A kubeconfig with one user."""
    names = {"cluster": "c", "user": "u"} | (context or {})
    document = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": names}],
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "u", "user": user}],
    }
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(document))
    return path


def plugin(folder: Path, script: str) -> dict[str, Any]:
    """A user whose credentials a shell script prints."""
    path = folder / "plugin"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return {"exec": {"apiVersion": VERSION, "command": "./plugin", "interactiveMode": "Never"}}


def printing(status: str) -> str:
    """A script that prints a credential."""
    return f"""echo '{{"apiVersion": "{VERSION}", "kind": "ExecCredential", "status": {status}}}'"""


@pytest.mark.parametrize("as_user", ["", "me"])
async def test_a_kubeconfigs_impersonation_is_sent(tmp_path: Path, as_user: str) -> None:
    """User, UID, groups and extra fields, by both clients; ``--as`` replaces the user alone."""
    user = {
        "token": "t",
        "as": "viewer",
        "as-uid": "7",
        "as-groups": ["one", "two"],
        "as-user-extra": {"Example.com/scope": ["a", "b"]},
    }
    expected = [
        ("impersonate-extra-example.com%2fscope", "a"),
        ("impersonate-extra-example.com%2fscope", "b"),
        ("impersonate-group", "one"),
        ("impersonate-group", "two"),
        ("impersonate-uid", "7"),
        ("impersonate-user", as_user or "viewer"),
    ]
    with recording() as server:
        path = kubeconfig(tmp_path, user, server.port)
        with BlockingClient.connect(path, user_agent="t", seconds=60, as_user=as_user) as client:
            client.get("/api")
        assert server.headers("impersonate-") == expected
        expected[-1] = ("impersonate-user", "viewer")
        async with await HttpKubeClient.connect(path, user_agent="t") as api:
            await api.get("/api")
        assert server.headers("impersonate-") == expected
        assert server.headers("authorization") == [("authorization", "Bearer t")]


def test_groups_without_a_user_are_not_sent(tmp_path: Path) -> None:
    """As by kubectl, which impersonates only with a user."""
    path = kubeconfig(tmp_path, {"token": "t", "as-groups": ["one"], "as-user-extra": None})
    assert configuration(path).impersonation.headers() == []


def test_an_extra_field_without_values_is_not_sent(tmp_path: Path) -> None:
    """Other fields are."""
    extra = {"none": None, "scope": ["a"]}
    path = kubeconfig(tmp_path, {"token": "t", "as": "viewer", "as-user-extra": extra})
    expected = [("Impersonate-User", "viewer"), ("Impersonate-Extra-scope", "a")]
    assert configuration(path).impersonation.headers() == expected


@pytest.mark.parametrize("field", ["as", "as-uid"])
@pytest.mark.parametrize("value", ["vie\nwer", "vi\N{EURO SIGN}wer"])
def test_an_impersonated_user_that_no_header_takes_is_an_error(
    tmp_path: Path, field: str, value: str
) -> None:
    """At the start, and with the name of the kubeconfig's user."""
    path = kubeconfig(tmp_path, {"token": "t", "as": "viewer", field: value})
    with pytest.raises(ConfigError, match="user u: 'as' takes printable ASCII"):
        configuration(path)


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo 'login expired' >&2; exit 1", "login expired"),
        (printing("{}"), "neither a token nor a certificate"),
        (printing("null"), "neither a token nor a certificate"),
        (printing('{"clientCertificateData": "x"}'), "neither a token nor a certificate"),
        ("echo no JSON", "failed to decode"),
    ],
)
def test_a_plugin_without_a_credential_is_an_error(tmp_path: Path, script: str, words: str) -> None:
    """The program does not go on without credentials."""
    with pytest.raises(ConfigError, match=f"^getting credentials: .*{words}"):
        configuration(kubeconfig(tmp_path, plugin(tmp_path, script)))


def test_a_missing_plugin_is_an_error_with_its_hint(tmp_path: Path) -> None:
    """The hint of the kubeconfig names where to get it."""
    run = {"apiVersion": VERSION, "command": "no-such-plugin"}
    for hint, end in (({"installHint": "install it"}, ": install it"), ({}, "")):
        with pytest.raises(ConfigError, match=rf"credentials: .*no-such-plugin not found{end}$"):
            configuration(kubeconfig(tmp_path, {"exec": run | hint}))


def test_a_plugin_that_fails_later_fails_the_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that runs already gets the error that it retries, and no old credentials."""
    expired = '{"token": "t", "expirationTimestamp": "2001-01-01T00:00:00Z"}'
    found = configuration(kubeconfig(tmp_path, plugin(tmp_path, printing(expired))))
    assert found.authorization() == "Bearer t"
    (tmp_path / "plugin").write_text("#!/bin/sh\nexit 1\n")
    monkeypatch.setattr(official, "TOKEN_SECONDS", 0)
    with pytest.raises(UnreachableError, match="getting credentials: "):
        found.authorization()


@pytest.mark.parametrize("others", [{}, {"token": "stale"}, {"token": ""}])
def test_the_token_file_goes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: dict[str, str]
) -> None:
    """Without the newline at its end; it is read again, and its last token stays."""
    (tmp_path / "token").write_text("fresh\n")
    found = configuration(kubeconfig(tmp_path, {"tokenFile": "token", **others}))
    assert found.authorization() == "Bearer fresh"
    monkeypatch.setattr(official, "TOKEN_SECONDS", 0)
    (tmp_path / "token").write_text("fresher\n")
    assert found.authorization() == "Bearer fresher"
    (tmp_path / "token").write_text("\n")
    assert found.authorization() == "Bearer fresher"
    (tmp_path / "token").unlink()
    assert found.authorization() == "Bearer fresher"


def test_the_token_stands_in_for_a_missing_token_file(tmp_path: Path) -> None:
    """Where there is neither, that is an error that names the file."""
    both = {"tokenFile": "missing", "token": "t"}
    assert configuration(kubeconfig(tmp_path, both)).authorization() == "Bearer t"
    with pytest.raises(ConfigError, match=r"getting credentials: .*missing"):
        configuration(kubeconfig(tmp_path, {"tokenFile": "missing"}))
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(ConfigError, match=r"getting credentials: .*empty is empty"):
        configuration(kubeconfig(tmp_path, {"tokenFile": "empty"}))


@pytest.mark.parametrize("token", ["secret\n", "secr\ret", "secr\N{EURO SIGN}t"])
def test_a_token_that_no_header_takes_is_not_printed(tmp_path: Path, token: str) -> None:
    """The error comes before any request, and without the token."""
    with pytest.raises(ConfigError, match="getting credentials: ") as failed:
        configuration(kubeconfig(tmp_path, {"token": token}))
    assert "secr" not in str(failed.value)


def test_a_token_file_that_is_no_text_is_an_error(tmp_path: Path) -> None:
    """It names what is wrong, and no byte of the file."""
    (tmp_path / "token").write_bytes(b"\xfe\xff")
    with pytest.raises(ConfigError, match=r"an HTTP header cannot carry the token$"):
        configuration(kubeconfig(tmp_path, {"tokenFile": "token"}))


def test_a_password_goes_before_a_plugin(tmp_path: Path) -> None:
    """As for kubectl, and in UTF-8."""
    user = plugin(tmp_path, "exit 1") | {"username": "u", "password": "\N{EURO SIGN}", "token": ""}
    assert configuration(kubeconfig(tmp_path, user)).authorization() == "Basic dTrigqw="


@pytest.mark.parametrize("context", [{"user": "ghost"}, {"cluster": "ghost"}])
def test_a_context_without_its_user_or_cluster_is_an_error(
    tmp_path: Path, context: dict[str, str]
) -> None:
    """The program does not go on without credentials."""
    with pytest.raises(ConfigError, match="ghost"):
        configuration(kubeconfig(tmp_path, {"token": "t"}, context=context))


def test_an_auth_provider_without_a_token_is_an_error(tmp_path: Path) -> None:
    """One that kubectl does not know either."""
    with pytest.raises(ConfigError, match="no token from auth provider azure"):
        configuration(kubeconfig(tmp_path, {"auth-provider": {"name": "azure"}}))
