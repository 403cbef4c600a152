"""Metadata images: publishing one to logs and replicas, waiting for one, creating topics that clients name."""
