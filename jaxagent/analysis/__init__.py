"""Figures of finished runs, computed from scores and records alone."""
