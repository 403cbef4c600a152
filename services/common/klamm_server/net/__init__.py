"""Sockets that servers listen on, and what is said to a client that dialled the wrong one."""
