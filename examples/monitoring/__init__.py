"""Traffic for the dashboard of this example."""
