"""Deterministic offline stand-ins for the expert and the editor model.

They are used where no endpoint is configured.
"""
