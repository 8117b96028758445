"""Host-side data: prompt source, buffer and ledger, trajectories. No jax."""
