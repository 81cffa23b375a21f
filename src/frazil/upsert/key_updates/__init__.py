"""Primary-key updates: a row gets another key, in one record or in two, which may be in two partitions.

The values that the source does not send are in the row of the old key.
"""
