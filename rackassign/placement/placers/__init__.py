"""The built-in placers: exact reproductions of Kafka's two, the exact one, and presets of other systems."""
