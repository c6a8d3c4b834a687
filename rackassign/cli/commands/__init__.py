"""The commands of `rackassign`: one module for each."""
