"""Copies a topic into one with more partitions, and moves its groups (`klamm topics spread`).

running.py                runs the phases
copying.py                the phase copy: a copier for each source partition
gather.py                 asks the cluster for the facts
plan.py, group_steps.py   decide what to do next; pure
facts.py                  the facts and the names; pure
"""
