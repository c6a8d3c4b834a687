"""A pool of threads behind a consumer with the interface of confluent-kafka."""
