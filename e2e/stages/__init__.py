"""The stages of `make test`: each is timed, and a table at the end states where the time went."""
