"""The reference pages are what their generators write now."""

import re
from pathlib import Path

import commandpage
import eventpage
import metricpage
import namepage
import sizesexample

ROOT = Path(__file__).parents[2]
EVENT = re.compile(r'"((?:Gpu|Mps)[A-Z][A-Za-z]+)"')
TYPES = {"GpuIndex", "GpuUuid"}
"""Names of types, which look like an event's reason."""


def test_every_flag_of_every_program_is_on_its_page_as_it_is() -> None:
    """docs/reference/commands.md is what `python docs/generators/commandpage.py` writes."""
    assert commandpage.PAGE.read_text() == commandpage.page()


def test_every_name_on_the_cluster_is_on_its_page_with_a_word_about_it() -> None:
    """docs/reference/names.md is what `python docs/generators/namepage.py` writes."""
    assert namepage.PAGE.read_text() == namepage.page()


def test_every_event_and_every_answer_of_a_node_is_on_its_page() -> None:
    """docs/reference/events.md is what `python docs/generators/eventpage.py` writes."""
    assert eventpage.PAGE.read_text() == eventpage.page()


def test_every_metric_of_the_services_is_on_its_page() -> None:
    """docs/metrics.md is what `python docs/generators/metricpage.py` writes."""
    assert metricpage.PAGE.read_text() == metricpage.page()


def test_the_example_of_sizes_is_what_its_generator_writes() -> None:
    """docs/examples/sizes.json is what `python docs/generators/sizesexample.py` writes."""
    assert sizesexample.FILE.read_text() == sizesexample.text()


def test_no_event_of_the_services_is_without_words() -> None:
    """Reasons have the form Gpu or Mps and what happened, as a constant in a module."""
    folders = (
        "services/deviceplugin/src",
        "services/extender/src",
        "libs/gpucore/src",
        "libs/gpukube/src",
        "libs/gpuprobe/src",
        "services/inspect/src/gpuinspect/defrag",
        "services/inspect/src/gpuinspect/idle",
        "services/inspect/src/gpuinspect/verify",
    )
    sources = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    found = {reason for path in sources for reason in EVENT.findall(path.read_text())}
    assert found - TYPES == set(eventpage.EVENTS)


def test_the_page_of_commands_knows_each_command_that_help_lists() -> None:
    """The walk over the command tree leaves none out."""
    text = commandpage.PAGE.read_text()
    headings = set(re.findall(r"^## (\S.*)$", text, re.MULTILINE))
    expected = {"gpushare inspect", "gpushare top node", "gpushare explain pod", "gpushare doctor"}
    assert expected <= headings
    assert {"gpushare-extender", "gpushare-device-plugin"} <= headings
