"""Docker's daemon.json: name our runtime in it without losing what its owner wrote.

Text in, text out. It never decides whether the runtime is needed, and it writes no file.
"""

import json
from pathlib import Path

from host.errors import SetupError

RUNTIME = "gpushare-runc"


def with_runtime(text: str, *, wrapper: Path, source: Path) -> str:
    """The daemon.json `text` ("" when there is none) with our runtime as the default.

    Raises SetupError naming `source` when the text is no JSON object or chooses another default.
    """
    config = _parsed(text, source)
    runtimes = config.get("runtimes", {})
    if not isinstance(runtimes, dict):
        raise SetupError(f"the key runtimes of {source} is no JSON object; mend it and retry")
    chosen = config.get("default-runtime", RUNTIME)
    if chosen != RUNTIME:
        raise SetupError(
            f"{source} already sets its own default runtime ({chosen}); this host lacks "
            f"CAP_SYS_RESOURCE and needs {RUNTIME} ({wrapper}) there: remove the key and retry"
        )
    merged = {
        **config,
        "runtimes": {**runtimes, RUNTIME: {"path": str(wrapper)}},
        "default-runtime": RUNTIME,
    }
    return json.dumps(merged, indent=2) + "\n"


def _parsed(text: str, source: Path) -> dict[str, object]:
    try:
        config = json.loads(text or "{}")
    except ValueError as error:
        raise SetupError(f"{source} is not valid JSON ({error}); mend it and retry") from error
    if not isinstance(config, dict):
        raise SetupError(f"{source} holds no JSON object; mend it and retry")
    return config
