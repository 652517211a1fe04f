"""Tensor code, one stage a file: no files, no printing."""
