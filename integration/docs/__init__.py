"""What the documentation tells a user to run, run."""
