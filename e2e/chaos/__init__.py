"""Kills every part of a running stack at random and checks what must hold all the same."""
