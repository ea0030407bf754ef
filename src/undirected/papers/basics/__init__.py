"""Checks of the library itself against exact answers."""
