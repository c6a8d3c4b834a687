"""What rackassign does on each version of Kafka: short checks on one cluster of each, and the table for the docs."""
