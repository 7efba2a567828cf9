"""Why a model cannot be served, below the errors of :mod:`gpuinspect.errors`.

::

    InspectError
    ├── FlagError           the text of a flag cannot be read; the command line is wrong
    ├── RefusedError        the request contradicts itself, or the name is taken
    └── HelmError           there is no Helm, or it failed
"""

from gpuinspect.errors import InspectError


class FlagError(InspectError):
    """The text of a flag is not of its form; names the flag and the form."""


class RefusedError(InspectError):
    """The request cannot be fulfilled; the message has the change to make."""


class HelmError(InspectError):
    """Helm is not there or did not do it; carries its own words."""
