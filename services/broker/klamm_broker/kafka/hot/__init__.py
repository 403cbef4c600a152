"""The APIs of the data path. Their messages are read and written by hand."""
