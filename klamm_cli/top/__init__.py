"""`klamm top`: computes the rates of a cluster from two samples (`sample`, `rates`), and repeats this until Ctrl-C."""
