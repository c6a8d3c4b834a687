"""The placers that come with rackassign: Kafka's two to the letter, the exact one, and presets of other systems."""
