"""Metadata images: publishing an image to logs and replicas, waiting for an image, and creating topics that clients
name."""
