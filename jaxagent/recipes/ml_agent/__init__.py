"""ML-Agent (paper 000): steps and trajectories of an agent."""
