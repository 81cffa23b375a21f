"""Tables that are their own state: what becomes of a record depends on the rows that the table has.

`driver` and `tasks` say what each kind does; the rooms are `merge` (with `group_by`), `dedupe` and `history`.
"""
