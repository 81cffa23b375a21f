"""Files of HDFS, for tables there."""
