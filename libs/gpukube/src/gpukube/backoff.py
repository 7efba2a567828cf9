"""How long to wait after a failure: exponential back-off with jitter.

The jitter is between half and all of an exponential step, so that replicas that lost the API server
together do not return together. This module reads no clock.
"""

import random
from typing import Final

FIRST_SECONDS: Final = 0.8
LAST_SECONDS: Final = 30.0
HEALTHY_SECONDS: Final = 120.0

_SOURCE: Final = random.Random()  # noqa: S311 - jitter, not a secret; seeding one takes a while


class Backoff:
    """Waits of one retried job.

    Args:
        first: length of the first step in seconds.
        last: maximum length of a step in seconds.
        healthy: seconds of success after which the next failure counts as the first.
    """

    def __init__(
        self,
        *,
        first: float = FIRST_SECONDS,
        last: float = LAST_SECONDS,
        healthy: float = HEALTHY_SECONDS,
        source: random.Random | None = None,
    ) -> None:
        self._first, self._last, self._healthy = first, last, healthy
        self._source = source or _SOURCE
        self._failures = 0

    def after_failure(self, *, lasted: float, retry_after: float = 0) -> float:
        """The next pause in seconds.

        Args:
            lasted: seconds of success before the failure.
            retry_after: minimum wait in seconds requested by the server (``Retry-After``).
        """
        self._failures = 1 if lasted >= self._healthy else self._failures + 1
        step = min(self._last, self._first * 2.0 ** min(self._failures - 1, 30))
        return max(retry_after, step * self._source.uniform(0.5, 1.0))
