"""Programs of a run compiled for devices that are not there, and what they need."""
