"""Writing of rows to data files: clustered by partition and sort order, with statistics, described in Iceberg's own
JSON.
"""
