"""Experiments: what is trained or measured, from its data to its report."""
