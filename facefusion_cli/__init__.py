"""ffx: batch video face swapping from the command line."""

__version__ = "0.1.0"
