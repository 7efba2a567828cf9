"""The formats that ``-o`` takes."""

import pytest
from drawncluster import FakeCluster
from invoking import Run


@pytest.mark.parametrize("form", ["xml", "jsonpath={.a}", "custom-columns=A:.a"])
def test_a_format_that_does_not_exist_is_refused(run: Run, cluster: FakeCluster, form: str) -> None:
    """With exit code 2 and the formats that exist."""
    outcome = run("inspect", "-o", form, on=cluster)
    assert outcome.code == 2
    assert form in outcome.err
    assert "'table', 'wide', 'json', 'yaml', 'name'" in " ".join(outcome.err.split())
