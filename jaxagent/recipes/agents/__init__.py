"""Agents around a model behind an endpoint, measured (paper 002)."""
