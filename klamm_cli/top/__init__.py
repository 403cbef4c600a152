"""`klamm top`: what a cluster is doing, from two looks at it (`sample`, `rates`), again and again."""
