"""Statistics of finished runs: evaluation, behaviour, failure modes, summary."""
