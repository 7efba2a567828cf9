"""The GPUs of mock machines."""

import pytest

from environments import machines
from machine.environment import MACHINE


def test_a_machine_in_qemu_has_two_gpus_by_default() -> None:
    """Their units are the whole GiB that the driver leaves."""
    assert [gpu.index for gpu in machines.gpus(MACHINE)] == [0, 1]
    assert {gpu.units for gpu in machines.gpus(MACHINE)} == {79}


def test_an_unknown_mock_machine_is_an_error_and_no_machine_without_gpus() -> None:
    """GPUSHARE_MACHINE takes the name from a person."""
    with pytest.raises(FileNotFoundError, match="dgx9-voltage"):
        machines.gpus("dgx9-voltage")
