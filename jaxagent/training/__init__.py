"""SFT and RL of a policy, the same for every recipe. Start with `rl.py`."""
