"""A FastAPI service with a consumer in the background."""
