"""`format("rackassign")`: what Spark calls of a Python data source, for batches and for streams."""
