"""Read records, write results, and commit both in one transaction."""
