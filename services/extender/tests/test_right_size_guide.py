"""The guide to the right size shows the pod that the webhook creates from its example."""

import json
import re
from pathlib import Path

import yaml
from sizingside import OPT_IN, SizingSide, replica

from gpucore.sizing.history_documents import decode_histories

DOCS = Path(__file__).parents[3] / "docs"
FENCE = re.compile(r"^```yaml\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)


def test_the_webhook_gives_the_pod_of_the_guide_the_fields_that_it_shows() -> None:
    """From the histories of the example, in a namespace with the annotations of the page."""
    items = json.loads((DOCS / "examples" / "sizes.json").read_text())["items"]
    (document,) = [each for each in items if each["kind"] == "UsageHistoryList"]
    histories = decode_histories(json.dumps(document).encode())
    (shown,) = FENCE.finditer((DOCS / "guides" / "right-size.md").read_text())
    expected = yaml.safe_load(shown["text"])
    side = SizingSide(*histories, gpus=(22, 22))
    side.listed({"research": {**OPT_IN, "gpushare/sizing-min": "6"}})
    item = replica(16, owner="chat")
    item["spec"]["containers"][0]["name"] = "main"
    created = side.created(item, "research")
    assert created["metadata"]["annotations"] == expected["metadata"]["annotations"]
    (box,) = created["spec"]["containers"]
    assert [{"name": box["name"], "resources": box["resources"]}] == expected["spec"]["containers"]
