"""Getting samples: engines, the scheduler and the agents over the sandbox."""
