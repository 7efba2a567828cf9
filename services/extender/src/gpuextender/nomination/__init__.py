"""Nominations: pending pods get the best node of the whole cluster before the scheduler looks."""
