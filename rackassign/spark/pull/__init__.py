"""Pull: executors ask a coordinator on the driver for what to read next, and get splits in their own rack first."""
