"""What the folder of a task says: `task.yaml`, data, patterns, requirements."""
