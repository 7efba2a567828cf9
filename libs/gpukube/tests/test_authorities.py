"""The client of the API server carries no authorities that it never uses."""

import os
import ssl
import subprocess
import sys

import pytest

from gpukube.authorities import VARIABLE, no_public_authorities
from gpukube.proxies import proxy_for
from gpukube.session import Session


@pytest.mark.slow
def test_the_import_of_the_client_loads_no_public_authority() -> None:
    """The contexts that aiohttp makes for itself are empty, and the environment is as before."""
    program = (
        "import os, gpukube.session; from aiohttp import connector;"
        "context = connector._SSL_CONTEXT_VERIFIED;"
        f"print(context.cert_store_stats()['x509_ca'], os.environ.get('{VARIABLE}'))"
    )
    environment = {name: text for name, text in os.environ.items() if name != VARIABLE}
    found = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        check=True,
        text=True,
        timeout=60,
    )
    assert found.stdout.split() == ["0", "None"]


def test_a_variable_that_is_set_has_its_value_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """An import meanwhile finds an empty file."""
    monkeypatch.setenv(VARIABLE, "/etc/authorities.pem")
    with no_public_authorities():
        assert os.environ[VARIABLE] == os.devnull
    assert os.environ[VARIABLE] == "/etc/authorities.pem"


@pytest.mark.parametrize(
    ("proxy", "own"), [(None, False), ("http://proxy:80", False), ("https://proxy:443", True)]
)
async def test_a_proxy_with_tls_is_verified_where_the_api_server_has_no_tls(
    proxy: str | None, own: bool
) -> None:
    """By the public authorities, which aiohttp's own context no longer has."""
    found = proxy_for("http://server", proxy)
    session = Session("http://server", None, proxy=found, seconds=1)
    try:
        context = session._session.connector._ssl
        assert isinstance(context, ssl.SSLContext) is own
    finally:
        await session.close()
