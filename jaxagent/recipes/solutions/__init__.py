"""Whole solutions (papers 003 and 004), and AIDE's search around a model."""
