"""What claims consume, by the events of a watch."""

import pytest

from environments.consumption import Consumption
from environments.kubectl import Object


def event(kind: str, uid: str, **gib: int) -> Object:
    """An event of a claim that consumes memory of these GPUs of one node."""
    results = [
        {"pool": "n", "device": device, "consumedCapacity": {"memory": f"{amount}Gi"}}
        for device, amount in gib.items()
    ]
    status = {"allocation": {"devices": {"results": results}}} if results else {}
    return {"type": kind, "object": {"metadata": {"uid": uid}, "status": status}}


def test_the_most_at_any_event_is_kept_after_the_claims_have_ended() -> None:
    """So a GPU that was over its capacity for one event is noticed."""
    found = Consumption()
    for each in (event("ADDED", "a", x=9), event("ADDED", "b", x=8, y=1), event("DELETED", "a")):
        found.take(each)
    found.take(event("MODIFIED", "b"))
    assert found.most == {"n/x": 17, "n/y": 1}
    assert (found.total, found.events, found.allocated) == (0, 4, {"a", "b"})


def test_a_claim_counts_once_however_often_it_changes() -> None:
    """Its latest state replaces the one before."""
    found = Consumption()
    for amount in (4, 4, 6):
        found.take(event("MODIFIED", "a", x=amount))
    assert (found.most, found.total) == ({"n/x": 6}, 6)


def test_an_error_of_the_watch_is_no_event() -> None:
    """What follows it would be incomplete."""
    with pytest.raises(ValueError, match="too old"):
        Consumption().take({"type": "ERROR", "object": {"message": "too old"}})
