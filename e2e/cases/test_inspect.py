"""What people see through ``kubectl inspect gpushare``."""

import pytest

from environments import table
from environments.case import Case
from environments.environment import Environment
from environments.waiting import until

pytestmark = pytest.mark.e2e


def test_the_summary_has_the_original_layout_and_true_numbers(
    environment: Environment, case: Case, small: str
) -> None:
    """Columns, cells, dashes and the cluster's line as in the original; figures as placed."""
    case.create_running(case.pod("three", 3, node=small))
    until("three units in use", lambda: table.used(environment, small) == 3)
    text = table.inspect(environment)
    lines = text.splitlines()

    widest = max(len(gpus) for gpus in environment.nodes.values())
    heads = [f"GPU{i}(Allocated/Total)" for i in range(widest)]
    assert lines[0].split() == ["NAME", "IPADDRESS", *heads, "GPU", "Memory(GiB)"]

    found = table.rows(text)
    assert list(found) == sorted(environment.nodes)
    for node, gpus in environment.nodes.items():
        totals = [gpu.units for gpu in gpus] + [0] * (widest - len(gpus))
        assert [total for _, total in found[node].gpus] == totals
        assert found[node].total[1] == sum(totals)
    home = case.gpu("three")
    assert found[small].gpus[home] == (3, environment.nodes[small][home].units)

    dashes = next(line for line in lines if line.startswith("---"))
    assert set(dashes) == {"-"}
    every = sum(gpu.units for gpus in environment.nodes.values() for gpu in gpus)
    assert lines[lines.index(dashes) + 1] == "Allocated/Total GPU Memory In Cluster:"
    assert lines[lines.index(dashes) + 2] == f"3/{every} ({300 // every}%)  "


def test_the_details_name_every_pod_with_its_units(
    environment: Environment, case: Case, small: str
) -> None:
    """``-d NODE`` lists the pods of the node, GPU by GPU, and sums them."""
    case.create_running(case.pod("three", 3, node=small), case.pod("four", 4, node=small))
    until("seven units in use", lambda: table.used(environment, small) == 7)
    lines = table.inspect(environment, "-d", small).splitlines()
    assert [line.split()[1] for line in lines if line.startswith("NAME:")] == [small]
    pods = {line.split()[0]: line.split()[1:] for line in lines if case.name in line}
    assert pods == {
        "three": [case.name, "3", "0"],
        "four": [case.name, "4", "0"],
    }
    total = sum(gpu.units for gpu in environment.nodes[small])
    assert any(line.split() == ["Allocated", ":", "7", f"({700 // total}%)"] for line in lines)
    assert any(line.split() == ["Total", ":", str(total)] for line in lines)
