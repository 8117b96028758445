"""Text models that the system itself asks, served by an endpoint."""
