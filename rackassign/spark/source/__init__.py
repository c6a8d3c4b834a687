"""The Python data source `format("rackassign")`, for batch queries and for streams."""
