"""Consumers in Kubernetes that read locally: programs of the pods, and manifests."""
