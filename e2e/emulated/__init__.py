"""Unit tests on another processor architecture, whose programs an emulator runs."""
