"""A FastStream application."""
