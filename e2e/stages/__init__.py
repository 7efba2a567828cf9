"""The stages of `make test`: run in order or beside each other, ended by the first that fails."""
