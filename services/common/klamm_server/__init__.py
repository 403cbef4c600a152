"""The code that all services share. Each package may use those below it:

main.py     how a service's process starts and ends; child_processes.py servers as child processes
links/      a server's ties to its cluster: registration, the stream of metadata, producer ids
rpc/        calls between servers, and serving them
metadata/   the image of the cluster; config/ the settings; metrics/ the instruments
net/        sockets and listeners; runtime/ clock, event queue, faults, logging, tracing"""
