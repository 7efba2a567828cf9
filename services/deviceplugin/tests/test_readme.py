"""The table of settings in the README is the one that the code has.

``python services/deviceplugin/tests/test_readme.py`` writes it anew.
"""

from pathlib import Path

from gpudeviceplugin.command_line import settings_of
from gpudeviceplugin.settings import DevicePluginSettings

README = Path(__file__).parents[1] / "README.md"
START = "<!-- settings: written by tests/test_readme.py -->\n"
END = "<!-- end of settings -->"


def table() -> str:
    """The settings as Markdown."""
    rows = ["| Setting | Default | Meaning |", "|---|---|---|"]
    for setting in settings_of(DevicePluginSettings):
        value = setting.default
        default = "required" if setting.required else f"`{value}`" if value else ""
        rows.append(f"| `{setting.name}` | {default} | {setting.description} |")
    return "\n".join(rows) + "\n"


def rewritten(text: str) -> str:
    """The README with the table as it should be."""
    before, _, rest = text.partition(START)
    _, _, after = rest.partition(END)
    return f"{before}{START}{table()}{END}{after}"


def test_the_readme_lists_the_settings_as_they_are() -> None:
    """A new or changed setting without its line in the README fails here."""
    text = README.read_text()
    assert START in text
    assert rewritten(text) == text


if __name__ == "__main__":
    README.write_text(rewritten(README.read_text()))
