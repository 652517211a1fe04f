"""Planes to RGB regions and back, on whatever device the planes are."""
