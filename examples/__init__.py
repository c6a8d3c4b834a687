"""What can be built with rackassign."""
