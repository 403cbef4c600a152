"""The sockets that servers listen on, and the answers to clients that dialled the wrong one."""
