"""The text people see: the originals' tables to the byte, and ours."""
