"""Weights on disk: manifest, checksums, and networks built from them."""
