"""The stages of `make test`: each is timed, and a table at the end says where the time went."""
