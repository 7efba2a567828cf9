"""The family of addresses of a test cluster."""

import pytest

from host.errors import SetupError
from host.ipfamily import ip_family


@pytest.mark.parametrize(("text", "family"), [("", "ipv4"), ("ipv4", "ipv4"), ("ipv6", "ipv6")])
def test_a_cluster_has_one_family(text: str, family: str) -> None:
    """IPv4 unless the run demands IPv6."""
    assert ip_family(text) == family


def test_another_family_is_refused() -> None:
    """Two families are none of the clusters that are made here."""
    with pytest.raises(SetupError, match="GPUSHARE_IP_FAMILY: 'dual' is neither ipv4 nor ipv6"):
        ip_family("dual")
