"""Canal's messages opened, with the values of MySQL's columns that they write as texts."""
