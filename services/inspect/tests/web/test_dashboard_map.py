"""The map of 1,332 GPUs in a real Chromium: keyboard, pointer, phone, and the choice of a cell."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from largecluster import GPUS, large_cluster

pytestmark = pytest.mark.slow

HEIGHT = 2500
"""Pixels of the page at most, at any width; rows of fifty nodes took up to 17,000."""
FOCUSED = "document.activeElement.value"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory, serving: Callable[..., Any]) -> Iterator[str]:
    """Where ``gpushare dashboard --snapshot`` serves the large cluster."""
    path = tmp_path_factory.mktemp("page") / "cluster.json"
    path.write_text(large_cluster().json())
    with serving("--snapshot", str(path)) as url:
        yield url


@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (1200, "dark"), (360, "light")])
def test_the_page_is_bounded_in_height_and_width(
    window: Callable[..., Any],
    address: str,
    keep: Callable[..., None],
    width: int,
    scheme: str,
) -> None:
    """Every GPU is on it, and nothing scrolls sideways."""
    page = window(f"{address}/?gib=24", width=width, scheme=scheme)
    assert page.locator(".cells button").count() == GPUS
    root = "document.documentElement"
    assert page.evaluate(f"{root}.scrollHeight") < HEIGHT
    assert page.evaluate(f"{root}.scrollWidth") <= width
    keep(page, f"map-{width}-{scheme}")


def test_arrow_keys_move_between_cells_and_one_is_a_tab_stop(
    window: Callable[..., Any], address: str
) -> None:
    """Left, right, up, down and the ends; the line above the map has the figures of the cell."""
    page = window(f"{address}/?by=pool")
    assert page.locator('.cells button[tabindex="0"]').count() == 1
    page.locator('.cells button[tabindex="0"]').focus()
    page.keyboard.press("ArrowRight")
    assert page.evaluate(FOCUSED) == "gpu-node-0000/1"
    assert page.locator(".detail").inner_text().startswith("gpu-node-0000 GPU1, NVIDIA A100")
    first = page.evaluate("document.activeElement.getBoundingClientRect().x")
    page.keyboard.press("ArrowDown")
    assert page.evaluate(FOCUSED) != "gpu-node-0000/1"
    assert abs(page.evaluate("document.activeElement.getBoundingClientRect().x") - first) < 1
    page.keyboard.press("ArrowUp")
    assert page.evaluate(FOCUSED) == "gpu-node-0000/1"
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert page.evaluate(FOCUSED) == "gpu-node-0000/0"
    page.keyboard.press("End")
    assert page.evaluate(FOCUSED) == "gpu-node-0197/3"
    assert page.locator('.cells button[tabindex="0"]').count() == 1


def test_a_cell_has_its_figures_as_its_name_and_shows_them_on_hover(
    window: Callable[..., Any], address: str
) -> None:
    """The name is the title, without the sign that the style sheet draws."""
    page = window(f"{address}/?q=gpu-node-0000")
    title = (
        "gpu-node-0000 GPU1, NVIDIA A100-SXM4-80GB: 10 of 80 GiB allocated, use unknown, healthy"
    )
    cell = page.get_by_role("button", name=title)
    assert cell.get_attribute("title").startswith(title)
    cell.hover()
    assert page.locator(".detail").inner_text() == cell.get_attribute("title")


def test_a_chosen_cell_shows_its_node_below(
    window: Callable[..., Any], address: str, keep: Callable[..., None]
) -> None:
    """Enter on a cell leads to its row, and keeps the other choices."""
    page = window(f"{address}/?show=health&gib=24")
    page.locator('.cells button[value="gpu-node-0007/3"]').focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/?show=health&gib=24&at=gpu-node-0007%2F3#chosen")
    page.get_by_role("heading", name="GPU3 of node gpu-node-0007").wait_for()
    assert page.locator("section.node").count() == 1
    assert page.locator('[aria-pressed="true"]').get_attribute("value") == "gpu-node-0007/3"
    keep(page, "map-chosen")


def test_the_form_lights_where_a_size_fits(window: Callable[..., Any], address: str) -> None:
    """By keyboard alone: type the size, press Enter."""
    page = window(address)
    page.get_by_label("Where do GiB fit").fill("70")
    page.keyboard.press("Enter")
    page.get_by_text("A share of 70 GiB fits now on").wait_for()
    lit = page.locator(".cells button.fits")
    assert 0 < lit.count() < GPUS
    sign = "cell => getComputedStyle(cell, '::before').content"
    assert "✓" in lit.first.evaluate(sign)


CONTRASTS = """() => {
  const light = (text) => {
    const parts = text.match(/[0-9.]+/g).slice(0, 3).map((part) => part / 255)
      .map((part) => part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
  };
  const cells = document.querySelector(".cells");
  const found = {};
  const names = [...Array(11).keys()].map((i) => `p${i}`).concat(
    [...Array(8).keys()].map((i) => `n${i}`), ["h0", "h1", "h2", "h3", "u"]);
  for (const name of names) {
    const cell = cells.firstElementChild.cloneNode();
    cell.className = name;
    cells.append(cell);
    const style = getComputedStyle(cell);
    const pair = [light(style.color), light(style.backgroundColor)].sort((a, b) => b - a);
    found[name] = (pair[0] + 0.05) / (pair[1] + 0.05);
  }
  return found;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_signs_stand_out_on_every_colour(
    window: Callable[..., Any], address: str, scheme: str
) -> None:
    """The contrast of 4.5 that WCAG 2 requires of text at level AA."""
    found = window(address, scheme=scheme).evaluate(CONTRASTS)
    assert len(found) == 24
    assert {name: ratio for name, ratio in found.items() if ratio < 4.5} == {}
