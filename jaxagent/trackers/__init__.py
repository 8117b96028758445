"""Hands a run to experiment trackers: W&B, Trackio, MLflow.

Each has a process of its own, which follows the run's files: a tracker that fails, hangs
or fills a disk stops no run, and its library may live in another environment.
"""
