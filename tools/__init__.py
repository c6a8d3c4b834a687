"""Programs for maintainers: not part of the distribution, and not tests."""
