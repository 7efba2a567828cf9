"""Gangs: pods of one job that are placed together or not at all."""
