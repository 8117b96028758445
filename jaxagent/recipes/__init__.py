"""Recipes: what an experiment asks, carries out and rewards, a folder each."""
