"""Feature gates of a run, from the environment."""

import pytest

from host.errors import SetupError
from host.featuregates import feature_gates


def test_gates_are_read_in_the_form_of_the_flag() -> None:
    """On and off; none without the variable."""
    assert feature_gates("AllBeta=true,Other=false") == {"AllBeta": True, "Other": False}
    assert feature_gates("") == {}


@pytest.mark.parametrize("text", ["AllBeta", "AllBeta=yes", "=true", "A b=true"])
def test_another_form_is_refused_by_name(text: str) -> None:
    """Before any cluster is made."""
    with pytest.raises(SetupError, match="GPUSHARE_FEATURE_GATES: '"):
        feature_gates(text)
