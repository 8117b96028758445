"""Mesh and sharding of arrays, turns of the accelerator, several processes."""
