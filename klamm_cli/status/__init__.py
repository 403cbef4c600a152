"""How a cluster does: what is asked of it (`gather`), what is wrong with it (`problems`), the screen (`screen`)."""
