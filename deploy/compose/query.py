"""What the table of compose.yaml has, by DuckDB."""

import duckdb

duckdb.sql("INSTALL iceberg; LOAD iceberg;")
duckdb.sql("""
    CREATE SECRET (TYPE s3, KEY_ID 'frazil', SECRET 'frazil-secret', ENDPOINT 'store:7070', URL_STYLE 'path', USE_SSL false)
""")
duckdb.sql("ATTACH 'warehouse' AS lake (TYPE iceberg, ENDPOINT 'http://catalog:8181', AUTHORIZATION_TYPE 'none')")
duckdb.sql("""
    SELECT page.path, count(*) AS views, bar(count(*), 0, 6000, 24) AS chart
    FROM lake.web.clicks GROUP BY ALL ORDER BY views DESC LIMIT 5
""").show()
