"""``python -m gpuinspect``: the command where no script is installed."""

from gpuinspect.commands.main import main

main()
