"""Outcome -> scalar: the reward modules of the three papers."""
