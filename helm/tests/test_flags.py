"""The chart speaks to the programs in flags that they know."""

import functools
import io
import sys
from contextlib import redirect_stdout
from importlib.metadata import entry_points

import pytest
from charting import Object, render

ALL: Object = {
    "webhook": {"enabled": True, "sizing": {"enabled": True}},
    "devicePlugin": {"numaHints": True, "hostProcesses": True},
    "driverLimits": {"enabled": True, "cgroupParent": "/kubelet"},
    "isolation": {"default": "auto"},
    "mps": {"enabled": True, "default": "mps", "multiUser": True},
}
PROGRAMS = {
    "extender": "gpushare-extender",
    "webhook": "gpushare-extender",
    "device-plugin": "gpushare-device-plugin",
}


@functools.cache
def known(program: str) -> str:
    """The help of a program on its flags."""
    (command,) = entry_points(group="console_scripts", name=program)
    output = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(output):
        patch.setattr(sys, "argv", [program, "--help"])
        with pytest.raises(SystemExit, match=r"^0$"):
            command.load()()
    return output.getvalue()


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["second", "extender"])
def test_every_flag_is_known_to_its_program(mode: str) -> None:
    """No container of the chart dies of a flag that its program has lost or never had."""
    rendered = render(values={**ALL, "scheduler": {"mode": mode}})
    seen = set()
    for _, pod in rendered.pods():
        for container in pod["containers"]:
            if container["name"] not in PROGRAMS:
                continue
            seen.add(container["name"])
            for argument in container["args"]:
                assert argument.partition("=")[0] in known(PROGRAMS[container["name"]]), argument
    assert seen == set(PROGRAMS)
