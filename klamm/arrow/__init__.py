"""Records as Arrow columns, both ways, without a Python object for each record. The package needs pyarrow and numpy
(`pip install 'klamm[arrow]'`), so the clients and Spark's data source import it only when it is used. Pure.

    row_builder       columns of the records in fetched batches; `record_columns` is its pure Python
    record_packing    record batches from columns, sorted by topic and partition; `key_partitions` hashes their keys
    schema            the names and types of a record's columns
"""
