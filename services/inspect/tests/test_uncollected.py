"""Reading a cluster without garbage collection, and with it again afterwards."""

import gc

import pytest

from gpuinspect.cluster.without_gc import uncollected
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
