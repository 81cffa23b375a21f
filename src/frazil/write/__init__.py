"""Writing of rows to data files: clustered by partition and sort order, described in Iceberg's own JSON.

Statistics are part of the description.
"""
