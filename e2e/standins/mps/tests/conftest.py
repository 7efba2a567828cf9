"""The stand-in's parts are found beside its program, as the program finds them."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
