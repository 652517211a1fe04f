"""Clips and images in and out."""
