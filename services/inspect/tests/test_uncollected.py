"""Reading a cluster without garbage collection, and with it again afterwards."""

import gc

import pytest

from gpuinspect.cluster.snapshots import uncollected, uncollected_for_good
from gpuinspect.errors import SnapshotError


def decode_failure() -> None:
    """What a reader of a broken file raises."""
    raise SnapshotError("no such file")


def test_collection_comes_back() -> None:
    """It is off inside and on again after, also when reading failed."""
    assert gc.isenabled()
    with uncollected():
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(SnapshotError), uncollected():
        decode_failure()
    assert gc.isenabled()


def test_who_has_switched_it_off_keeps_it_off() -> None:
    """A process that runs without collection goes on so."""
    gc.disable()
    try:
        with uncollected():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_what_a_command_keeps_is_looked_through_by_no_collection() -> None:
    """It is in the generation that the collector leaves alone, and collection is on again."""
    before = gc.get_freeze_count()
    try:
        with uncollected_for_good():
            kept = [[each] for each in range(1000)]
        assert gc.get_freeze_count() - before >= len(kept)
        assert gc.isenabled()
    finally:
        gc.unfreeze()
