"""Experiment records: one file an experiment, variants by name."""
