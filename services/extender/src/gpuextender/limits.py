"""What the clients of each listener may cost: connections, time and memory.

The verbs have the most, for one scheduler sends a request for each pod that it binds. The metrics
port has the least: kubelet and Prometheus open a few connections, everybody else is kept short.
"""

from dataclasses import dataclass
from typing import Final

from gpukube.bodies import BodyLimits
from gpukube.connections import Limits

_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class ListenerLimits:
    """Limits of one listener."""

    connections: Limits
    bodies: BodyLimits


VERBS: Final = ListenerLimits(
    # The idle time is longer than the 90 s for which Go keeps an idle connection.
    Limits(connections=1024, idle=120, rate=50, burst=1000),
    # A scheduler that sends whole nodes sends about 20 kB for each: 100 MB for 5,000 nodes.
    BodyLimits(each=128 * _MIB, together=256 * _MIB),
)
METRICS: Final = ListenerLimits(
    Limits(connections=64, busy=30, rate=10, burst=50, each_request=True),
    BodyLimits(each=4096, together=64 * 4096),
)
ADMISSION: Final = ListenerLimits(
    # An API server opens a connection for each review that it cannot send over an idle one.
    Limits(connections=512, busy=30, rate=100, burst=500),
    # An object has at most 1.5 MiB in etcd; a review carries an old and a new one as JSON.
    BodyLimits(each=8 * _MIB, together=64 * _MIB),
)
