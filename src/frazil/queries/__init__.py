"""Processing before the table: a query over the fields of records, analysed by Spark and evaluated on Arrow columns."""
